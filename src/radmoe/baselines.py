"""What RAD is compared with: votes over answers, and picks that read nothing but length or confidence.

Arrays over the N rollouts of one problem go in, the index of a rollout comes out (None: nothing to pick). An answer
is the normalised string, None where there is none; such a rollout casts no vote. All ties go to the rollout, or the
answer, that comes first.

The DeepConf votes are those of the published `deepconf` 0.1.0 (`compute_all_voting_results`). It rounds each token's
confidence to three decimals before it averages; here nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from radmoe.errors import InputError

TOP_SHARE = 0.1  # of the rollouts, by confidence, that a filtered vote keeps

Answers = Sequence[str | None]

# A DeepConf vote: the confidence scalar that weighs it, and whether only the most confident tenth may vote.
DEEPCONF: dict[str, tuple[str, bool]] = {
    "mean": ("mean", False),
    "tail": ("tail", False),
    "bottom-window": ("bottom-window", False),
    "lowest-window": ("lowest-window", False),
    "tail-top10": ("tail", True),
    "bottom-window-top10": ("bottom-window", True),
}


def average(correct: ArrayLike) -> float:
    """Avg@N: how often one rollout taken at random is right."""
    return float(np.mean(_marks(correct)))


def pass_at(correct: ArrayLike, m: int | None = None) -> float:
    """Oracle pass@m: the chance that m rollouts drawn without replacement hold a right one; m=None takes all N."""
    marks = _marks(correct)
    n, right = len(marks), int(marks.sum())
    m = n if m is None else m
    if not 1 <= m <= n:
        raise InputError(f"pass@m needs m from 1 to the {n} rollouts there are, got {m}")
    return 1.0 - comb(n - right, m) / comb(n, m)


def majority(answers: Answers) -> int | None:
    """Cons@N: the first rollout with the most frequent answer."""
    return _winner(answers, [1.0] * len(answers))


def weighted_vote(answers: Answers, weights: Sequence[float]) -> int | None:
    """The first rollout with the answer of most weight; None where no weight is above zero."""
    if len(answers) != len(weights):
        raise InputError(f"{len(answers)} answers but {len(weights)} weights: one weight per rollout")
    voters = [w for a, w in zip(answers, weights, strict=True) if a is not None]
    return _winner(answers, weights) if any(w > 0 for w in voters) else None


def filtered_vote(answers: Answers, weights: Sequence[float], share: float = TOP_SHARE) -> int | None:
    """`weighted_vote` among the most confident `share` of those who have an answer."""
    voters = [w for a, w in zip(answers, weights, strict=True) if a is not None]
    if not voters:
        return None
    least = np.percentile(voters, (1 - share) * 100)
    kept = [a if w >= least else None for a, w in zip(answers, weights, strict=True)]
    return weighted_vote(kept, weights)


def deepconf(answers: Answers, scalars: Mapping[str, Sequence[float]], vote: str = "bottom-window") -> int | None:
    """A DeepConf vote by name; `scalars` holds each confidence scalar of each rollout (`confidence.SCALARS`)."""
    if vote not in DEEPCONF:
        raise InputError(f"unknown DeepConf vote {vote!r}: use one of {', '.join(DEEPCONF)}")
    scalar, filtered = DEEPCONF[vote]
    return (filtered_vote if filtered else weighted_vote)(answers, scalars[scalar])


def highest(values: ArrayLike) -> int:
    """The rollout with the most of something: confidence (DeepConf's scalar as a pick), tokens, steps."""
    return int(np.argmax(_numbers(values)))


def lowest(values: ArrayLike) -> int:
    """The rollout with the least of something."""
    return int(np.argmin(_numbers(values)))


def _winner(answers: Answers, weights: Sequence[float]) -> int | None:
    votes: dict[str, float] = {}
    for answer, weight in zip(answers, weights, strict=True):
        if answer is not None:
            votes[answer] = votes.get(answer, 0.0) + float(weight)
    if not votes:
        return None
    return answers.index(max(votes, key=votes.__getitem__))


def _marks(correct: ArrayLike) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    marks = np.asarray(correct, bool)
    if marks.ndim != 1 or marks.size == 0:
        raise InputError(f"correctness is one mark per rollout of a problem, got shape {marks.shape}")
    return marks


def _numbers(values: ArrayLike) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    numbers = np.asarray(values, np.float64)
    if numbers.ndim != 1 or numbers.size == 0 or np.isnan(numbers).any():
        raise InputError(f"a pick needs one number per rollout, got {numbers.tolist()!r:.80}")
    return numbers
