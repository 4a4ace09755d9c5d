"""p-values of a family of tests, adjusted so that each can be compared with the level itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from radmoe.evaluation.stats.checks import Floats, numbers, within


def holm(p: ArrayLike) -> Floats:
    """Holm's step-down adjusted p-values, in the order given. They control the family-wise error of any tests."""
    raw = within(numbers(p, "p-values"), "p-values")
    order = np.argsort(raw, kind="stable")
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(np.maximum.accumulate(np.arange(len(raw), 0, -1) * raw[order]), 1.0)
    return adjusted


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """Benjamini-Hochberg adjusted p-values (q), in the order given.

    They control the false discovery rate of tests that are independent or positively dependent.
    """
    from scipy.stats import false_discovery_control  # slow to import

    return np.asarray(false_discovery_control(within(numbers(p, "p-values"), "p-values")))
