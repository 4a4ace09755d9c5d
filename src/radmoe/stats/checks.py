"""What every statistic demands of its input, said once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import InputError

Floats = NDArray[np.float64]


def numbers(values: ArrayLike, name: str, *, ndim: int = 1, nan: bool = False) -> Floats:
    """A finite float array of `ndim` axes; with `nan`, NaN may stand for a missing value."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers, with rows of one length") from None
    if array.ndim != ndim:
        raise InputError(f"{name} must have {ndim} axis(es), got shape {array.shape}")
    if np.isinf(array).any() or (not nan and np.isnan(array).any()):
        raise InputError(f"{name} contains NaN or infinity: drop or fill those entries first")
    return array


def rates(values: ArrayLike, name: str = "rates") -> Floats:
    """Probabilities, at least one."""
    array = numbers(values, name)
    if not array.size:
        raise InputError(f"{name} is empty: at least one problem is needed")
    within(array, name)
    return array


def within(array: Floats, name: str) -> None:
    """Every entry lies in [0, 1]."""
    if array.size and not (array.min() >= 0 and array.max() <= 1):
        wrong = array[(array < 0) | (array > 1)][0]
        raise InputError(f"{name} must lie in [0, 1], got {wrong:g}: give fractions, not percent")


def binary(values: ArrayLike, name: str, *, ndim: int = 1) -> NDArray[np.bool_]:
    """Outcomes that are 0 or 1."""
    array = numbers(values, name, ndim=ndim)
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        raise InputError(f"{name} must be 0 or 1 (wrong or correct), got {array[wrong][0]:g}")
    return array.astype(bool)


def counts(values: Any, name: str) -> Floats:
    """Whole numbers that are not negative, of any shape."""
    array = np.asarray(values)
    array = numbers(array, name, ndim=array.ndim)
    wrong = (array < 0) | (array != np.floor(array))
    if wrong.any():
        raise InputError(f"{name} must be counts (0, 1, 2, ...), got {array[wrong][0]:g}")
    return array


def same_length(x: NDArray[Any], y: NDArray[Any], names: str) -> None:
    if len(x) != len(y):
        raise InputError(f"{names} must be paired, one entry per problem in the same order: got {len(x)} and {len(y)}")


def share(value: float, name: str) -> float:
    """A number strictly between 0 and 1."""
    if not 0 < value < 1:
        raise InputError(f"{name} must lie strictly between 0 and 1, got {value:g}")
    return value
