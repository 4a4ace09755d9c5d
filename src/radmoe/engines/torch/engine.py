"""Rollouts with their routing from any local Hugging Face MoE checkpoint.

For the tokens y_0 .. y_{T-1} that are sampled after a prompt of P tokens, this is captured:

    R(t)      ids and weights of the experts that each layer chose in the pass that predicts y_t, which is
              input position P-1+t; weights sum to 1 over K; shared experts are left out
    logprobs  of y_t, and the C largest, under log_softmax of the raw logits in float32: before
              temperature and top-p, so that pools which were sampled differently can be compared

A rollout ends with its end token, which is kept, or where it was cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from radmoe.engines.base import Completion, Engine, Forced, Job, Sampling, completion_text
from radmoe.engines.models import recorded_name, resolve_model, shipped_models
from radmoe.engines.options import EngineOptions, refuse_server_options, required_model
from radmoe.engines.torch.batcher import ContinuousBatcher
from radmoe.engines.torch.decode import Decoder, Decoding, FinishedJob, Listed
from radmoe.engines.torch.force import force
from radmoe.engines.torch.kv_cache import rows_cache, speed_up_attention
from radmoe.engines.torch.routers import TOP_K_FAMILIES, RouterRecorder
from radmoe.errors import EngineError, InputError, RadmoeError
from radmoe.system.printing import say
from radmoe.types import Kind, Rollout, RouterShape
from radmoe.vocab import Vocab

if TYPE_CHECKING:
    from radmoe.pool import Profile

DTYPES = ("auto", "float32", "bfloat16", "float16")
_OLDEST, _NEWEST = (5, 22), (5, 23)  # versions that were run; older routers answer otherwise (docs/capture.md)
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


class TransformersEngine(Engine):
    """A loaded MoE model, its tokenizer, and hooks on its routers.

    `model` is a checkpoint directory, or a loaded model together with its `tokenizer`. The engine takes the model
    over: it is put in eval mode, and its attention ("sdpa", or gpt-oss's own) is replaced by one that is
    faster at single tokens. Nothing is downloaded. `threads` are the cores to use, for the whole process, and `model_name` is
    what a pool records (default: the directory's name).
    """

    name = "transformers"
    replays = True
    capture = True  # False leaves routing out, to measure what it costs

    def __init__(
        self,
        model: str | Path | Any,
        *,
        tokenizer: Any = None,
        dtype: str = "auto",
        device: str = "cpu",
        threads: int | None = None,
        model_name: str | None = None,
    ) -> None:
        newer = check_version(transformers.__version__)
        if threads is not None and threads < 1:
            raise InputError(f"threads must be at least 1, got {threads}")
        if isinstance(model, str | Path):
            self.checkpoint = Path(model)
            model, tokenizer = _load(self.checkpoint, tokenizer, dtype, device)
        elif tokenizer is None:
            raise InputError("a model that is already loaded needs its tokenizer: pass tokenizer=...")
        _refuse_bypasses(model)
        self.model, self.tokenizer = model.eval(), tokenizer
        self.vocab = Vocab.from_tokenizer(tokenizer)
        self.eos = frozenset(_end_tokens(model, tokenizer))
        self._text_config = model.config.get_text_config()
        self.model_name = model_name or recorded_name(self.checkpoint or model.config.model_type)
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.context = getattr(self._text_config, "max_position_embeddings", None)
        self._recorder = RouterRecorder(model)
        rows_cache(model.config)  # refuses a cache it cannot batch now, not after the first prompt
        speed_up_attention(model)
        self._tune()
        with self._recorder.recording(), torch.inference_mode():
            model(input_ids=torch.tensor([[0, 1, 2]], device=model.device), use_cache=False)
        self.shape: RouterShape = self._recorder.probe(check=newer and self._text_config.model_type in TOP_K_FAMILIES)
        self._settle(threads)
        self._decoders: list[Any] = []
        self.versions = {"torch": torch.__version__, "transformers": transformers.__version__}

    @classmethod
    def open(cls, model: str | None, options: EngineOptions) -> Self:
        refuse_server_options(options, cls.name)
        name = required_model(model, cls.name, "a checkpoint directory, or lab-qwen")
        transformers.logging.set_verbosity_error()  # hints about kernels that are not installed
        return cls(
            resolve_model(name),
            dtype=options.dtype or (shipped_models()[name].dtype if name in shipped_models() else "auto"),
            device=options.device,
            threads=options.threads,
            model_name=recorded_name(name),
        )

    @property
    def vocab_size(self) -> int:
        return int(self._text_config.vocab_size)

    def suggested(self, name: str, otherwise: Any) -> Any:
        """A setting of the checkpoint's generation config (temperature, top_p, max_new_tokens), if it has it."""
        value = getattr(self.model.generation_config, name, None)
        return otherwise if value is None else value

    @property
    def tokens_sampled(self) -> int:
        """The number of tokens that the current or last `generate` has sampled, unfinished rollouts included."""
        return sum(decoder.sampled for decoder in self._decoders)

    def run(self, jobs: Sequence[Job], batch_size: int, profile: Profile | None) -> Iterator[Completion]:
        """Sample jobs as `Engine.run` says, with the rows of all their tokens, which have been computed anyway.

        Determinism: each token is a function of its logits and of a random number named by (seed, key,
        rollout, step). The same call gives the same rollouts, bit for bit, on the same machine, library
        versions, threads and batch size. With another batch size, order or restart the random numbers stay the
        same and the logits agree up to rounding, so that in float32 rollouts come out equal except
        where a number falls within that rounding of a boundary; in bfloat16 that happens often.

        Cost: a prompt is prefilled once for all its rollouts; a step is one pass of `batch_size`
        positions, and finished rows are refilled at once, so the batch stays full until work runs out.
        """
        decoder = self.decoder(jobs[0].sampling.topk_logprobs if jobs else 0, capture=self.capture)
        self._decoders = [decoder]
        return self._completions(decoder.run(Listed(jobs), min(batch_size, max(len(jobs), 1))), batch_size)

    def batcher(
        self,
        *,
        batch_size: int = 64,
        topk_logprobs: int = Sampling.topk_logprobs,
        kind: Kind | None = None,
        profile: Profile | None = None,
    ) -> ContinuousBatcher:
        """A batch that requests join at its next step, each with its own sampling; rollouts have all their rows."""
        return ContinuousBatcher(self, batch_size=batch_size, topk_logprobs=topk_logprobs)

    def decoder(self, topk_logprobs: int, *, capture: bool = True) -> Decoder:
        """A batch of this model's, to be run in a thread of its own."""
        return Decoder(self.model, self._recorder, self._decoding(topk_logprobs, capture))

    def _decoding(self, topk_logprobs: int, capture: bool) -> Decoding:
        return Decoding(topk_logprobs, self.eos, min(len(self.vocab), self.vocab_size), capture)

    # What an engine for models of another size may do differently (radmoe-lab has one for very small ones).

    def _tune(self) -> None:
        """Change the model before its routers are probed."""

    def _settle(self, threads: int | None) -> None:
        """Take the cores that were asked for, once the routers are known."""
        if threads is not None:
            torch.set_num_threads(threads)

    @torch.inference_mode()
    def teacher_forced(self, token_ids: Sequence[int]) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
        """Expert ids and weights [S, L, K] of one pass over S given tokens; row p is that of input position p.

        This is the routing that a rollout would have had if capture and replay were the same computation. In exact
        arithmetic they are; in bfloat16 some expert sets differ, so replay does not replace capture (docs/capture.md).
        """
        inputs = torch.tensor([list(token_ids)], device=self.model.device)
        with self._recorder.recording(), _memory("this sequence", "pass fewer tokens"):
            self.model(input_ids=inputs, use_cache=False, logits_to_keep=1)
        ids, weights = self._recorder.take()
        return ids.transpose(0, 1).cpu().numpy(), weights.transpose(0, 1).cpu().numpy()

    def force(self, prompt: Sequence[int], tails: Sequence[Sequence[int]], *, topk_logprobs: int = 0) -> list[Forced]:
        """As `Engine.force` says, in batches that share the prompt's cache. The logprobs are those that capture keeps."""
        with _memory(f"{len(tails)} rollouts", "replay fewer of them, or shorter ones"):
            return self._force(self.model, self._recorder, prompt, tails, topk_logprobs=topk_logprobs)

    @property
    def _force(self) -> Callable[..., list[Forced]]:
        return force

    def _completions(self, running: Generator[FinishedJob, None, None], batch_size: int) -> Iterator[Completion]:
        with closing(running):
            while True:
                with _memory(f"a batch of {batch_size}", "lower batch_size or max_tokens"):
                    done = next(running, None)
                if done is None:
                    return
                yield self.completion(done)

    def completion(self, done: FinishedJob) -> Completion:
        """A sampled job as it is handed over."""
        job, columns, reason = done
        padded: list[Any] = [*columns, None, None, None, None]
        tokens, ids, weights, sampled, top = padded[:5]
        if ids is None:  # capture=False
            ids = np.zeros((len(tokens), self.shape.layers, self.shape.top_k), np.int16)
        text = completion_text(self.tokenizer, tokens, reason)
        rollout = Rollout(tokens, ids, weights, sampled, top)
        return Completion(job.prompt_index, job.rollout_index, rollout, text, reason)


def check_version(version: str) -> bool:
    """Refuse a transformers whose routers answer otherwise; warn of one that is newer than those that were run (returns True)."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST:
        raise EngineError(
            f"transformers {version} is installed, and routers answer as expected from 5.22 on: pip install 'radmoe[transformers]'"
        )
    if numbers > _NEWEST and version not in _warned:
        _warned.add(version)
        newest = ".".join(map(str, _NEWEST))
        say(f"radmoe: warning: transformers {version} is newer than {newest}, the newest that was tried", err=True)
    return numbers > _NEWEST


_warned: set[str] = set()


def _load(path: Path, tokenizer: Any, dtype: str, device: str) -> tuple[Any, Any]:
    if dtype not in DTYPES:
        raise InputError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    _check_device(device)
    if not (path / "config.json").is_file():
        raise EngineError(f"{path} is no checkpoint: it has no config.json; pass the directory of a saved model")
    try:
        with _quiet(), _memory(str(path), "use --dtype bfloat16 or a larger machine"):
            model, report = transformers.AutoModelForCausalLM.from_pretrained(
                path, dtype=dtype, local_files_only=True, output_loading_info=True, trust_remote_code=False
            )
            tokenizer = tokenizer or transformers.AutoTokenizer.from_pretrained(
                path, local_files_only=True, trust_remote_code=False
            )
            if missing := sorted(report["missing_keys"]):
                raise EngineError(
                    f"{path} lacks {len(missing)} weights of its model, {missing[0]} among them: a broken copy"
                )
            return model.to(device), tokenizer
    except RadmoeError:
        raise
    except Exception as error:  # safetensors and tokenizers have errors of their own for a broken copy
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise EngineError(f"cannot load {path}: {reason}") from None


def _check_device(device: str) -> None:
    """Refuse a device that torch does not know, or that this machine does not have."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise EngineError(
            f"device {device!r} cannot be used here ({reason}): use cpu, or cuda where torch finds a GPU"
        ) from None


def _refuse_bypasses(model: Any) -> None:
    """Refuse kernels and compiled graphs, which may route where no hook sees it."""
    if hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None:
        raise EngineError("this model is compiled, and a compiled graph bypasses hooks: pass it without torch.compile")
    if getattr(model, "use_kernels", False):
        raise EngineError("this model uses hub kernels, which bypass hooks: load it with use_kernels=False")


def _end_tokens(model: Any, tokenizer: Any) -> Iterator[int]:
    """End-of-sequence ids of the generation config, the config and the tokenizer."""
    for source in (model.generation_config, model.config.get_text_config(), tokenizer):
        ids = getattr(source, "eos_token_id", None)
        yield from ids if isinstance(ids, list | tuple) else [] if ids is None else [ids]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' own progress bars and load reports."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _memory(what: str, advice: str) -> Iterator[None]:
    """Turn running out of memory into an EngineError of one line."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _NO_MEMORY):
            raise EngineError(f"out of memory with {what}: {advice}") from None
        raise
