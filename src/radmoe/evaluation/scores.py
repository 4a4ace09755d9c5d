"""Evaluated pools put together: one pool, one configuration, or everything, as arrays over problems.

Two methods on the same problems are compared by a difference, its interval and a test. A family is all comparisons that are
printed together: every p that a table or a sentence shows is corrected for its family by Holm's method, and the p before that
is in CSV and JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.evaluation.families import DOMAINS, WELL_POSED
from radmoe.evaluation.methods import METHODS
from radmoe.evaluation.pools import GradedPool
from radmoe.evaluation.stats import Interval, Paired, bootstrap_mean, cluster_bootstrap, holm, paired_test
from radmoe.evaluation.table import SURE, Cell, Pair
from radmoe.types import Kind

Floats = NDArray[np.float64]

NEAR_UNIQUE = 20  # a plurality of at most one vote in this many is that of near-unique strings
NEAR_UNIQUE_KINDS: tuple[Kind, ...] = ("code", "agent")  # programs and patches are strings of their own (Table 1)

GROUPINGS = {"configuration": "model", "family": "family"}  # what tables group by -> what they call a group

ONE, NO_SPREAD = "one problem", "all problems alike"


def check_grouping(by: str) -> None:
    """Raise InputError unless tables can group by this."""
    if by not in GROUPINGS:
        raise InputError(f"unknown grouping {by!r}: use one of {', '.join(GROUPINGS)}")


@dataclass(frozen=True)
class Draws:
    """How intervals are drawn."""

    resamples: int = 10_000
    seed: int = 0
    level: float = 0.95


def degenerate(*pools: GradedPool) -> str | None:
    """Why a vote over exact strings has nothing to count on the problems of these pools; None where it has.

    Programs and patches are near-unique strings by nature. Answers of another kind are if, in the median problem, the
    most frequent one has a single vote, or at most one in twenty.
    """
    for kind in NEAR_UNIQUE_KINDS:
        if any(r.kind == kind for r in pools):
            return f"exact strings of {kind} are near-unique: a vote has nothing to count"
    most, of = (np.concatenate([r.outcomes.counts[name] for r in pools]) for name in ("plurality", "answered"))
    voting = of >= 2
    if voting.any() and np.median((most - np.maximum(1, of // NEAR_UNIQUE))[voting]) <= 0:
        return "answers are near-unique strings: a vote has nothing to count"
    return None


class Scores:
    """Problems of one or more pools, weighted alike."""

    def __init__(self, pools: Sequence[GradedPool]) -> None:
        self.pools = tuple(pools)

    def __len__(self) -> int:
        return sum(map(len, self.pools))

    def count(self, name: str) -> NDArray[np.int64]:
        return np.concatenate([r.outcomes.counts[name] for r in self.pools])

    @cached_property
    def full(self) -> Floats:
        """avg@full: the share of right rollouts of each problem."""
        return self.hits("average")

    @cached_property
    def cohort(self) -> Floats:
        """avg@coh: the share of right ones among the located; 0 where none is."""
        return np.asarray(self.count("located_right") / np.maximum(1, self.count("located")))

    @property
    def eligible(self) -> NDArray[np.bool_]:
        """Problems with at least two located rollouts: RAD does not abstain."""
        return self.count("located") >= 2

    @property
    def decidable(self) -> int:
        """Problems with right and wrong rollouts: the only ones where a selector matters."""
        right = self.count("right")
        return int(((right > 0) & (right < self.count("rollouts"))).sum())

    @cached_property
    def clusters(self) -> NDArray[np.int64]:
        """The problem behind each entry, as a number: configurations that were asked the same problem share it."""
        numbers: dict[tuple[str, str], int] = {}
        problems = [(r.dataset, problem) for r in self.pools for problem in r.problem_ids]
        return np.array([numbers.setdefault(problem, len(numbers)) for problem in problems])

    def why_not(self, method: str) -> str | None:
        """Why a method has no result on these problems; None where it has one."""
        if METHODS[method].vote and (reason := degenerate(*self.pools)) is not None:
            return reason
        for pool in self.pools:
            if method not in pool.outcomes.hits:
                return pool.outcomes.missing.get(method, f"{METHODS[method].label} was not measured")
        return None

    def hits(self, method: str, *, absent: float | None = None) -> Floats:
        """How right a method is on each problem: 1 or 0, or a chance where it draws one of several rollouts.

        Where the method cannot be used on a pool, each of its problems has the value `absent`; without one it is a KeyError.
        """
        if absent is None:
            return np.concatenate([r.outcomes.hits[method] for r in self.pools])
        return np.concatenate([r.outcomes.hits.get(method, np.full(len(r), absent)) for r in self.pools])

    def interval(
        self, x: Floats, draws: Draws, y: Floats | None = None, *, on: NDArray[np.bool_] | None = None
    ) -> Interval | None:
        """Bootstrap over problems (those `on`) of the mean of x, or of x - y.

        None where nothing can be resampled: there is one problem, or all are alike.
        """
        gaps = x if y is None else x - y
        clusters = self.clusters
        if on is not None:
            gaps, clusters = gaps[on], clusters[on]
        _, member = np.unique(clusters, return_inverse=True)
        each = np.bincount(member)
        count = len(each)
        if count < 2 or np.ptp(np.bincount(member, gaps) / each) == 0:
            return None
        if count == len(gaps):
            return bootstrap_mean(gaps, resamples=draws.resamples, level=draws.level, seed=draws.seed)
        return cluster_bootstrap(gaps, clusters, resamples=draws.resamples, level=draws.level, seed=draws.seed)

    def bounds(
        self, x: Floats, draws: Draws, y: Floats | None = None, *, on: NDArray[np.bool_] | None = None
    ) -> dict[str, Any]:
        """`interval` as a cell takes it: low and high, or a note that says why there is none."""
        interval = self.interval(x, draws, y, on=on)
        if interval is None:
            return {"note": f"{NO_SPREAD if len(self) > 1 else ONE}: no interval"}
        return {"low": interval.low, "high": interval.high}

    def test(self, x: Floats, y: Floats, *, on: NDArray[np.bool_] | None = None) -> Paired:
        """Whether x and y (outcomes 0/1) differ: McNemar where each problem (of those `on`) occurs once, else sign flips."""
        where = slice(None) if on is None else on
        return paired_test(x[where], y[where], self.clusters[where])

    def label(self, method: str) -> str:
        """A method's name in tables, with the number of rollouts where that is one number."""
        sizes = set(self.count("rollouts").tolist())
        label = METHODS[method].label
        return label.replace("@N", f"@{sizes.pop()}") if len(sizes) == 1 else label


@dataclass(frozen=True)
class Collection:
    """Graded pools, and how tables divide them: by configuration or model family, data set and domain."""

    pools: tuple[GradedPool, ...]
    by: str = "configuration"

    def __post_init__(self) -> None:
        check_grouping(self.by)

    def group_of(self, pool: GradedPool) -> str:
        """The configuration, or the family, that a pool belongs to."""
        name: str = getattr(pool, self.by)
        return name

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(map(self.group_of, self.pools)))

    @property
    def datasets(self) -> list[str]:
        """Well-posed ones first, as in Table 1."""
        ordered = sorted(self.pools, key=lambda r: not _well_posed(r))
        return list(dict.fromkeys(r.dataset for r in ordered))

    def scores(self, where: Callable[[GradedPool], bool] = lambda r: True) -> Scores | None:
        chosen = [r for r in self.pools if where(r)]
        return Scores(chosen) if chosen else None

    def cell(self, group: str | None, dataset: str) -> Scores | None:
        """One group (None: all) on one data set."""
        return self.scores(lambda r: group in (None, self.group_of(r)) and r.dataset == dataset)

    def domain(self, group: str | None, domain: str) -> Scores | None:
        """One group (None: all) on a domain. The well-posed one holds only sets on which a vote can count."""
        return self.scores(
            lambda r: (
                group in (None, self.group_of(r))
                and r.kind in DOMAINS[domain]
                and (domain != WELL_POSED or _well_posed(r))
            )
        )

    def votable(self) -> Scores | None:
        """Everything on which a vote over exact strings has something to count, of whatever kind."""
        return self.scores(lambda r: degenerate(r) is None)

    def cells(self) -> list[tuple[str, str, Scores]]:
        """Every group and data set that was measured."""
        pairs = ((group, dataset, self.cell(group, dataset)) for group in self.groups for dataset in self.datasets)
        return [(group, dataset, scores) for group, dataset, scores in pairs if scores is not None]


def _well_posed(pool: GradedPool) -> bool:
    return pool.kind in DOMAINS[WELL_POSED] and degenerate(pool) is None


def compare(scores: Scores, first: str, second: str, draws: Draws, *, on: NDArray[np.bool_] | None = None) -> Cell:
    """The first method minus the second on these problems (those `on`), with its interval and its test."""
    x, y = scores.hits(first), scores.hits(second)
    test = scores.test(x, y, on=on)
    pair = Pair(test.b, test.c, test.p, test=test.test)
    return Cell(test.gap, "points", n=test.n, pair=pair, **scores.bounds(x, draws, y, on=on))


def corrected(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of a family with Holm's correction over all of them that have a test."""
    pairs = {at: cell.pair for at, cell in enumerate(cells) if cell.pair is not None}
    adjusted = dict(zip(pairs, holm([pair.p for pair in pairs.values()]).tolist(), strict=True))
    return [
        cell if cell.pair is None else replace(cell, pair=replace(cell.pair, adjusted=adjusted[at]))
        for at, cell in enumerate(cells)
    ]


def differ(cell: Cell) -> bool:
    """Whether a difference was tested and its corrected p is below 0.05."""
    return cell.pair is not None and cell.pair.adjusted is not None and cell.pair.adjusted < SURE


def words_of_test(cells: Iterable[Cell]) -> str:
    """The test behind the p-values of some cells; empty where there is none."""
    tests = {cell.pair.test for cell in cells if cell.pair is not None}
    flips = "exact sign flips of problems, each with all its configurations"
    if tests == {"mcnemar", "sign-flip"}:
        return f"exact McNemar where each problem occurs once, else {flips}"
    return {"mcnemar": "exact McNemar, each problem once", "sign-flip": flips}[tests.pop()] if tests else ""
