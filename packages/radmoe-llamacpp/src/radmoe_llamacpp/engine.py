"""Rollouts with their routing from any GGUF MoE model, through llama.cpp's evaluation callback.

It captures what the transformers engine (torch/engine.py) does: the routing R(t) of the pass that predicts token t, and
log-probabilities of the raw logits. Both draw the same random numbers, so a seed gives the same rollout in both.
llama.cpp computes the last layer of a prompt for its last token only. So the prompt is fed without that token, which
is then the first step of each rollout and has rows in all layers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Completion, Engine, Job, completion_text, uniforms
from radmoe.engines.models import recorded_name
from radmoe.engines.options import EngineOptions, refuse_options, refuse_server_options, required_model
from radmoe.errors import EngineError, InputError
from radmoe.types import Rollout, RouterShape
from radmoe.vocab import Vocab
from radmoe_llamacpp.api import MAX_SEQUENCES, LlamaModel
from radmoe_llamacpp.batch import CACHES, Context, TensorRecorder
from radmoe_llamacpp.draw import draw, logprobs
from radmoe_llamacpp.tokenizer import GgufTokenizer

if TYPE_CHECKING:
    from radmoe.pool import Profile

_SUGGESTED = {"temperature": "general.sampling.temp", "top_p": "general.sampling.top_p"}
_SMALL = 512  # width up to which an operation is too short to share among cores
MAX_ROWS = MAX_SEQUENCES - 1  # one sequence holds the prompt


class LlamaCppEngine(Engine):
    """A loaded GGUF model, its tokenizer, and a callback that sees its routers.

    `tokenizer` is a Hugging Face tokenizer or the directory of one (default: the file's own). `cache` is the
    type of the KV cache: "f16" is llama.cpp's default; "f32" is exact, has no flash attention and takes twice the
    memory. `threads` are the cores to use (default: one for a small model, else all). `gpu_layers` is the number of
    layers to put on a GPU, where the installed wheel supports one (-1: all).
    """

    name = "llamacpp"
    batch_size = 32
    tokens_sampled = 0  # by the current or last `generate`, unfinished rollouts included

    def __init__(
        self,
        model: str | Path,
        *,
        tokenizer: Any = None,
        cache: str = "f16",
        threads: int | None = None,
        gpu_layers: int = -1,
    ) -> None:
        if cache not in CACHES:
            raise InputError(f"cache must be one of {', '.join(CACHES)}, got {cache!r}")
        if threads is not None and threads < 1:
            raise InputError(f"threads must be at least 1, got {threads}")
        self._model = LlamaModel(Path(model), gpu_layers)
        self._cache, self._threads = cache, threads or self._cores()
        self._recorder = TensorRecorder(self._model)
        self.model_name = recorded_name(model)
        self.shape: RouterShape = self._probe(Path(model))
        self.tokenizer, self.vocab = self._read_tokenizer(tokenizer)
        is_end = self._model.lib.llama_vocab_is_eog
        self.eos = frozenset(token for token in range(self._model.words) if is_end(self._model.vocab, token))
        self.context = int(self._model.lib.llama_model_n_ctx_train(self._model.handle))
        self.dtype = self._quantisation()
        self.versions = {"xllamacpp": version("xllamacpp")}

    @classmethod
    def open(cls, model: str | None, options: EngineOptions) -> Self:
        refuse_server_options(options, cls.name)
        refuse_options(options, ("dtype",), "is not of llamacpp: the GGUF file has its own")
        refuse_options(options, ("device",), "is not of llamacpp: the installed wheel decides where it runs")
        return cls(required_model(model, cls.name, "a GGUF file"), threads=options.threads)

    def suggested(self, name: str, otherwise: Any) -> Any:
        """A setting of the file's metadata (temperature, top_p), if it has it."""
        value = self._model.meta(_SUGGESTED[name]) if name in _SUGGESTED else None
        return otherwise if value is None else float(value)

    @property
    def vocab_size(self) -> int:
        return self._model.words

    def run(self, jobs: Sequence[Job], batch_size: int, profile: Profile | None) -> Iterator[Completion]:
        """Sample jobs as `Engine.run` says, with the rows of all their tokens.

        The same call gives the same rollouts, bit for bit, on the same machine and threads. With another
        batch size the random numbers stay the same and the logits agree up to rounding. `batch_size`
        rollouts step together, 255 at most; each has room in the cache for the longest prompt and its answer.
        """
        self.tokens_sampled = 0
        return self._run(jobs, batch_size)

    def _run(self, jobs: Sequence[Job], batch_size: int) -> Iterator[Completion]:
        if not jobs:
            return
        count = min(batch_size, len(jobs), MAX_ROWS)
        context = self._context(count, max(len(job.prompt) + job.limit for job in jobs))
        waiting = iter(jobs)
        rows: list[_Row | None] = [None] * count
        try:
            while True:
                for place, row in enumerate(rows):
                    if row is None and (job := next(waiting, None)) is not None:
                        context.begin(place, job.prompt[:-1])
                        rows[place] = _Row(job, uniforms(job.sampling.seed, job.key, job.rollout_index, job.limit))
                live = [(place, row) for place, row in enumerate(rows) if row is not None]
                if not live:
                    return
                for place, row in self._step(context, live):
                    rows[place] = None
                    yield self._completion(row)
        finally:
            context.close()

    def _step(self, context: Context, live: list[tuple[int, _Row]]) -> list[tuple[int, _Row]]:
        """Sample one more token for every row; returns the rows that this ended."""
        logits, (ids, weights) = context.step(
            [place for place, _ in live], [row.last for _, row in live], [row.position for _, row in live]
        )
        words = len(self.vocab)  # logits from here on pad the matrix
        for i, (_, row) in enumerate(live):
            sampling, chance = row.job.sampling, float(row.chance[len(row.tokens)])
            token = draw(logits[i, :words], chance, sampling.temperature, sampling.top_p)
            row.tokens.append(token)
            row.routing.append((ids[i], weights[i].astype(np.float16)))
            if sampling.topk_logprobs:
                row.logprobs.append(logprobs(logits[i], token, sampling.topk_logprobs))
        self.tokens_sampled += len(live)
        return [(p, row) for p, row in live if row.tokens[-1] in self.eos or len(row.tokens) == row.job.limit]

    def _completion(self, row: _Row) -> Completion:
        reason = "stop" if row.tokens[-1] in self.eos else "length"
        ids, weights = (np.stack(column) for column in zip(*row.routing, strict=True))
        sampled, top = None, None
        if row.logprobs:
            sampled, top = (np.stack(column) for column in zip(*row.logprobs, strict=True))
        rollout = Rollout(np.array(row.tokens, np.int32), ids, weights, sampled, top)
        text = completion_text(self.tokenizer, rollout.token_ids, reason)
        return Completion(row.job.prompt_index, row.job.rollout_index, rollout, text, reason)

    def _quantisation(self) -> str:
        """The quantisation of the file in llama.cpp's words, such as "Q4_K - Medium" or "all F32"."""
        lib = self._model.lib
        return str(lib.llama_ftype_name(lib.llama_model_ftype(self._model.handle)).decode())

    def _context(self, rows: int, length: int) -> Context:
        return Context(self._model, self._recorder, rows=rows, length=length, threads=self._threads, cache=self._cache)

    def _cores(self) -> int:
        """The threads to use: one for a small model, whose threads would mostly wait for each other, else all."""
        width = self._model.meta(f"{self._model.meta('general.architecture')}.embedding_length")
        return 1 if int(width or 0) <= _SMALL else os.cpu_count() or 1

    def _probe(self, path: Path) -> RouterShape:
        """The router's shape, from two passes over one token: the first shows which tensors there are."""
        context = self._context(1, 8)
        try:
            if not context.probe():
                raise EngineError(
                    f"{path} is not a mixture-of-experts model: without a router there is no routing to capture"
                )
            _, (ids, _) = context.step([0], [0], [1])
        finally:
            context.close()
        return RouterShape(ids.shape[1], self._recorder.experts, ids.shape[2])

    def _read_tokenizer(self, given: Any) -> tuple[Any, Vocab]:
        if given is None:
            own = GgufTokenizer(self._model)
            return own, own.vocab
        if isinstance(given, str | Path):
            from transformers import AutoTokenizer

            given = AutoTokenizer.from_pretrained(given, local_files_only=True, trust_remote_code=False)
        vocab = Vocab.from_tokenizer(given)
        if len(vocab) > self._model.words:
            raise InputError(
                f"this tokenizer has {len(vocab)} tokens and the model {self._model.words}: it is another model's"
            )
        return given, vocab


@dataclass
class _Row:
    """One rollout that is being sampled, and a random number for each of its tokens."""

    job: Job
    chance: NDArray[np.float64]
    tokens: list[int] = field(default_factory=list)
    routing: list[tuple[NDArray[np.int16], NDArray[np.float16]]] = field(default_factory=list)  # [L, K] each
    logprobs: list[tuple[np.float32, NDArray[np.float32]]] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The latest token of the sequence."""
        return self.tokens[-1] if self.tokens else self.job.prompt[-1]

    @property
    def position(self) -> int:
        """The position of the token `last` in the sequence."""
        return len(self.job.prompt) - 1 + len(self.tokens)
