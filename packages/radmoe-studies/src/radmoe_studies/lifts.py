"""The lift of RAD over a random rollout in two parts (App. "Cohort agreement"): that of the anchor, and that of selection.

avg@full is the share of right rollouts, avg@coh that among located ones, dens whether RAD's pick is right. Then
delta-anchor = avg@coh - avg@full, delta-sel = dens - avg@coh, and delta-full is their sum. All are over eligible
problems, those with two or more located rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from radmoe.evaluation.stats import poisson_binomial_test
from radmoe_studies import picks
from radmoe_studies.evidence import Floats, Panel, Request
from radmoe_studies.fusions import fused
from radmoe_studies.pooling import Rows, clusters, stack
from radmoe_studies.resample import Quantity, Resampled, resample

FULL, COHORT, MAJORITY, DENSE, FUSED = range(5)
COLUMNS = ("avg@full", "avg@coh", "maj", "dens", "RAD+DC")


def lifts(panel: Panel) -> Floats:
    """The five columns per problem [P, 5], NaN on problems that are not eligible. RAD+DC is NaN without confidences.

    A vote is scored by expectation over tied answers, and one without voters is wrong.
    """
    located = panel.read(picks.standard(panel)).located
    table = np.column_stack(
        [
            picks.rate(panel),
            picks.rate(panel, located),
            np.nan_to_num(picks.majority(panel), nan=0.0),
            picks.rad(panel),
            fused(panel),
        ]
    )
    table[~picks.eligible(panel)] = np.nan
    return table


class Lift:
    """The lift on the eligible problems of some panels, with draws over problems; `of` counts all problems."""

    def __init__(self, rows: Rows, of: int, resamples: int, seed: int) -> None:
        self.rows, self.of, self.n = rows, of, len(rows.table)
        self._resamples, self._seed = resamples, seed

    @classmethod
    def over(cls, panels: Sequence[Panel], tables: dict[Panel, Floats], resamples: int, seed: int) -> Lift:
        return cls(stack(panels, tables.__getitem__), sum(map(len, panels)), resamples, seed)

    def __bool__(self) -> bool:
        return self.n > 0

    @cached_property
    def means(self) -> Resampled:
        return resample(self.rows.table, self.rows.problems, resamples=self._resamples, seed=self._seed)

    def mean(self, column: int) -> float:
        return float(self.means.estimate[column])

    @property
    def anchor(self) -> Quantity:
        return self.means.difference(COHORT, FULL)

    @property
    def selection(self) -> Quantity:
        return self.means.difference(DENSE, COHORT)

    @property
    def full(self) -> Quantity:
        return self.means.difference(DENSE, FULL)

    @property
    def headroom(self) -> Quantity:
        """Delta-sel as a share of what a perfect selector could add; NaN where every located rollout is right."""
        return _headroom(self.selection, self.means, COHORT)

    @cached_property
    def p(self) -> float:
        """The exact one-sided p of RAD's hits against a random located rollout per problem."""
        return poisson_binomial_test(np.clip(self.rows.table[:, COHORT], 0, 1), self.rows.table[:, DENSE]).p


def wanted(panel: Panel) -> list[Request]:
    """The requests of lifts: the panel's standard readout, for the domains that the paper decomposes."""
    return [picks.standard(panel)] if panel.domain in ("math", "science", "code") else []


def paired(panels: Sequence[Panel], one: str, other: str, tables: Mapping[Panel, Floats]) -> Rows:
    """Problems that one model answered in two styles, eligible in both: five columns of the first, then of the second."""
    rows, problems = [], []
    for first in (panel for panel in panels if panel.style == one):
        for second in (p for p in panels if p.style == other and (p.model, p.dataset) == (first.model, first.dataset)):
            place = {problem: i for i, problem in enumerate(second.problem_ids)}
            for i, (problem, cluster) in enumerate(zip(first.problem_ids, clusters(first), strict=True)):
                row = tables[first][i]
                partner = tables[second][place[problem]] if problem in place else row * np.nan
                if np.isfinite([row[DENSE], partner[DENSE]]).all():
                    rows.append(np.concatenate([row, partner]))
                    problems.append(cluster)
    return Rows(np.reshape(rows, (-1, 2 * len(COLUMNS))), problems)


class Contrast:
    """Lifts in two styles on the same problems, and how they differ: the first minus the second."""

    def __init__(self, rows: Rows, resamples: int, seed: int) -> None:
        self.means = resample(*rows, resamples=resamples, seed=seed)
        self.n = self.means.n

    def lift(self, side: int, top: int = DENSE, floor: int = COHORT) -> Quantity:
        """A lift in the first style (0) or the second (1)."""
        return self.means.difference(side * len(COLUMNS) + top, side * len(COLUMNS) + floor)

    def share(self, side: int) -> Quantity:
        """Delta-sel as a share of the headroom in one style."""
        return _headroom(self.lift(side), self.means, side * len(COLUMNS) + COHORT)

    def difference(self, top: int = DENSE, floor: int = COHORT) -> Quantity:
        return self.lift(0, top, floor).minus(self.lift(1, top, floor))


def _headroom(gain: Quantity, means: Resampled, cohort: int) -> Quantity:
    """A gain as a share of what a perfect selector could add to the mean of a column; NaN where that is nothing."""
    left = 1 - np.append(means.draws[:, cohort], means.estimate[cohort])
    shares = np.divide(np.append(gain.draws, gain.estimate), left, out=np.full(len(left), np.nan), where=left > 0)
    return Quantity(float(shares[-1]), shares[:-1], gain.problems)
