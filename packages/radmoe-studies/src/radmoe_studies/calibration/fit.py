"""Fits the probability that a pick is right on graded pools: from one similarity, for each kind and number of rollouts.

The similarity is the pick's density, or how much all rollouts of the problem agree before the answer begins: what cross-validation
finds best for a kind. For each number of rollouts the curve is a logistic regression whose slope may not be negative, with a
little ridge. It is measured by cross-validation over problems: a problem that several pools share is in one fold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.evaluation.cache import checksum
from radmoe.evaluation.pools import GradedPool, check_distinct, open_graded
from radmoe.selection.calibration import Calibration
from radmoe.selection.curves import GAIN, Curve, Dense, Fit, closeness
from radmoe.selection.origin import Origin, origin_of
from radmoe.selection.rule import Rule
from radmoe.types import Kind
from radmoe_studies.calibration.picks import EVIDENCE, Graded, Name, Picks, picked, pool_of, task_of

FEWEST = 20  # problems of a kind that a fit needs
# Numbers of rollouts; densities bend at k + 1 = 11.
SIZES = (8, 9, 10, 11, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)
MEASURED = (8, 16, 32, 64)  # the sizes that are measured, and the largest one
DRAWS = 4  # random subsets of each size
RIDGE = 1.0  # the penalty on the squared slope, against a sum of log losses
FOLDS = 5
BINS = 10  # of a calibration error, with as many picks in each
BIN_PICKS = 20  # that a bin should have at least; fewer picks make fewer bins

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Progress = Callable[[int, int], None]


class Forecast(NamedTuple):
    """Probabilities of picks by curves that were fitted without them [n]: one pick of each problem and size.

    `sure` is the calibration's; `base` is the share of right picks among the fitted ones of the same task and size. `outside`
    counts the picks whose similarity lies outside of what was fitted, so that they have no probability.
    """

    kind: Kind
    sizes: Ints
    right: Bools
    problems: tuple[Name, ...]
    sure: Floats
    base: Floats
    outside: int = 0

    def of(self, size: int) -> Forecast:
        """The forecasts for one number of rollouts."""
        own = self.sizes == size
        problems = tuple(name for name, here in zip(self.problems, own, strict=True) if here)
        return Forecast(self.kind, self.sizes[own], self.right[own], problems, self.sure[own], self.base[own])


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A calibration, the forecasts that measure it, and notes on what was left out.

    The forecasts are those of cross-validation, or of pools that it was `checked` on.
    """

    calibration: Calibration
    forecasts: tuple[Forecast, ...]
    notes: tuple[str, ...] = ()
    checked: bool = False

    @property
    def sizes(self) -> list[int]:
        """The numbers of rollouts that were measured."""
        return sorted({int(size) for forecast in self.forecasts for size in forecast.sizes})


def calibrate(
    pools: Sequence[str | Path],
    *,
    check: Sequence[str | Path] = (),
    kind: str | None = None,
    rule: Rule | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    progress: Progress = lambda done, of: None,
) -> Calibrated:
    """Fit a calibration on graded pools of one model, style and sampling, and of picks by one rule.

    `seed` draws the subsets and deals the folds. With pools to `check` it on, the forecasts are those of their picks, by what
    was fitted on the others. Raises InputError where the pools differ in their origin, where a pool is fitted and checked, or
    where no kind has problems enough to fit.

    Cost: a selection for each problem, and DRAWS for each smaller size in SIZES.
    """
    if folds < 2:
        raise InputError(f"cross-validation needs 2 folds or more, got {folds}")
    check_distinct([*pools, *check])
    rule = Rule(preset="paper").but(**(rule or Rule()).to_json())
    fitting, checking = (
        [
            one
            for path in paths
            for one in open_graded(path, kind=kind, rule=Rule(readout=rule.readout), use_cache=False)
        ]
        for paths in (pools, check)
    )
    origin = _one_origin([*fitting, *checking])
    sizes = _sizes(fitting)
    fitted, checked = (sum(int(one.here.sum()) for one in own) for own in (fitting, checking))
    picks = picked(fitting, rule, sizes, DRAWS, seed, lambda done: progress(done, fitted + checked))
    others = picked(checking, rule, sizes, 1, seed, lambda done: progress(fitted + done, fitted + checked))
    fits, forecasts, notes = {}, [], [*picks.notes, *others.notes]
    for own in picks.kinds:
        count = len({pick.problem for pick in picks.kinds[own]})
        if count < FEWEST:
            notes.append(f"{own}: {count} problems with a pick are too few, {FEWEST} are needed: grade more problems")
            continue
        evidence, forecast = _best(picks, own, folds, seed)
        graded = picks.graded(own, evidence)
        fits[own] = fit(graded, located=picks.located[own], measured=measures(forecast), evidence=evidence)
        if not check:
            forecasts.append(forecast)
        elif own in others.kinds:
            forecasts.append(held_out(own, graded, others.graded(own, evidence)))
        if forecasts and forecasts[-1].kind == own and forecasts[-1].outside:
            notes.append(
                f"{own}: {forecasts[-1].outside} picks lie outside of the fitted similarities and have no probability"
            )
        if not fits[own].tells:
            notes.append(
                f"{own}: on problems that were not fitted, these probabilities are no better than giving every pick the share "
                "of right ones in its task: they tell sure picks from others little or not at all"
            )
    if not fits:
        raise InputError(f"nothing to fit: {'; '.join(notes) or 'no problem has a pick'}")
    if not forecasts:
        raise InputError(f"nothing to check on: no pool to check has a pick of {', '.join(fits)}")
    tasks = dict.fromkeys(task_of(one) for one in fitting)
    sums = tuple(checksum(Path(path)) for path in pools)
    calibration = Calibration(replace(origin, task=None), rule, fits, tuple(tasks), sums)
    return Calibrated(calibration, tuple(forecasts), tuple(notes), bool(check))


def _best(picks: Picks, kind: Kind, folds: int, seed: int) -> tuple[str, Forecast]:
    """The candidate whose forecasts of problems that were not fitted are best, with these; the pick's density unless another
    is clearly better."""
    found = []
    for evidence in EVIDENCE:
        graded = picks.graded(kind, evidence)
        if not np.isnan(graded.similarity).any():
            forecast = cross_validated(kind, graded, folds=folds, seed=seed)
            found.append((measures(forecast)["brier"] + (GAIN if evidence else 0.0), evidence, forecast))
    return min(found, key=lambda one: one[0])[1:]


def _one_origin(pools: Sequence[GradedPool]) -> Origin:
    """The origin that all pools share. Raises an InputError that names the first difference where they do not."""
    first = origin_of(pool_of(pools[0]))
    for one in pools[1:]:
        if difference := first.difference(origin_of(pool_of(one))):
            raise InputError(
                "a calibration is for one checkpoint, style and way of sampling, and the pools differ: by "
                f"{pools[0].path} {difference} ({one.path}): give those of one"
            )
    return first


def _sizes(pools: Sequence[GradedPool]) -> list[int]:
    """The numbers of rollouts to fit: the usual number of the pools, and the smaller ones in SIZES."""
    most = int(np.median(np.concatenate([one.here.sum(1) for one in pools])))
    return [*(size for size in SIZES if size < most), most]


def fit(graded: Graded, *, located: float = 1.0, measured: dict[str, float] | None = None, evidence: str = "") -> Fit:
    """The curves of one kind, fitted on all its picks."""
    sizes = [size for size in np.unique(graded.sizes).tolist() if _problems(graded, size) >= FEWEST]
    curves = tuple(_curve(graded.where(graded.sizes == size)) for size in sizes or [int(graded.sizes.max())])
    return Fit(curves, len(set(graded.problems)), located, measured or {}, evidence)


def _problems(graded: Graded, size: int) -> int:
    return len(set(graded.where(graded.sizes == size).problems))


def _curve(graded: Graded) -> Curve:
    """The curve of picks of one size. Every problem counts the same, whatever the number of its draws."""
    _, inverse, counts = np.unique(
        ["\0".join(name) for name in graded.problems], return_inverse=True, return_counts=True
    )
    close = np.array([closeness(own) for own in graded.similarity.tolist()])
    model = logistic(close, graded.right, 1.0 / counts[inverse])
    first = graded.where(graded.draws == graded.draws.min())
    least = math.floor(1e6 * float(np.quantile(first.similarity, 2 / 3, method="higher"))) / 1e6
    dense = first.similarity >= least
    return Curve(
        int(graded.sizes[0]),
        round(model.intercept, 6),
        round(model.slope, 6),
        round(model.mean, 6),
        round(model.scale, 6),
        low=math.floor(1e6 * float(close.min())) / 1e6,  # no fitted pick lies outside
        high=math.ceil(1e6 * float(close.max())) / 1e6,
        dense=Dense(least, int(dense.sum()), int((dense & ~first.right).sum())),
    )


class Logistic(NamedTuple):
    """A logistic regression on a column that is shifted by its mean and divided by its scale."""

    intercept: float
    slope: float
    mean: float
    scale: float


def logistic(x: Floats, y: Bools, weights: Floats | None = None) -> Logistic:
    """A logistic regression of y [n] on x [n] whose slope is not negative. A constant column has slope 0.

    Besides the rows there are one right and one wrong of mean x (Laplace's rule), so that picks that are all right have no
    probability of 1.
    """
    from scipy.optimize import minimize

    w = np.ones(len(x)) if weights is None else weights
    mean = float(np.average(x, weights=w))
    scale = float(np.sqrt(np.average((x - mean) ** 2, weights=w)))
    constant = scale < 1e-9
    scale = 1.0 if constant else scale
    z = np.concatenate([np.zeros(len(x)) if constant else (x - mean) / scale, [0.0, 0.0]])
    signs, w = np.concatenate([np.where(y, 1.0, -1.0), [1.0, -1.0]]), np.concatenate([w, [1.0, 1.0]])

    def loss(parameters: Floats) -> tuple[float, Floats]:
        intercept, slope = parameters
        margins = signs * (intercept + slope * z)
        pull = -w * signs / (1.0 + np.exp(np.clip(margins, -500, 500)))
        gradient = np.array([pull.sum(), z @ pull + RIDGE * slope])
        return float((w * np.logaddexp(0.0, -margins)).sum() + RIDGE / 2 * slope**2), gradient

    found = minimize(loss, np.zeros(2), jac=True, bounds=[(None, None), (0.0, None)], method="L-BFGS-B")
    return Logistic(float(found.x[0]), max(float(found.x[1]), 0.0), mean, scale)


def cross_validated(kind: Kind, graded: Graded, *, folds: int = FOLDS, seed: int = 0) -> Forecast:
    """The probability of each pick by curves that were fitted on the problems of the other folds."""
    numbers = {problem: i for i, problem in enumerate(dict.fromkeys(graded.problems))}
    dealt = np.random.default_rng(seed).permutation(len(numbers)) % min(folds, len(numbers))
    fold = np.array([dealt[numbers[problem]] for problem in graded.problems])
    parts = [
        held_out(kind, graded.where(fold != number), graded.where(fold == number))
        for number in np.unique(fold).tolist()
    ]
    columns = [np.concatenate(own) for own in zip(*((p.sizes, p.right, p.sure, p.base) for p in parts), strict=True)]
    sizes, right, sure, base = columns
    problems = tuple(name for p in parts for name in p.problems)
    return Forecast(kind, sizes, right, problems, sure, base, sum(p.outside for p in parts))


def held_out(kind: Kind, graded: Graded, others: Graded) -> Forecast:
    """Fit curves on `graded` and give the probability of each pick of `others` by them."""
    fitted = fit(graded)
    low, high = fitted.rollouts
    asked = np.isin(others.sizes, [*MEASURED, high]) & (others.sizes >= low) & (others.sizes <= high)
    others = others.where(asked & (others.draws == 0))
    pairs = zip(others.sizes.tolist(), others.similarity.tolist(), strict=True)
    inside = np.array([not fitted.outside(size, 1.0, own) for size, own in pairs], bool)
    others = others.where(inside)
    sure = [fitted.probability(int(n), float(x)) for n, x in zip(others.sizes, others.similarity, strict=True)]
    shares = _shares(graded)
    base = [
        shares.get((name.task, n), shares["", n])
        for name, n in zip(others.problems, others.sizes.tolist(), strict=True)
    ]
    return Forecast(
        kind, others.sizes, others.right, others.problems, np.array(sure), np.array(base), int((~inside).sum())
    )


def _shares(graded: Graded) -> dict[tuple[str, int], float]:
    """The share of right picks by task and size; under no task, by size alone."""
    marks: dict[tuple[str, int], list[bool]] = {}
    for name, size, right in zip(graded.problems, graded.sizes.tolist(), graded.right.tolist(), strict=True):
        for task in (name.task, ""):
            marks.setdefault((task, size), []).append(right)
    return {key: float(np.mean(own)) for key, own in marks.items()}


def measures(forecast: Forecast) -> dict[str, float]:
    """What cross-validation says of a kind, averaged over the measured sizes: errors, by chance as well, and Brier scores."""
    by_size = [forecast.of(size) for size in np.unique(forecast.sizes).tolist()]
    rows = [
        {
            "error": calibration_error(own.sure, own.right),
            "error_by_chance": error_by_chance(own.sure),
            "brier": float(brier(own.sure, own.right).mean()),
            "brier_base": float(brier(own.base, own.right).mean()),
        }
        for own in by_size
    ]
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def brier(probability: Floats, right: Bools) -> Floats:
    """The squared error of each forecast [n]."""
    return np.asarray((probability - right) ** 2)


def bins(probability: Floats) -> list[NDArray[np.int64]]:
    """The picks in bins of rising probability, with as many in each: 2 to BINS, of BIN_PICKS or more where there are."""
    count = int(np.clip(len(probability) // BIN_PICKS, 2, BINS))
    return np.array_split(np.argsort(probability, kind="stable"), count)


def calibration_error(probability: Floats, right: Bools) -> float:
    """The mean, over picks, of the gap between a bin's mean probability and its share of right picks."""
    gaps = [abs(float(probability[own].mean() - right[own].mean())) * len(own) for own in bins(probability) if len(own)]
    return sum(gaps) / len(probability)


def error_by_chance(probability: Floats, *, draws: int = 200, seed: int = 0) -> float:
    """The calibration error that probabilities without any fault would show at this size, on average."""
    rng = np.random.default_rng(seed)
    return float(
        np.mean([calibration_error(probability, rng.random(len(probability)) < probability) for _ in range(draws)])
    )
