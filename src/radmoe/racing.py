"""A race of rollouts: those that fall behind in likelihood are given up before they have cost all their tokens.

The rule. The first `warm_up` rollouts of a problem run to their end, and set a bar. A later one is given up once it has
the share `after` of their median length in tokens, and its likelihood so far (the mean log-probability of its tokens) is
below the bar: the median of what theirs was after as many tokens. The pick is made among the rollouts that finished, and
no more are begun once it has survived `patience` of the later ones in a row.

Comparing at the same place matters, because a text is surer of itself in some places than in others. docs/adaptive.md has
what this saves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import InputError

GIVEN_UP = "given up"  # the finish reason of a rollout that was; a pool keeps it, and leaves it out of its groups

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Racing:
    """When a rollout is given up, and when no more are begun."""

    warm_up: int = 8
    patience: int = 4
    after: float = 0.25

    def __post_init__(self) -> None:
        for name, fewest in (("warm_up", 2), ("patience", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < fewest:
                raise InputError(f"{name} must be a whole number of rollouts from {fewest} up, got {value!r}")
        if not 0 <= self.after <= 1:
            raise InputError(f"after must lie in [0, 1]: it is a share of a rollout's length, got {self.after!r}")

    def start(self, lengths: ArrayLike) -> int:
        """The number of tokens from which on a rollout may be given up, by the lengths of the warm-up."""
        return max(1, math.ceil(self.after * float(np.median(np.asarray(lengths)))))

    def bar(self, warm_up: Sequence[NDArray[np.float32]]) -> Bar:
        """The bar that finished rollouts set, by the log-probabilities of their tokens."""
        return Bar(self.start([len(one) for one in warm_up]), np.median(running_likelihood(warm_up), axis=0))


@dataclass(frozen=True, eq=False)
class Bar:
    """The least likelihood [T] that a rollout must have after 1, 2, ... tokens, from `start` on; the last holds for all later."""

    start: int
    least: Floats

    def padded(self, tokens: int) -> Floats:
        """The bar for so many tokens: below anything before `start`."""
        bar = np.pad(self.least[:tokens], (0, max(tokens - len(self.least), 0)), mode="edge")
        bar[: self.start - 1] = -np.inf
        return bar

    def given_up(self, sampled_logprobs: NDArray[np.float32]) -> int | None:
        """After how many of its tokens a rollout is given up; None where it is not. At its last token it has finished."""
        (so_far,) = running_likelihood([sampled_logprobs])
        behind = np.flatnonzero(so_far[:-1] < self.padded(len(so_far))[:-1])
        return int(behind[0]) + 1 if len(behind) else None


def running_likelihood(sampled_logprobs: Sequence[NDArray[np.float32]]) -> Floats:
    """The mean log-probability [N, T] of the first 1, 2, ... tokens of rollouts; behind a rollout's end, that of all of it."""
    out = np.empty((len(sampled_logprobs), max((len(one) for one in sampled_logprobs), default=0)))
    for row, one in zip(out, sampled_logprobs, strict=True):
        row[: len(one)] = np.cumsum(one, dtype=np.float64) / np.arange(1, len(one) + 1)
        row[len(one) :] = row[len(one) - 1] if len(one) else np.nan
    return out
