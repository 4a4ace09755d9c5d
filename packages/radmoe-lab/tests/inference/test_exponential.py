"""Exponentials of many numbers: the same as NumPy's."""

from __future__ import annotations

import numpy as np

from radmoe_lab.inference.exponential import exponentials


def test_exponentials_have_nearly_all_digits_of_a_float32() -> None:
    x = np.linspace(-87, 87, 100_001).astype(np.float32)
    result = x.copy()
    exponentials(result, np.empty(len(x), np.int32))
    assert np.abs(result / np.exp(x.astype(np.float64)) - 1).max() < 2e-7


def test_what_is_beyond_the_range_is_cut() -> None:
    x = np.array([-np.inf, -1000, 1000], np.float32)
    exponentials(x, np.empty(3, np.int32))
    assert (x[:2] < 1e-37).all()
    assert np.isfinite(x).all()
