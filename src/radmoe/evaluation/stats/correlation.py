"""Pearson, partial and Spearman correlation. Data for which the coefficient is undefined are refused."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from radmoe.errors import InputError
from radmoe.evaluation.stats.checks import Floats, members, numbers, same_length

EXACT = 8  # up to this many pairs, Spearman's p comes from all n! orders
Missing = Literal["raise", "drop"]


@dataclass(frozen=True, slots=True)
class Correlation:
    """A coefficient, its two-sided p, the number of pairs and the degrees of freedom of the t test."""

    r: float
    p: float
    n: int
    df: int


def partial_correlation(
    x: ArrayLike,
    y: ArrayLike,
    control: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    nan: Missing = "raise",
) -> Correlation:
    """The Pearson correlation of the residuals that a linear fit on `control` ([n] or [n, c]) leaves of x and of y.

    With `groups` (one label per pair) everything is centred within its group first, which the paper calls
    "within-model demeaned". With neither it is the plain Pearson correlation. Each control, and each group after the
    first, costs a degree of freedom.
    """
    first, second = _pairs(x, y)
    controls = np.empty((len(first), 0)) if control is None else numbers(control, "control", ndim=None, nan=True)
    if controls.ndim not in (1, 2):
        raise InputError(f"control must be [n] or [n, c], got shape {controls.shape}")
    same_length(controls, first, "control and x")
    _, labels = members(np.zeros(len(first)) if groups is None else groups, "groups")
    same_length(labels, first, "groups and x")
    data = np.column_stack([first, second, controls])
    whole = _complete(data, nan)
    data, labels = data[whole], labels[whole]
    names, member = np.unique(labels, return_inverse=True)
    means = np.column_stack([np.bincount(member, column) for column in data.T]) / np.bincount(member)[:, None]
    columns = data - means[member]
    norms = np.linalg.norm(columns, axis=0)
    norms[norms <= 1e-13 * np.linalg.norm(data, axis=0)] = np.inf  # the column is constant but for rounding
    columns /= norms
    rest, rank = columns[:, :2], 0
    if columns.shape[1] > 2:
        fit, _, fit_rank, _ = np.linalg.lstsq(columns[:, 2:], rest, rcond=1e-10)
        rest, rank = rest - columns[:, 2:] @ fit, int(fit_rank)
    for name, left in zip("xy", rest.T, strict=True):
        if np.linalg.norm(left) <= 1e-10:
            raise InputError(f"{name} is constant, or determined by the controls or groups: no correlation is defined")
    return _test(rest[:, 0], rest[:, 1], len(data) - len(names) - rank - 1)


def spearman(x: ArrayLike, y: ArrayLike, *, nan: Missing = "raise") -> Correlation:
    """Spearman's rank correlation. Ties share their mean rank.

    Up to 8 pairs p is exact, over all orders of y; above that it comes from Student's t.
    """
    first, second = _pairs(x, y)
    whole = _complete(np.column_stack([first, second]), nan)
    a, b = _ranks(first[whole]), _ranks(second[whole])
    for name, ranks in (("x", a), ("y", b)):
        if np.all(ranks == ranks[:1]):
            raise InputError(f"{name} is constant or has fewer than 2 values: no correlation is defined")
    a, b = a - a.mean(), b - b.mean()
    n = len(a)
    if n > EXACT:
        return _test(a, b, n - 2)
    as_extreme = np.abs(b[_orders(n)] @ a) >= abs(float(a @ b)) - 1e-9
    return Correlation(_cosine(a, b), float(as_extreme.mean()), n, n - 2)


def _pairs(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    first, second = numbers(x, "x", nan=True), numbers(y, "y", nan=True)
    same_length(first, second, "x and y")
    return first, second


def _complete(data: Floats, nan: Missing) -> NDArray[np.bool_]:
    """A mask of the rows without NaN. Raises an InputError if there are none, or, unless nan="drop", if some have it."""
    if nan not in ("raise", "drop"):
        raise InputError(f"unknown nan={nan!r}: use raise or drop")
    whole = ~np.asarray(np.isnan(data).any(axis=1))
    if nan == "raise" and not whole.all():
        raise InputError(f"{int((~whole).sum())} of {len(whole)} pairs contain NaN: drop them, or pass nan='drop'")
    if not whole.any():
        raise InputError(f"none of {len(whole)} pairs is complete: a correlation needs at least 3")
    return whole


def _ranks(values: Floats) -> Floats:
    """Ranks from 1; ties share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place])


def _cosine(a: Floats, b: Floats) -> float:
    a, b = a / np.abs(a).max(), b / np.abs(b).max()  # so that no square underflows
    r = float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))
    return max(-1.0, min(1.0, r))


def _test(a: Floats, b: Floats, df: int) -> Correlation:
    """The correlation of two centred columns, and its t test."""
    if df < 1:
        raise InputError(f"{len(a)} pairs leave {df} degrees of freedom: a correlation needs at least 1")
    r = _cosine(a, b)
    t = math.inf if abs(r) == 1 else abs(r) * math.sqrt(df / (1 - r * r))
    return Correlation(r, float(2 * stdtr(df, -t)), len(a), df)


@cache
def _orders(n: int) -> NDArray[np.intp]:
    return np.array(list(itertools.permutations(range(n))))
