"""Fits how sure a pick is, on graded pools: one small monotone model per kind, measured on problems it has not seen.

Of each graded problem there is one pick, its features (`radmoe.certainty`) and whether it is right. The model is a
logistic regression whose weights may not be negative, with a little ridge on standardised features. It is measured by
cross-validation over problems: a problem that several pools share is in one fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.certainty import FEATURES, Calibration, Dense, Fit, features
from radmoe.cohort import Cohort, open_cohort
from radmoe.errors import InputError
from radmoe.evaluation import naming
from radmoe.evaluation.cache import checksum
from radmoe.evaluation.measure import check_distinct
from radmoe.pool.reader import manifest
from radmoe.selector import select
from radmoe.types import Kind

FEWEST, FEWEST_EACH = 20, 3  # picks of a kind, and right and wrong ones among them, that a fit needs
RIDGE = 3.0  # the penalty on squared weights, against a sum of log losses
GAIN = 0.001  # by which the Brier score must be below that of the base rate, or a calibration says nothing
FOLDS = 5
BINS = 10  # of a calibration error, with as many picks in each
BIN_PICKS = 20  # that a bin should have at least; fewer picks make fewer bins

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Progress = Callable[[int, int], None]


class Graded(NamedTuple):
    """The picks of one kind: features [n, FEATURES], who is right [n], and the problem of each."""

    values: Floats
    right: Bools
    problems: tuple[tuple[str, str], ...]


class Forecast(NamedTuple):
    """Probabilities of picks by models that were fitted without them [n], in the order of the picks.

    `sure` is the calibration's, `share` that of a model of the basin's share alone, and `base` the share of right picks
    among the others.
    """

    kind: Kind
    right: Bools
    problems: tuple[tuple[str, str], ...]
    sure: Floats
    share: Floats
    base: Floats


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A calibration, the forecasts that measure it, and notes on what was left out.

    The forecasts are those of cross-validation, or of pools that it was `checked` on.
    """

    calibration: Calibration
    forecasts: tuple[Forecast, ...]
    notes: tuple[str, ...] = ()
    checked: bool = False


@dataclass(eq=False)
class _Picks:
    """The picks of graded pools by kind, and what was seen on the way."""

    kinds: dict[Kind, list[tuple[Floats, bool, tuple[str, str]]]] = field(default_factory=dict)
    models: dict[str, None] = field(default_factory=dict)
    checkpoints: set[str | None] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def graded(self, kind: Kind) -> Graded:
        rows = self.kinds[kind]
        return Graded(np.array([r[0] for r in rows]), np.array([r[1] for r in rows]), tuple(r[2] for r in rows))


def calibrate(
    pools: Sequence[str | Path],
    *,
    check: Sequence[str | Path] = (),
    kind: str | None = None,
    options: dict[str, Any] | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    progress: Progress = lambda done, of: None,
) -> Calibrated:
    """Fit a calibration on graded pools of one model. `options` are those of `select`, `seed` deals the folds.

    With pools to `check` it on, the forecasts are those of their picks, by what was fitted on the others. Raises InputError
    where the pools are of several models, where a pool is fitted and checked, or where no kind has picks enough to fit.
    """
    if folds < 2:
        raise InputError(f"cross-validation needs 2 folds or more, got {folds}")
    check_distinct([*pools, *check])
    given = {name: value for name, value in (options or {}).items() if value is not None}
    cohorts = [(Path(path), open_cohort(path, kind=kind, readout=given.get("readout"))) for path in (*pools, *check)]
    total = sum(len(cohort) for _, cohort in cohorts)
    picks = _picked(cohorts[: len(pools)], given, lambda done: progress(done, total))
    fitted = sum(len(cohort) for _, cohort in cohorts[: len(pools)])
    others = _picked(cohorts[len(pools) :], given, lambda done: progress(fitted + done, total))
    models, checkpoints = picks.models | others.models, picks.checkpoints | others.checkpoints
    if len(models) > 1 or len(checkpoints - {None}) > 1:
        raise InputError(f"a calibration is for one model, the pools are of {_several(models, checkpoints)}")
    fits, forecasts, notes = {}, [], [*picks.notes, *others.notes]
    for own in picks.kinds:
        graded = picks.graded(own)
        if reason := _too_few(graded):
            notes.append(f"{own}: {reason}")
            continue
        forecast = cross_validated(own, graded, folds=folds, seed=seed)
        fits[own] = fit(graded, measured=measures(forecast))
        if not check:
            forecasts.append(forecast)
        elif own in others.kinds:
            forecasts.append(held_out(own, graded, others.graded(own)))
        if fits[own].measured["brier"] > fits[own].measured["brier_base"] - GAIN:
            notes.append(
                f"{own}: on problems that were not fitted, these probabilities are no better than saying "
                f"{graded.right.mean():.0%} of every pick: do not rely on them; more graded problems may help"
            )
    if not fits:
        raise InputError(f"nothing to fit: {'; '.join(notes) or 'no problem has a pick'}")
    if not forecasts:
        raise InputError(f"nothing to check on: no pool to check has a pick of {', '.join(fits)}")
    (model,) = models
    weights = next(iter(checkpoints)) if len(checkpoints) == 1 else None
    sums = tuple(checksum(Path(path)) for path in pools)
    return Calibrated(Calibration(model, weights, given, fits, sums), tuple(forecasts), tuple(notes), bool(check))


def _picked(cohorts: Sequence[tuple[Path, Cohort]], given: dict[str, Any], progress: Callable[[int], None]) -> _Picks:
    """Select in every problem of graded pools."""
    picks, done, abstained = _Picks(), 0, 0
    for path, cohort in cohorts:
        picks.models[cohort.pool.model] = None
        picks.checkpoints |= {where.get("checkpoint") for where in cohort.pool.provenance.values()}
        picks.notes += [f"{path}: {note}" for note in (*cohort.notes, cohort.inferred) if note]
        dataset = naming.dataset(manifest(path)["run"], path)
        for problem in cohort:
            own = cohort.kinds[problem.problem_id]
            selection = select(replace(problem.group, kind=own), **given)
            done += 1
            progress(done)
            if selection.index is None:
                abstained += 1
                continue
            right = bool(problem.correct[selection.index])
            picks.kinds.setdefault(own, []).append((features(selection), right, (dataset, problem.problem_id)))
    if abstained:
        picks.notes.append(f"{abstained} of {done} problems have no pick and are left out")
    return picks


def _several(models: dict[str, None], checkpoints: set[str | None]) -> str:
    if len(models) > 1:
        return f"{', '.join(models)}: give those of one"
    known = sorted(checkpoint[:12] for checkpoint in checkpoints if checkpoint is not None)
    return f"{next(iter(models))} with different weights ({', '.join(known)}): give those of one"


def _too_few(graded: Graded) -> str:
    """Why these picks cannot be fitted; empty where they can."""
    n, right = len(graded.right), int(graded.right.sum())
    if n < FEWEST:
        return f"{n} picks are too few, {FEWEST} are needed: grade more problems"
    if min(right, n - right) < FEWEST_EACH:
        return f"{right} of {n} picks are right, and a fit needs {FEWEST_EACH} right and {FEWEST_EACH} wrong ones"
    return ""


def fit(graded: Graded, *, measured: dict[str, float] | None = None) -> Fit:
    """The model of one kind, fitted on all its picks."""
    model = logistic(graded.values, graded.right)
    density = graded.values[:, 0]
    least = float(np.quantile(density, 2 / 3, method="higher"))
    dense = density >= least
    counts = np.rint(2 ** graded.values[:, FEATURES.index("rollouts")]).astype(int)
    return Fit(
        model.intercept,
        tuple(model.weights.tolist()),
        tuple(model.means.tolist()),
        tuple(model.scales.tolist()),
        picks=len(graded.right),
        right=int(graded.right.sum()),
        rollouts=(int(counts.min()), int(counts.max())),
        dense=Dense(least, int(dense.sum()), int((dense & ~graded.right).sum())),
        measured=measured or {},
    )


class Logistic(NamedTuple):
    """A logistic regression on shifted and scaled columns."""

    intercept: float
    weights: Floats
    means: Floats
    scales: Floats

    def __call__(self, X: Floats) -> Floats:
        total = self.intercept + ((X - self.means) / self.scales) @ self.weights
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(total, -500, 500))))


def logistic(X: Floats, y: Bools) -> Logistic:
    """A logistic regression of y [n] on X [n, C] whose weights are not negative. A constant column has weight 0."""
    from scipy.optimize import minimize

    means, scales = X.mean(0), X.std(0)
    constant = scales < 1e-12
    scales = np.where(constant, 1.0, scales)
    Z = np.where(constant, 0.0, (X - means) / scales)
    signs = np.where(y, 1.0, -1.0)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        margins = signs * (parameters[0] + Z @ parameters[1:])
        pull = -signs / (1.0 + np.exp(np.clip(margins, -500, 500)))
        gradient = np.concatenate(([pull.sum()], Z.T @ pull + RIDGE * parameters[1:]))
        return float(np.logaddexp(0.0, -margins).sum() + RIDGE / 2 * (parameters[1:] ** 2).sum()), gradient

    bounds = [(None, None)] + [(0.0, None)] * X.shape[1]
    found = minimize(loss, np.zeros(X.shape[1] + 1), jac=True, bounds=bounds, method="L-BFGS-B")
    return Logistic(float(found.x[0]), np.maximum(found.x[1:], 0.0), means, scales)


def cross_validated(kind: Kind, graded: Graded, *, folds: int = FOLDS, seed: int = 0) -> Forecast:
    """The probability of each pick by models that were fitted on the problems of the other folds."""
    numbers = {problem: i for i, problem in enumerate(dict.fromkeys(graded.problems))}
    dealt = np.random.default_rng(seed).permutation(len(numbers)) % min(folds, len(numbers))
    fold = np.array([dealt[numbers[problem]] for problem in graded.problems])
    sure, share, base = (np.empty(len(fold)) for _ in range(3))
    column = [FEATURES.index("share")]
    for number in np.unique(fold):
        test, rest = fold == number, fold != number
        X, y = graded.values[rest], graded.right[rest]
        sure[test] = logistic(X, y)(graded.values[test])
        share[test] = logistic(X[:, column], y)(graded.values[test][:, column])
        base[test] = y.mean()
    return Forecast(kind, graded.right, graded.problems, sure, share, base)


def held_out(kind: Kind, graded: Graded, others: Graded) -> Forecast:
    """The probability of other picks by models that were fitted on these."""
    X, y, Z = graded.values, graded.right, others.values
    column = [FEATURES.index("share")]
    sure, share = logistic(X, y)(Z), logistic(X[:, column], y)(Z[:, column])
    return Forecast(kind, others.right, others.problems, sure, share, np.full(len(Z), y.mean()))


def measures(forecast: Forecast) -> dict[str, float]:
    """What cross-validation says of a calibration: its error, what chance alone would show, and Brier scores."""
    return {
        "error": calibration_error(forecast.sure, forecast.right),
        "error_by_chance": error_by_chance(forecast.sure),
        "brier": float(brier(forecast.sure, forecast.right).mean()),
        "brier_share": float(brier(forecast.share, forecast.right).mean()),
        "brier_base": float(brier(forecast.base, forecast.right).mean()),
    }


def brier(probability: Floats, right: Bools) -> Floats:
    """The squared error of each forecast [n]."""
    return np.asarray((probability - right) ** 2)


def bins(probability: Floats) -> list[NDArray[np.int64]]:
    """The picks in bins of rising probability, with as many in each: 2 to BINS, of BIN_PICKS or more where there are."""
    count = int(np.clip(len(probability) // BIN_PICKS, 2, BINS))
    return np.array_split(np.argsort(probability, kind="stable"), count)


def calibration_error(probability: Floats, right: Bools) -> float:
    """The mean, over picks, of the gap between a bin's mean probability and its share of right picks."""
    gaps = [abs(float(probability[own].mean() - right[own].mean())) * len(own) for own in bins(probability)]
    return sum(gaps) / len(probability)


def error_by_chance(probability: Floats, *, draws: int = 200, seed: int = 0) -> float:
    """The calibration error that probabilities without any fault would show at this size, on average."""
    rng = np.random.default_rng(seed)
    return float(
        np.mean([calibration_error(probability, rng.random(len(probability)) < probability) for _ in range(draws)])
    )
