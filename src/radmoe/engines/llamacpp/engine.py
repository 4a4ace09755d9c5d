"""Rollouts with their routing from any GGUF MoE model, through llama.cpp's evaluation callback.

What is captured is what the transformers engine captures (see there): R(t) of the pass that predicts y_t,
logprobs of the raw logits. Random numbers are named alike too, so that the same seed names the same
rollout. llama.cpp computes a prompt's last layer for its last token only; here that token is a row's
first step, so that all rows of all layers are seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Completion, Sampling, asked, room_left, uniforms
from radmoe.engines.llamacpp.api import MAX_SEQUENCES, Model
from radmoe.engines.llamacpp.batch import CACHES, Context, Recorder
from radmoe.engines.llamacpp.draw import draw, logprobs
from radmoe.engines.llamacpp.tokenizer import GgufTokenizer
from radmoe.errors import EngineError, InputError
from radmoe.pool import Profile
from radmoe.types import Rollout, RouterShape
from radmoe.vocab import Vocab

_SUGGESTED = {"temperature": "general.sampling.temp", "top_p": "general.sampling.top_p"}
_SMALL = 512  # width up to which an operation is too short to share among cores
MAX_ROWS = MAX_SEQUENCES - 1  # one sequence holds the prompt


class LlamaCppEngine:
    """A loaded GGUF model, its tokenizer, and a callback that sees its routers.

    `tokenizer` is a Hugging Face tokenizer or the directory of one (default: the file's own). `cache` is the
    type of the KV cache: "f16" as llama.cpp does it, or "f32", exact and without flash attention, twice the
    memory. `threads` are the cores to use (default: all, for a small model one); `gpu_layers` the layers to put on a GPU where the installed
    wheel has one (-1: all).
    """

    name = "llamacpp"

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
        self._model = Model(Path(model), gpu_layers)
        self._cache, self._threads = cache, threads or self._cores()
        self._recorder = Recorder(self._model)
        self.shape: RouterShape = self._probe(Path(model))
        self.tokenizer, self.vocab = self._read_tokenizer(tokenizer)
        is_end = self._model.lib.llama_vocab_is_eog
        self.eos = frozenset(token for token in range(self._model.words) if is_end(self._model.vocab, token))
        self.context: int = self._model.lib.llama_model_n_ctx_train(self._model.handle)
        self.versions = {"xllamacpp": version("xllamacpp")}
        self._sampled = 0

    @property
    def dtype(self) -> str:
        """The file's quantisation in llama.cpp's words, such as "Q4_K - Medium" or "all F32"."""
        lib = self._model.lib
        return str(lib.llama_ftype_name(lib.llama_model_ftype(self._model.handle)).decode())

    @property
    def tokens_sampled(self) -> int:
        """Tokens the current or last `generate` has sampled, unfinished rollouts included."""
        return self._sampled

    def suggested(self, name: str, otherwise: Any) -> Any:
        """A setting of the file's metadata (temperature, top_p), if it has it."""
        found = self._model.meta(_SUGGESTED[name]) if name in _SUGGESTED else None
        return otherwise if found is None else float(found)

    def room(self, ids: Sequence[int], name: str, max_tokens: int) -> int:
        return room_left(self.context, ids, name, max_tokens)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        *,
        sampling: Sampling | None = None,
        batch_size: int = 32,
        keys: Sequence[str] | None = None,
        missing: Sequence[Sequence[int]] | None = None,
        profile: Profile | None = None,
    ) -> Iterator[Completion]:
        """Rollouts missing[i] (default: all n) of every prompt of token ids, each as it finishes, whole.

        The same call gives the same rollouts, bit for bit, on the same machine and threads. With another
        batch size the random numbers stay the same and the logits agree up to rounding. `batch_size`
        rollouts step together, 255 at most; each has room in the cache for the longest prompt and its answer.
        """
        sampling = sampling or Sampling()
        names, wanted = asked(len(prompts), n, batch_size, keys, missing)
        jobs = [
            _Row(i, r, tuple(ids), self.room(ids, name, sampling.max_tokens), name)
            for i, (ids, name) in enumerate(zip(prompts, names, strict=True))
            for r in wanted[i]
            if self._checked(ids)
        ]
        self._sampled = 0
        return self._run(jobs, sampling, batch_size)

    def _run(self, jobs: list[_Row], sampling: Sampling, batch_size: int) -> Iterator[Completion]:
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
                        job.chance = uniforms(sampling.seed, job.key, job.rollout_index, job.limit)
                        rows[place] = job
                live = [(place, row) for place, row in enumerate(rows) if row is not None]
                if not live:
                    return
                for place, row in self._step(context, live, sampling):
                    rows[place] = None
                    yield self._completion(row)
        finally:
            context.close()

    def _step(self, context: Context, live: list[tuple[int, _Row]], sampling: Sampling) -> list[tuple[int, _Row]]:
        """One token more for every row; those it ended."""
        logits, (ids, weights) = context.step(
            [place for place, _ in live], [row.last for _, row in live], [row.position for _, row in live]
        )
        words = len(self.vocab)  # logits from here on pad the matrix
        for i, (_, row) in enumerate(live):
            chance = float(row.chance[len(row.tokens)])
            token = draw(logits[i, :words], chance, sampling.temperature, sampling.top_p)
            row.tokens.append(token)
            row.routing.append((ids[i], weights[i].astype(np.float16)))
            if sampling.topk_logprobs:
                row.logprobs.append(logprobs(logits[i], token, sampling.topk_logprobs))
        self._sampled += len(live)
        return [(p, row) for p, row in live if row.tokens[-1] in self.eos or len(row.tokens) == row.limit]

    def _completion(self, row: _Row) -> Completion:
        stopped = row.tokens[-1] in self.eos
        text = self.tokenizer.decode(row.tokens[:-1] if stopped else row.tokens, skip_special_tokens=False)
        columns = [np.stack(column) for part in (row.routing, row.logprobs) for column in zip(*part, strict=True)]
        rollout = Rollout(np.array(row.tokens, np.int32), *columns)
        return Completion(row.prompt_index, row.rollout_index, rollout, text, "stop" if stopped else "length")

    def _checked(self, ids: Sequence[int]) -> bool:
        if not len(ids):
            raise InputError("a prompt of zero tokens has nothing to continue")
        if min(ids) < 0 or max(ids) >= self._model.words:
            raise InputError(f"token ids of a prompt lie in [0, {self._model.words}), got {min(ids)}..{max(ids)}")
        return True

    def _context(self, rows: int, length: int) -> Context:
        return Context(self._model, self._recorder, rows=rows, length=length, threads=self._threads, cache=self._cache)

    def _cores(self) -> int:
        """All, but one for a small model: threads would mostly wait for each other."""
        width = self._model.meta(f"{self._model.meta('general.architecture')}.embedding_length")
        return 1 if int(width or 0) <= _SMALL else os.cpu_count() or 1

    def _probe(self, path: Path) -> RouterShape:
        """Two passes over one token: which tensors there are, then their shape."""
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

            given = AutoTokenizer.from_pretrained(given, local_files_only=True)
        vocab = Vocab.from_tokenizer(given)
        if len(vocab) > self._model.words:
            raise InputError(
                f"this tokenizer has {len(vocab)} tokens and the model {self._model.words}: it is another model's"
            )
        return given, vocab


@dataclass
class _Row:
    """One rollout on its way; `key` names its prompt in the random numbers."""

    prompt_index: int
    rollout_index: int
    prompt: tuple[int, ...]
    limit: int  # tokens at most
    key: str
    chance: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    tokens: list[int] = field(default_factory=list)
    routing: list[tuple[NDArray[np.int16], NDArray[np.float16]]] = field(default_factory=list)  # [L, K] each
    logprobs: list[tuple[np.float32, NDArray[np.float32]]] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else self.prompt[-1]

    @property
    def position(self) -> int:
        """Of the token `last` in the sequence."""
        return len(self.prompt) - 1 + len(self.tokens)
