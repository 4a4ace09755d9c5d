"""How one trajectory is chosen among those that can be submitted: methods by their names, and rank sums of them.

    rad            the routing at its boundaries is most like that of its nearest (the paper's)
    patch-overlap  its patch has most in common with all other patches, by pairs of words; equal patches count as often as they are there
    likelihood     the model found its own tokens most likely, on average

A sum, such as rad+likelihood, adds the ranks that its parts give. No method reads a verdict or a hidden test. They are those of
`radmoe evaluate` (`rad`, `text-overlap`, `likelihood`), which also sees verdicts and therefore cannot be used here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError, RadmoeError
from radmoe.selection.confidence import likelihood as mean_logprob
from radmoe.selection.kernels import density_scores, rank_sum
from radmoe.selection.overlap import text_similarity
from radmoe.types import Trace

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cohort:
    """The n trajectories of an issue that can be submitted, as methods see them.

    S compares the routing of those that are `located` [n], with k neighbours each. A trajectory without routing has no trace.
    """

    patches: Sequence[str]
    traces: Sequence[Trace | None]
    S: NDArray[np.float32]
    located: NDArray[np.bool_]
    k: int

    @cached_property
    def likelihoods(self) -> Floats:
        """The mean log-probability of each one's tokens; NaN where they were not kept."""
        return np.array([np.nan if trace is None else _likelihood(trace) for trace in self.traces], np.float64)

    @cached_property
    def overlaps(self) -> NDArray[np.float32]:
        """How much every two patches have in common as text [n, n]."""
        return text_similarity(self.patches)

    @property
    def mean_overlaps(self) -> Floats:
        """What each patch has in common with all others, on average; NaN where there is no other."""
        others = len(self.patches) - 1
        sums = self.overlaps.sum(1, dtype=np.float64) - self.overlaps.diagonal()
        return np.asarray(sums / others if others else np.full(1, np.nan))


def _likelihood(trace: Trace) -> float:
    try:
        column = trace.sampled_logprobs
    except RadmoeError:  # a damaged pool: it costs no other trajectory
        return np.nan
    return np.nan if column is None else mean_logprob(column)


def rad(cohort: Cohort) -> Floats:
    """The density of its routing."""
    return density_scores(cohort.S, cohort.located, cohort.k)


def patch_overlap(cohort: Cohort) -> Floats:
    """The similarity of its patch to all other patches."""
    n = len(cohort.patches)
    return density_scores(cohort.overlaps, np.ones(n, bool), max(1, n - 1))


def likelihood(cohort: Cohort) -> Floats:
    """The mean log-probability of its tokens."""
    return cohort.likelihoods


METHODS: dict[str, Callable[[Cohort], Floats]] = {
    "rad": rad,
    "patch-overlap": patch_overlap,
    "likelihood": likelihood,
}


def parts_of(method: str) -> tuple[str, ...]:
    """The methods that a name stands for, in the order of METHODS. Raises an InputError for a name that stands for none."""
    parts = method.split("+")
    if len(set(parts)) < len(parts) or not set(parts) <= METHODS.keys():
        raise InputError(
            f"unknown method {method!r:.60}: use {', '.join(METHODS)}, or some of them joined by +, such as rad+likelihood"
        )
    return tuple(name for name in METHODS if name in parts)


class PatchScores(NamedTuple):
    """What each part of a method gives every trajectory [n], and what the method does in the end."""

    parts: dict[str, Floats]
    total: Floats


def scores_of(method: str, cohort: Cohort) -> PatchScores:
    """Score every trajectory. The highest wins, the first of equals; NaN is not scored."""
    parts = {name: METHODS[name](cohort) for name in parts_of(method)}
    columns = list(parts.values())
    return PatchScores(parts, columns[0] if len(columns) == 1 else rank_sum(np.stack(columns)))
