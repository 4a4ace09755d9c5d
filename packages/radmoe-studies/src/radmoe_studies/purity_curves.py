"""Purity and accuracy of every problem as rollouts are added, or as wider windows are read, and the correlation of the two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from radmoe_studies.base import Options
from radmoe_studies.basins import densest, purities
from radmoe_studies.evidence import Bools, Floats, Ints, Panel, Request
from radmoe_studies.picks import rate
from radmoe_studies.quantities import pooled
from radmoe_studies.resample import Resampled

SIZES = (4, 6, 8, 12, 16, 24, 32, 48, 64)  # t
WIDTHS = (16, 32, 64, 128)  # W = 16 t
REQUESTS = tuple(Request(f"delimiter@{width}") for width in WIDTHS)
ORDERS = 10  # random orders of a problem's rollouts, of which sub-cohorts are the first t


class PurityCurve(NamedTuple):
    """Purity and accuracy of each problem [P, T] at every step of t or W; NaN in both where a step has no purity."""

    purity: Floats
    accuracy: Floats


def cohort(panel: Panel) -> Bools:
    return panel.answered & panel.read(REQUESTS[0]).located


def with_rollouts(panel: Panel, sizes: Sequence[int], seed: int) -> PurityCurve:
    """Means over sub-cohorts; a problem has numbers only if it has the largest size and a purity at every size."""
    inside, S, k = cohort(panel), panel.read(REQUESTS[0]).values, panel.setting.k
    whole = inside.sum(1) >= max(sizes)
    rng = np.random.default_rng(seed)
    purity, accuracy = (np.full((ORDERS, len(panel), len(sizes)), np.nan) for _ in range(2))
    for draw in range(ORDERS):
        order = np.argsort(np.where(inside, rng.random(inside.shape), 2.0), axis=1)
        for step, size in enumerate(sizes):
            if size == panel.n and draw:
                purity[draw, :, step], accuracy[draw, :, step] = purity[0, :, step], accuracy[0, :, step]
                continue
            part = np.sort(order[:, :size], axis=1)
            own = np.take_along_axis(inside, part, 1)
            sub = np.take_along_axis(np.take_along_axis(S, part[:, :, None], 1), part[:, None, :], 2)
            purity[draw, :, step] = purities(sub, own, np.take_along_axis(panel.answer, part, 1))
            accuracy[draw, :, step] = _hits(np.take_along_axis(panel.correct, part, 1), densest(sub, own, k))
    known = np.isfinite(purity)
    means = np.where(known, purity, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    return _balanced(np.where(known.any(0), means, np.nan), accuracy.mean(0), whole)


def with_windows(panel: Panel) -> PurityCurve:
    """Purity and accuracy with all rollouts, at every width."""
    inside, k = cohort(panel), panel.setting.k
    inside = inside & np.all([panel.read(request).located for request in REQUESTS], axis=0)
    columns = []
    for request in REQUESTS:
        S = panel.read(request).values
        columns.append((purities(S, inside, panel.answer), _hits(panel.correct, densest(S, inside, k))))
    purity, accuracy = (np.column_stack(own) for own in zip(*columns, strict=True))
    return _balanced(purity, accuracy, np.ones(len(panel), bool))


def _hits(correct: Bools, picks: Ints) -> Floats:
    right = correct[np.arange(len(correct)), np.maximum(picks, 0)].astype(np.float64)
    return np.where(picks >= 0, right, np.nan)


def _balanced(purity: Floats, accuracy: Floats, whole: Bools) -> PurityCurve:
    keep = (whole & np.isfinite(purity).all(1) & np.isfinite(accuracy).all(1))[:, None]
    return PurityCurve(np.where(keep, purity, np.nan), np.where(keep, accuracy, np.nan))


def sizes_of(panels: Sequence[Panel]) -> tuple[int, ...]:
    """The sizes that at least half of the problems reach."""
    counts = np.concatenate([cohort(panel).sum(1) for panel in panels])
    return tuple(size for size in SIZES if np.mean(counts >= size) >= 0.5)


def rho(values: Floats) -> Floats:
    """Spearman's rho of each row [R, T] with the order of its columns; 0 where a row is constant."""
    ranks = rankdata(np.round(values, 9), axis=1) - (values.shape[1] + 1) / 2
    steps = np.arange(values.shape[1]) - (values.shape[1] - 1) / 2
    norm = np.linalg.norm(ranks, axis=1) * np.linalg.norm(steps)
    made: Floats = np.where(np.isfinite(values).all(1), (ranks @ steps) / np.where(norm > 0, norm, 1.0), np.nan)
    return made


class Result(NamedTuple):
    """The pooled curve. Columns of means are purity at each step, then accuracy.

    The correlations across problems at each step, plain and given the share of right rollouts, are [1 + R, T]: the
    estimate, then its draws; NaN where purity or accuracy is the same on all problems.
    """

    means: Resampled
    steps: int
    plain: Floats
    given_rate: Floats

    def rho(self, of: int) -> Floats:
        """rho of purity (0) or accuracy (1): the estimate, then its draws."""
        own = slice(of * self.steps, (of + 1) * self.steps)
        return rho(np.vstack([self.means.estimate[own], self.means.draws[:, own]]))

    @property
    def coupling(self) -> Floats:
        """The mean over steps of the correlation given the rate: the estimate, then its draws."""
        known = np.isfinite(self.given_rate) & np.isfinite(self.given_rate[:1])
        sums = np.where(known, self.given_rate, 0.0).sum(1)
        return np.where(known.any(1), sums / np.maximum(known.sum(1), 1), np.nan)


def pool_curves(panels: list[Panel], curves: dict[Panel, PurityCurve], options: Options) -> Result | None:
    """The curves of several panels together; None where no problem has one."""
    means = pooled(panels, {panel: np.hstack(curves[panel]) for panel in panels}, options)
    if means is None:
        return None
    moments = pooled(panels, {panel: _moments(panel, panels, curves) for panel in panels}, options)
    assert moments is not None
    every = np.split(np.vstack([moments.estimate, moments.draws]), 9, axis=1)
    xy, xz, yz = (_correlation(every, i, j) for i, j in ((0, 1), (0, 2), (1, 2)))
    z = np.where(np.isfinite(xz) & np.isfinite(yz), 1.0, 0.0)  # a rate that is the same everywhere explains nothing
    xz, yz = np.where(z > 0, xz, 0.0), np.where(z > 0, yz, 0.0)
    left = np.sqrt(np.maximum(1 - xz**2, 0) * np.maximum(1 - yz**2, 0))
    partial = np.where(left > 1e-6, (xy - xz * yz) / np.maximum(left, 1e-6), np.nan)
    return Result(means, curves[panels[0]].purity.shape[1], xy, partial)


def _correlation(moments: list[Floats], i: int, j: int) -> Floats:
    """Pearson's r from the means of three variables, their squares and their products."""
    squares = {(0, 0): 3, (1, 1): 4, (2, 2): 5, (0, 1): 6, (0, 2): 7, (1, 2): 8}
    spread = [np.maximum(moments[squares[of, of]] - moments[of] ** 2, 0.0) for of in (i, j)]
    norm = np.sqrt(spread[0] * spread[1])
    shared = moments[squares[i, j]] - moments[i] * moments[j]
    return np.where(norm > 1e-9, shared / np.maximum(norm, 1e-9), np.nan)


def _moments(panel: Panel, panels: list[Panel], curves: dict[Panel, PurityCurve]) -> Floats:
    """Purity, accuracy and the share of right rollouts less the mean of their configuration, their squares, and their
    products [P, 9 T]."""
    own = [other for other in panels if other.configuration == panel.configuration]
    x, y, z = (
        values - _mean(np.concatenate(every))
        for values, every in zip(
            _three(panel, curves), zip(*(_three(other, curves) for other in own), strict=True), strict=True
        )
    )
    return np.hstack([x, y, z, x * x, y * y, z * z, x * y, x * z, y * z])


def _three(panel: Panel, curves: dict[Panel, PurityCurve]) -> tuple[Floats, Floats, Floats]:
    """Purity, accuracy and the share of right rollouts [P, T] each."""
    purity, accuracy = curves[panel]
    share = np.where(np.isfinite(purity), rate(panel, cohort(panel))[:, None], np.nan)
    return purity, accuracy, share


def _mean(values: Floats) -> Floats:
    known = np.isfinite(values)
    mean: Floats = np.where(known, values, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    return mean
