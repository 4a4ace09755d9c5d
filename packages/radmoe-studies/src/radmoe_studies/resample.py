"""Bootstrap distributions that several quantities of one study share: the same resampled problems for all of them.

A problem that several configurations answered is one cluster: its rows come and go together. What a rule is asked about is a
`Quantity`, which knows the problems behind it, so that its n is a number of problems and never one of rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError

Floats = NDArray[np.float64]


def interval(draws: Floats, level: float = 0.95) -> tuple[float, float]:
    """The central part of some draws; NaN where one of them is no number."""
    low, high = intervals(draws, level)
    return float(low), float(high)


def intervals(draws: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """The lower and upper ends of the central part of every column of draws."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


@dataclass(frozen=True, eq=False)
class Quantity:
    """A number, its draws over resampled problems [R], and the distinct problems that it was computed from."""

    estimate: float
    draws: Floats
    problems: frozenset[Hashable]

    @property
    def n(self) -> int:
        """How many problems: one that several configurations answered counts once."""
        return len(self.problems)

    @property
    def interval(self) -> tuple[float, float]:
        return interval(self.draws)

    @property
    def finite(self) -> bool:
        """Whether it and all its draws are finite, as a rule needs them."""
        return bool(np.isfinite(self.estimate) and np.isfinite(self.draws).all())

    def minus(self, other: Quantity, times: float = 1.0) -> Quantity:
        """This quantity minus `times` another of the same resamples, draw by draw."""
        problems = self.problems | other.problems
        return Quantity(self.estimate - times * other.estimate, self.draws - times * other.draws, problems)


class Resampled(NamedTuple):
    """Means of the columns of a table over its rows [C], and over resampled clusters of rows [R, C].

    `clusters` names the problems, and `known` [clusters, C] says which of them have a number in a column.
    """

    estimate: Floats
    draws: Floats
    clusters: tuple[Hashable, ...]
    known: NDArray[np.bool_]

    @property
    def n(self) -> int:
        """How many clusters there are, with a number in any column."""
        return len(self.clusters)

    def interval(self, column: int, level: float = 0.95) -> tuple[float, float]:
        return interval(self.draws[:, column], level)

    def quantity(self, estimate: float, draws: Floats, columns: Sequence[int] | None = None) -> Quantity:
        """A number computed from these columns (default: all), with its bootstrap draws.

        It counts the problems that have a value in at least one of the columns.
        """
        known = self.known if columns is None else self.known[:, list(columns)]
        problems = (self.clusters[int(i)] for i in np.flatnonzero(known.any(1)))
        return Quantity(float(estimate), draws, frozenset(problems))

    def mean(self, column: int) -> Quantity:
        """The mean of a column."""
        return self.quantity(float(self.estimate[column]), self.draws[:, column], [column])

    def difference(self, one: int, other: int) -> Quantity:
        """The difference of two columns' means."""
        return self.mean(one).minus(self.mean(other))


def resample(table: Floats, clusters: Sequence[Hashable], *, resamples: int, seed: int = 0) -> Resampled:
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
    return Resampled(estimate, draws, tuple(numbers), counts > 0)


def _weights(clusters: int, resamples: int, seed: int) -> Floats:
    """How often each cluster is drawn in each resample [R, clusters]."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples).astype(np.float64)
