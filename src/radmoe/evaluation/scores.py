"""Records put together: one pool, one configuration, or everything, as arrays over problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.evaluation.records import METHODS, VOTES, Records
from radmoe.stats import Interval, bootstrap_mean, cluster_bootstrap

Floats = NDArray[np.float64]

NEAR_UNIQUE = 20  # a plurality of at most one vote in this many is that of near-unique strings

ONE, NO_SPREAD = "one problem", "all problems alike"


@dataclass(frozen=True)
class Draws:
    """How intervals are drawn."""

    resamples: int = 10_000
    seed: int = 0
    level: float = 0.95


def degenerate(records: Records) -> str | None:
    """Why a vote over exact strings has nothing to count here; None where it is well-posed.

    Programs and patches are near-unique strings by nature (Table 1). Elsewhere it shows: in the median problem the most
    frequent answer has one vote, or one in twenty.
    """
    if records.settings.task in ("code", "agent"):
        return f"exact strings of {records.settings.task} are near-unique: a vote has nothing to count"
    voting = records.counts["answered"] >= 2
    if not voting.any():
        return None
    most, of = records.counts["plurality"][voting], records.counts["answered"][voting]
    if np.median(most - np.maximum(1, of // NEAR_UNIQUE)) <= 0:
        return "answers are near-unique strings: a vote has nothing to count"
    return None


class Scores:
    """Problems of one or more pools, weighted alike."""

    def __init__(self, records: Sequence[Records]) -> None:
        self.records = tuple(records)

    def __len__(self) -> int:
        return sum(map(len, self.records))

    def count(self, name: str) -> NDArray[np.int64]:
        return np.concatenate([r.counts[name] for r in self.records])

    @cached_property
    def full(self) -> Floats:
        """avg@full: the share of right rollouts of each problem."""
        return np.asarray(self.count("right") / self.count("rollouts"))

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
        """The problem behind each entry, as a number: configurations that were asked the same ones share it."""
        numbers: dict[tuple[str, str], int] = {}
        asked = [(r.dataset, problem) for r in self.records for problem in r.problem_ids]
        return np.array([numbers.setdefault(problem, len(numbers)) for problem in asked])

    def why_not(self, method: str) -> str | None:
        """Why a method has no result on these problems."""
        for records in self.records:
            if method in VOTES and (reason := degenerate(records)) is not None:
                return reason
            if method != "average" and method not in records.hits:
                return records.missing.get(method, f"{METHODS[method]} was not measured")
        return None

    def hits(self, method: str) -> Floats:
        """Right or wrong, per problem; for "average" the expectation of it."""
        if method == "average":
            return self.full
        return np.concatenate([r.hits[method] for r in self.records]).astype(np.float64)

    def interval(
        self, x: Floats, draws: Draws, y: Floats | None = None, *, on: NDArray[np.bool_] | None = None
    ) -> Interval | None:
        """Bootstrap over problems (those `on`) of the mean of x, or of x - y.

        None where nothing can be resampled: one problem, or all alike.
        """
        gaps = x if y is None else x - y
        clusters = self.clusters
        if on is not None:
            gaps, clusters = gaps[on], clusters[on]
        count = len(np.unique(clusters))
        if count < 2 or np.ptp(gaps) == 0:
            return None
        if count == len(gaps):
            return bootstrap_mean(gaps, resamples=draws.resamples, level=draws.level, seed=draws.seed)
        return cluster_bootstrap(gaps, clusters, resamples=draws.resamples, level=draws.level, seed=draws.seed)

    def bounds(
        self, x: Floats, draws: Draws, y: Floats | None = None, *, on: NDArray[np.bool_] | None = None
    ) -> dict[str, Any]:
        """`interval` as a cell takes it: low and high, or a note that says why not."""
        found = self.interval(x, draws, y, on=on)
        if found is None:
            return {"note": f"{NO_SPREAD if len(self) > 1 else ONE}: no interval"}
        return {"low": found.low, "high": found.high}

    def label(self, method: str) -> str:
        """A method's name, with the number of rollouts where that is one number."""
        sizes = set(self.count("rollouts").tolist())
        return METHODS[method].replace("@N", f"@{sizes.pop()}") if len(sizes) == 1 else METHODS[method]


@dataclass(frozen=True)
class Collection:
    """The pools at hand, as the tables cut them: by configuration, by dataset, well-posed or not."""

    records: tuple[Records, ...]

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(r.model for r in self.records))

    @property
    def datasets(self) -> list[str]:
        """Well-posed ones first, as in Table 1."""
        ordered = sorted(self.records, key=lambda r: degenerate(r) is not None)
        return list(dict.fromkeys(r.dataset for r in ordered))

    def scores(self, where: Callable[[Records], bool] = lambda r: True) -> Scores | None:
        chosen = [r for r in self.records if where(r)]
        return Scores(chosen) if chosen else None

    def cell(self, model: str | None, dataset: str | None) -> Scores | None:
        """One configuration (None: all) on one dataset (None: all that are well-posed)."""
        return self.scores(
            lambda r: model in (None, r.model) and (degenerate(r) is None if dataset is None else r.dataset == dataset)
        )

    def cells(self) -> list[tuple[str, str, Scores]]:
        """Every configuration and dataset that was measured."""
        found = ((m, d, self.cell(m, d)) for m in self.models for d in self.datasets)
        return [(m, d, scores) for m, d, scores in found if scores is not None]
