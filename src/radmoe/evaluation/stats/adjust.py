"""p-values of a family of tests, adjusted so that each can be compared with the level itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.evaluation.stats.checks import Floats, numbers, within


def holm(p: ArrayLike) -> Floats:
    """Holm's step-down adjusted p-values, in the order given. They control the family-wise error of any tests."""
    raw, order = _sorted(p)
    m = len(raw)
    return _restore(np.maximum.accumulate(np.arange(m, 0, -1) * raw[order]), order)


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """Benjamini-Hochberg adjusted p-values (q), in the order given.

    They control the false discovery rate of tests that are independent or positively dependent.
    """
    raw, order = _sorted(p)
    m = len(raw)
    scaled = raw[order] * (m / np.arange(1, m + 1))
    return _restore(np.minimum.accumulate(scaled[::-1])[::-1], order)


def _sorted(p: ArrayLike) -> tuple[Floats, NDArray[np.intp]]:
    raw = within(numbers(p, "p-values"), "p-values")
    return raw, np.argsort(raw, kind="stable")


def _restore(adjusted: Floats, order: NDArray[np.intp]) -> Floats:
    out = np.empty_like(adjusted)
    out[order] = np.minimum(adjusted, 1.0)
    return out
