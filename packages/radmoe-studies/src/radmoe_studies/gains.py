"""What picks gain over a random rollout, in the paper's three parts (App. "Cost-certainty frontier").

`anchor` is what the cohort of located rollouts has above all rollouts, `selection` what the pick has above its cohort, and
`full` is their sum. All are over eligible problems: those with two or more located rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.stats import PoissonBinomial, poisson_binomial_test
from radmoe.evaluation.table import Cell, missing
from radmoe_studies.decision import POINT
from radmoe_studies.evidence import Bools, Floats, Panel, Request
from radmoe_studies.picks import eligible, highest, hits, rate
from radmoe_studies.pooling import shown

DOMAINS = ("math", "science", "code")
STAR = 1.96  # the |z| at which the paper sets a star
NOBODY = "no problem has two located rollouts"


class Gains(NamedTuple):
    """Rates per problem, NaN where a problem is not eligible: of the pick (1 or 0), of its cohort, and of all rollouts."""

    pick: Floats
    cohort: Floats
    everyone: Floats

    @property
    def full(self) -> Floats:
        return self.pick - self.everyone

    @property
    def selection(self) -> Floats:
        return self.pick - self.cohort

    @property
    def anchor(self) -> Floats:
        return self.cohort - self.everyone

    @property
    def fallback(self) -> Floats:
        """The full lift of every problem, where one that is not eligible gets a random rollout, and so gains 0."""
        return np.where(np.isfinite(self.pick), self.full, 0.0)

    @property
    def covered(self) -> Bools:
        return np.isfinite(self.pick)

    def test(self, *, within: bool = False) -> PoissonBinomial | None:
        """The test whether picks are right more often than random ones of all rollouts, or of the cohort; None without problems."""
        known = self.covered
        if not known.any():
            return None
        return poisson_binomial_test((self.cohort if within else self.everyone)[known], self.pick[known])


def gains(panel: Panel, request: Request, mask: Bools | None = None) -> Gains:
    """The gains of a panel's problems; only located rollouts in the mask [P, N] count where one is given."""
    located, density = panel.read(request).located, panel.density(request)
    if mask is None:
        able = eligible(panel, request)
    else:
        located = located & mask
        density, able = np.where(located, density, np.nan), located.sum(1) >= 2
    parts = hits(panel, highest(density)), rate(panel, located), rate(panel)
    return Gains(*(np.where(able, part, np.nan) for part in parts))


def pooled(panels: Iterable[Panel], of: Callable[[Panel], Gains]) -> Gains:
    """The gains of several panels one behind the other."""
    parts = [of(panel) for panel in panels]
    return Gains(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def of_domains(panels: Iterable[Panel], domains: Sequence[str] = DOMAINS) -> list[Panel]:
    """The panels whose problems have a delimiter, or those of some domains."""
    return [panel for panel in panels if panel.domain in domains]


def all_arrive(panels: Iterable[Panel], request: Request, least: float) -> str:
    """The reason why delta-anchor cannot reach `least` on these panels; empty where it can.

    It can be no larger than the share of rollouts that never reach the anchor: at most all of them are wrong.
    """
    lost = [1 - rate_located(panel, request) for panel in panels]
    share = float(np.mean(np.concatenate(lost))) if lost else 0.0
    if share >= least:
        return ""
    return (
        f"only {100 * share:.1f}% of the rollouts do not reach the anchor, so that reaching it cannot tell right from wrong by "
        f"{100 * least:g} {'point' if least == POINT else 'points'}"
    )


def rate_located(panel: Panel, request: Request) -> Floats:
    """The share of each problem's rollouts that a request locates [P]."""
    located = panel.read(request).located & panel.here
    return np.asarray(located.sum(1) / np.maximum(panel.here.sum(1), 1), np.float64)


def gain_cells(values: Floats, test: PoissonBinomial | None) -> tuple[Cell, Cell]:
    """A mean lift with the paper's star, and its z."""
    if test is None:
        return missing(NOBODY), missing(NOBODY)
    stars = "*" if abs(test.z) >= STAR else ""
    return (
        shown(float(np.nanmean(values)), "points", stars=stars, note=NOBODY),
        shown(round(float(test.z), 2), "number", note="rates without spread"),
    )
