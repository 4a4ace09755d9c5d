"""The checks that all statistics make of their input. Each returns the checked array or raises an InputError."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import InputError

Floats = NDArray[np.float64]


def numbers(values: ArrayLike, name: str, *, ndim: int | None = 1, nan: bool = False) -> Floats:
    """A finite float array of `ndim` axes (None: any); with `nan`, NaN may stand for a missing value."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers, with rows of one length") from None
    if ndim is not None and array.ndim != ndim:
        raise InputError(f"{name} must be {ndim}-dimensional, got shape {array.shape}")
    if np.isinf(array).any() or (not nan and np.isnan(array).any()):
        raise InputError(f"{name} contains NaN or infinity: drop or fill those entries first")
    return array


def probabilities(values: ArrayLike, name: str) -> Floats:
    """One probability per problem, of at least one problem."""
    array = numbers(values, name)
    if not array.size:
        raise InputError(f"{name} is empty: at least one problem is needed")
    return within(array, name)


def within(array: Floats, name: str) -> Floats:
    """An array whose entries all lie in [0, 1]."""
    wrong = (array < 0) | (array > 1)
    if wrong.any():
        raise InputError(f"{name} must lie in [0, 1], got {array[wrong][0]:g}: give fractions, not percent")
    return array


def binary(values: ArrayLike, name: str, *, ndim: int = 1) -> NDArray[np.bool_]:
    """Outcomes that are 0 or 1."""
    array = numbers(values, name, ndim=ndim)
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        raise InputError(f"{name} must be 0 or 1 (wrong or correct), got {array[wrong][0]:g}")
    return array.astype(bool)


def counts(values: ArrayLike, name: str) -> Floats:
    """Whole numbers that are not negative, of any shape."""
    array = numbers(values, name, ndim=None)
    wrong = (array < 0) | (array != np.floor(array))
    if wrong.any():
        raise InputError(f"{name} must be counts (0, 1, 2, ...), got {array[wrong][0]:g}")
    return array


def members(labels: ArrayLike, name: str) -> tuple[int, NDArray[np.intp]]:
    """How many different labels there are, and for each entry the number of its label among them."""
    array = np.asarray(labels)
    if array.ndim != 1:
        raise InputError(f"{name} must be one label per entry, got shape {array.shape}")
    if any(label is None or label != label for label in array.tolist()):
        raise InputError(f"{name} contains None or NaN: every entry needs a label")
    try:
        names, member = np.unique(array, return_inverse=True)
    except TypeError:
        raise InputError(f"{name} mixes kinds of labels: use only strings or only numbers") from None
    return len(names), member


def same_length(x: NDArray[Any], y: NDArray[Any], names: str) -> None:
    if len(x) != len(y):
        raise InputError(f"{names} must be paired, one entry per problem in the same order: got {len(x)} and {len(y)}")


def share(value: float, name: str) -> float:
    """A number strictly between 0 and 1."""
    if not 0 < value < 1:
        raise InputError(f"{name} must lie strictly between 0 and 1, got {value:g}")
    return value
