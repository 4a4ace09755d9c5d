"""What every engine is asked for, and what it hands back."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.types import Rollout, RouterShape

if TYPE_CHECKING:
    from radmoe.pool import Profile
    from radmoe.vocab import Vocab


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn. `topk_logprobs` is C, the logprobs kept per token; 0 keeps none at all."""

    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0
    max_tokens: int = 512
    seed: int = 0
    topk_logprobs: int = 20

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InputError(f"temperature must be 0 (greedy) or more, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p must lie in (0, 1], got {self.top_p}")
        if self.max_tokens < 1:
            raise InputError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if self.seed < 0:
            raise InputError(f"seed must not be negative, got {self.seed}")
        if self.topk_logprobs < 0:
            raise InputError(f"topk_logprobs must be 0 (none) or more, got {self.topk_logprobs}")


class Engine(Protocol):
    """What `radmoe capture` asks of an engine; all of them write the same pool.

    `tokenizer` renders prompts (a Hugging Face tokenizer); `vocab` is the same as bytes. `versions` names
    what sampled, for the pool's record.
    """

    name: str
    shape: RouterShape
    vocab: Vocab
    tokenizer: Any
    versions: dict[str, str]

    @property
    def dtype(self) -> str:
        """What the model computes in; "unknown" where a server does not say."""

    @property
    def tokens_sampled(self) -> int:
        """Tokens the current or last `generate` has sampled."""

    def suggested(self, name: str, otherwise: Any) -> Any:
        """A setting the model comes with (temperature, top_p, max_new_tokens), if it has it."""

    def room(self, ids: Sequence[int], name: str, max_tokens: int) -> int:
        """Tokens a rollout of this prompt may have; a prompt that leaves none is an InputError."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        *,
        sampling: Sampling,
        batch_size: int,
        keys: Sequence[str],
        missing: Sequence[Sequence[int]],
        profile: Profile | None = None,
    ) -> Iterator[Completion]:
        """Rollouts missing[i] of the n of every prompt of token ids, each as it finishes.

        `profile` is that of the pool they go to. An engine may leave out routing that it does not keep, and put
        `kept.filler` there; most have it at hand anyway.
        """


class Completion(NamedTuple):
    """One finished rollout of one prompt."""

    prompt_index: int
    rollout_index: int
    rollout: Rollout
    text: str
    finish_reason: str  # "stop": it ended by itself; "length": it reached max_tokens or the context's end


def asked(
    prompts: int, n: int, batch_size: int, keys: Sequence[str] | None, missing: Sequence[Sequence[int]] | None
) -> tuple[list[str], list[list[int]]]:
    """The names and rollouts of so many prompts (default: their places, and all n), or what is wrong with the call."""
    if n < 1:
        raise InputError(f"n must be at least 1 rollout per prompt, got {n}")
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    names = list(keys) if keys is not None else [str(i) for i in range(prompts)]
    wanted = [list(rollouts) for rollouts in missing] if missing is not None else [list(range(n))] * prompts
    if not len(names) == len(wanted) == prompts:
        raise InputError(f"{prompts} prompts, {len(names)} keys, {len(wanted)} lists of rollouts: they must agree")
    for name, rollouts in zip(names, wanted, strict=True):
        if rollouts != sorted(set(rollouts) & set(range(n))):
            raise InputError(f"rollouts of {name!r} must be distinct, ascending and below n={n}, got {rollouts}")
    return names, wanted


def rollout_seed(seed: int, key: str, rollout_index: int) -> int:
    """A rollout's own seed, for engines that draw by themselves. It counts up by 1, as vLLM does within a request."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:4], "little") + rollout_index


def room_left(context: int | None, ids: Sequence[int], name: str, max_tokens: int) -> int:
    """max_tokens, or what a prompt leaves of the context (None: nobody said); a prompt that leaves none is refused."""
    if context is None:
        return max_tokens
    if len(ids) >= context:
        raise InputError(
            f"prompt {name!r} has {len(ids)} tokens and the model's context is {context}: "
            "shorten the prompt, there is no room for an answer"
        )
    return min(max_tokens, context - len(ids))


def uniforms(seed: int, key: str, rollout_index: int, count: int) -> NDArray[np.float64]:
    """The random numbers of one rollout, one per token [count], in [0, 1).

    They depend on nothing but these names: not on the batch, on other rollouts or on what was
    sampled before a restart. More of them begin with the same ones.
    """
    digest = hashlib.sha256(key.encode()).digest()
    words = [int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4)]
    return np.random.default_rng([seed, *words, rollout_index]).random(count)
