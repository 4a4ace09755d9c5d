"""What RAD is compared with, as functions of arrays: votes over answers, and the highest of some score.

Values for the N rollouts of one problem go in, and the index of a rollout comes out; None means that there is nothing to
pick. An answer is the normalised string, or None where there is none; such a rollout casts no vote. Ties go to the
rollout, or the answer, that comes first. `radmoe.evaluation.methods` gives these functions their names.

The DeepConf votes are those of the published `deepconf` 0.1.0 (`compute_all_voting_results`). It rounds each token's
confidence to three decimals before it averages; here nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import InputError

TOP_SHARE = 0.1  # of the rollouts, by confidence, that a filtered vote keeps

Answers = Sequence[str | None]
Weights = Sequence[float] | NDArray[np.float64]


def majority(answers: Answers) -> int | None:
    """Cons@N: the first rollout with the most frequent answer; of equally frequent ones, the answer seen first."""
    return next(iter(most_frequent(answers)), None)


def most_frequent(answers: Answers) -> list[int]:
    """The first rollout of each answer that no other answer outnumbers, in their order; none without an answer."""
    return _winners(answers, [1.0] * len(answers))


def weighted_vote(answers: Answers, weights: Weights) -> int | None:
    """The first rollout with the answer that has most weight; None where no weight is above zero."""
    if len(answers) != len(weights):
        raise InputError(f"{len(answers)} answers but {len(weights)} weights: one weight per rollout")
    voters = [w for a, w in zip(answers, weights, strict=True) if a is not None]
    return next(iter(_winners(answers, weights)), None) if any(w > 0 for w in voters) else None


def filtered_vote(answers: Answers, weights: Weights, share: float = TOP_SHARE) -> int | None:
    """`weighted_vote` among the most confident `share` of the rollouts that have an answer."""
    voters = [w for a, w in zip(answers, weights, strict=True) if a is not None]
    if not voters:
        return None
    least = np.percentile(voters, (1 - share) * 100)
    confident = [a if w >= least else None for a, w in zip(answers, weights, strict=True)]
    return weighted_vote(confident, weights)


def highest(scores: ArrayLike) -> int | None:
    """The first rollout with the highest score; NaN is no score, and None means that there is none."""
    numbers = np.asarray(scores, np.float64)
    if numbers.ndim != 1:
        raise InputError(f"scores are one number per rollout of a problem, got shape {numbers.shape}")
    scored = np.flatnonzero(~np.isnan(numbers))
    return int(scored[numbers[scored].argmax()]) if len(scored) else None


def _winners(answers: Answers, weights: Weights) -> list[int]:
    """The first rollout of each answer that has the most weight, in the order in which the answers were seen."""
    votes: dict[str, float] = {}
    for answer, weight in zip(answers, weights, strict=True):
        if answer is not None:
            votes[answer] = votes.get(answer, 0.0) + float(weight)
    most = max(votes.values(), default=0.0)
    return [answers.index(answer) for answer, weight in votes.items() if weight == most]
