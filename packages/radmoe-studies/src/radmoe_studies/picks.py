"""Whether picks are right, per problem of a panel: those of RAD and of what it is compared with.

All are arrays over the panel's P problems. Ties of densities go to the lowest index, as in `select`; an abstention, where
fewer than two rollouts are located, is NaN here, so that a study says itself what it counts as.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from radmoe_studies.evidence import Bools, Floats, Panel, Request

NAN = np.nan


def standard(panel: Panel) -> Request:
    """The readout by which RAD reads this panel."""
    return Request(panel.setting.readout, panel.setting.kernel)


def rate(panel: Panel, mask: Bools | None = None) -> Floats:
    """The share of rollouts that are right: of all that are there, or of those in a mask [P, N]; NaN where none is."""
    inside = panel.here if mask is None else mask & panel.here
    counts = inside.sum(1)
    right = (panel.correct & inside).sum(1)
    return np.where(counts > 0, right / np.maximum(counts, 1), NAN)


def highest(scores: Floats) -> NDArray[np.int64]:
    """The index of the highest score of each row, the lowest of several; -1 where no rollout is scored."""
    scored = np.isfinite(scores)
    best = np.argmax(np.where(scored, scores, -np.inf), axis=1)
    return np.where(scored.any(1), best, -1)


def hits(panel: Panel, picks: NDArray[np.int64]) -> Floats:
    """1 where the pick is right, 0 where it is wrong, NaN where there is none."""
    right = panel.correct[np.arange(len(panel)), np.maximum(picks, 0)]
    return np.where(picks >= 0, right.astype(np.float64), NAN)


def of_method(panel: Panel, method: str) -> Floats:
    """How right a method of `radmoe evaluate` is on each problem [P], an abstention being wrong; NaN where it has no result."""
    return panel.outcomes.hits.get(method, np.full(len(panel), NAN))


def rad(panel: Panel, request: Request | None = None) -> Floats:
    """Whether RAD's pick is right."""
    return hits(panel, highest(panel.density(request or standard(panel))))


def majority(panel: Panel, mask: Bools | None = None) -> Floats:
    """Whether the most frequent answer is right [P]; where several are tied, the share of them that is right."""
    inside = panel.answered & (panel.here if mask is None else mask)
    out = np.full(len(panel), NAN)
    for row, (answers, right, voting) in enumerate(zip(panel.answer, panel.correct, inside, strict=True)):
        if voting.any():
            votes = np.bincount(answers[voting])
            tied = np.flatnonzero(votes == votes.max())
            out[row] = np.mean([right[voting & (answers == answer)].any() for answer in tied])
    return out


def eligible(panel: Panel, request: Request | None = None) -> Bools:
    """Problems on which a selector has something to choose from: two or more rollouts are located."""
    located: Bools = panel.read(request or standard(panel)).located.sum(1) >= 2
    return located
