"""Gains by anchor and budget: a budget of B means that only the first B tokens of a rollout are read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from radmoe_studies.base import Options
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.gains import Gains, gains, of_domains, pooled
from radmoe_studies.pooling import problems_of
from radmoe_studies.resample import Quantity, Resampled, resample

BUDGETS = (16, 32, 64, 128, 256, 512)
EARLY, LATE = 64, 512  # before most rollouts of the lab open an answer, and behind the end of all
ANCHORS = {
    "So": "trajectory:so#shared@16",
    "So*": "trajectory:so*@16",
    "Now": "trajectory:now#shared@16",
    "boundary": "boundary@16",
    "delimiter": "delimiter@16",
    "first So": "trajectory:so@16",
    "So* before the delimiter": "trajectory-before:so*@16",
}
MAIN = tuple(ANCHORS)[:5]
PARTS = ("full", "fallback", "covered", "anchor", "selection")


def request(anchor: str, budget: int) -> Request:
    return Request(ANCHORS[anchor], budget=budget, k=10)


def wanted(panel: Panel) -> list[Request]:
    return [request(anchor, budget) for anchor in ANCHORS for budget in BUDGETS] if of_domains([panel]) else []


class Frontier(NamedTuple):
    """Gains by anchor and budget, and the means of their parts over resampled problems."""

    gains: dict[tuple[str, int], Gains]
    means: Resampled

    def column(self, anchor: str, budget: int, part: str) -> int:
        return (list(ANCHORS).index(anchor) * len(BUDGETS) + BUDGETS.index(budget)) * len(PARTS) + PARTS.index(part)

    def known(self, *columns: int) -> bool:
        return bool(np.isfinite(self.means.draws[:, list(columns)]).all())

    def mean(self, anchor: str, budget: int, part: str) -> Quantity:
        return self.means.mean(self.column(anchor, budget, part))


def _gains(panels: list[Panel], anchor: str, budget: int) -> Gains:
    return pooled(panels, lambda panel: gains(panel, request(anchor, budget)))


def frontier_of(panels: list[Panel], options: Options) -> Frontier:
    own = {(anchor, budget): _gains(panels, anchor, budget) for anchor in ANCHORS for budget in BUDGETS}
    table = [np.asarray(getattr(lift, part), np.float64) for lift in own.values() for part in PARTS]
    table.append(own["delimiter", LATE].full - own["So*", LATE].full)
    means = resample(np.column_stack(table), problems_of(panels), resamples=options.draws, seed=options.seed)
    return Frontier(own, means)
