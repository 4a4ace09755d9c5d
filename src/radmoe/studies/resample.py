"""Bootstrap distributions that several quantities of one study share: the same resampled problems for all of them.

A problem that several configurations answered is one cluster: its rows come and go together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.stats import Interval

Floats = NDArray[np.float64]


def interval(draws: Floats, level: float = 0.95) -> tuple[float, float]:
    """The central part of some draws; NaN where one of them is no number."""
    low, high = intervals(draws, level)
    return float(low), float(high)


def intervals(draws: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """The lower and upper ends of the central part of every column of draws."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


class Resampled(NamedTuple):
    """Means of the columns of a table over its rows [C], and over resampled clusters of rows [R, C]."""

    estimate: Floats
    draws: Floats
    n: int  # clusters

    def interval(self, column: int, level: float = 0.95) -> tuple[float, float]:
        return interval(self.draws[:, column], level)

    def difference(self, one: int, other: int) -> tuple[float, Floats]:
        """The difference of two columns' means, and its draws."""
        return float(self.estimate[one] - self.estimate[other]), self.draws[:, one] - self.draws[:, other]


def resample(table: Floats, clusters: Sequence[object], *, resamples: int, seed: int = 0) -> Resampled:
    """Means of each column over rows that have a number there (not NaN), with whole clusters resampled."""
    table = np.atleast_2d(np.asarray(table, np.float64))
    if len(table) != len(clusters) or not len(table):
        raise InputError(f"{len(table)} rows need as many clusters, and at least one: got {len(clusters)}")
    numbers = {cluster: i for i, cluster in enumerate(dict.fromkeys(clusters))}
    member = np.array([numbers[cluster] for cluster in clusters])
    known = np.isfinite(table)
    sums, counts = np.zeros((len(numbers), table.shape[1])), np.zeros((len(numbers), table.shape[1]))
    np.add.at(sums, member, np.where(known, table, 0.0))
    np.add.at(counts, member, known)
    weights = _weights(len(numbers), resamples, seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = sums.sum(0) / counts.sum(0)
        draws = (weights @ sums) / (weights @ counts)
    return Resampled(estimate, draws, len(numbers))


def _weights(clusters: int, resamples: int, seed: int) -> Floats:
    """How often each cluster is drawn in each resample [R, clusters]."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples).astype(np.float64)


def as_interval(resampled: Resampled, column: int, level: float = 0.95) -> Interval:
    """One column as the interval that tables know."""
    draws = resampled.draws[:, column]
    low, high = resampled.interval(column, level)
    size = len(draws) + 1
    p = min(1.0, 2 * min((np.sum(draws <= 0) + 1) / size, (np.sum(draws >= 0) + 1) / size))
    return Interval(float(resampled.estimate[column]), low, high, float(p), resampled.n, len(draws), level)
