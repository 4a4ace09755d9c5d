"""One rollout of any engine as it came, unchecked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Engine, Sampling

if TYPE_CHECKING:
    from radmoe.engines.http import HttpEngine


class Seen(NamedTuple):
    """A rollout: row r of `ids` and `weights` is said to be input position first + r."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    ids: NDArray[Any] | None  # [R, layers, K]
    weights: NDArray[Any] | None
    first: int
    sampled: NDArray[np.float32] | None  # [T]
    top: NDArray[np.float32] | None  # [T, C]

    @property
    def sequence(self) -> tuple[int, ...]:
        return self.prompt + self.tokens


def look(engine: Engine, prompt: Sequence[int], sampling: Sampling, seed: int) -> Seen:
    """Sample one rollout. A server is asked for the prompt's rows too; other engines have those of the tokens."""
    from radmoe.engines.http import HttpEngine

    if isinstance(engine, HttpEngine):
        return _served(engine, tuple(prompt), sampling, seed)
    own = replace(sampling, seed=seed)
    (done,) = engine.generate([list(prompt)], 1, sampling=own, batch_size=1, keys=["doctor"], missing=[[0]])
    made = done.rollout
    return Seen(
        tuple(prompt),
        tuple(made.token_ids.tolist()),
        made.expert_ids,
        made.weights,
        len(prompt) - 1,
        made.sampled_logprobs,
        made.topk_logprobs,
    )


def _served(engine: HttpEngine, prompt: tuple[int, ...], sampling: Sampling, seed: int) -> Seen:
    from radmoe.engines.http.dialects import logprobs_of

    answer = engine.look(prompt, sampling, seed)
    ids, weights, first = answer.raw, None, answer.first
    if answer.rows is not None:
        ids, weights = answer.rows.ids, answer.rows.weights
        first = len(prompt) - 1 + (int(answer.rows.token[0]) if len(answer.rows.token) else 0)
    return Seen(prompt, tuple(answer.tokens), ids, weights, first, *logprobs_of(answer))
