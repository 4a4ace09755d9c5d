"""Holm and Benjamini-Hochberg against statsmodels, SciPy and the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.stats import false_discovery_control
from statsmodels.stats.multitest import multipletests

from radmoe.errors import InputError
from radmoe.evaluation import stats

FAMILY = npst.arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1))


@pytest.mark.slow
@given(FAMILY)
@settings(max_examples=15)  # the reference takes 50 ms
def test_holm_agrees_with_statsmodels(p: np.ndarray) -> None:
    assert stats.holm(p) == pytest.approx(multipletests(p, method="holm")[1], abs=1e-12)


@given(FAMILY)
def test_benjamini_hochberg_agrees_with_statsmodels_and_scipy(p: np.ndarray) -> None:
    assert stats.benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1], abs=1e-12)
    assert stats.benjamini_hochberg(p) == pytest.approx(false_discovery_control(p), abs=1e-12)


@given(FAMILY)
def test_raw_is_at_most_bh_is_at_most_holm_is_at_most_bonferroni(p: np.ndarray) -> None:
    holm, bh = stats.holm(p), stats.benjamini_hochberg(p)
    slack = 1e-12
    assert np.all(p <= bh + slack)
    assert np.all(bh <= holm + slack)
    assert np.all(holm <= np.minimum(len(p) * p, 1) + slack)


@given(FAMILY, st.randoms())
def test_order_does_not_matter_and_ranks_are_kept(p: np.ndarray, random) -> None:
    order = random.sample(range(len(p)), len(p))
    for adjust in (stats.holm, stats.benjamini_hochberg):
        assert np.array_equal(adjust(p[order]), adjust(p)[order])
        assert np.all(np.diff(adjust(np.sort(p))) >= 0)


def test_the_papers_decile_column_recomputes() -> None:
    """tab:layer-deciles: ten printed p-values, Holm 0.448 for 0.045 (ten times its rounding) and 1 elsewhere."""
    p = np.array([0.456, 0.921, 0.134, 0.045, 0.451, 0.560, 0.422, 0.168, 0.164, 0.130])
    expected = np.where(p == 0.045, 0.448, 1.0)
    assert stats.holm(p) == pytest.approx(expected, abs=0.005)


def test_the_papers_kernel_column_recomputes() -> None:
    """tab:wjja-main: every anchor mode Holm-adjusts to 1.000."""
    p = stats.mcnemar_exact([103, 109, 72, 107], [120, 125, 81, 99])
    assert stats.holm(p).tolist() == [1.0] * 4


def test_an_empty_family_stays_empty() -> None:
    assert stats.holm([]).shape == stats.benjamini_hochberg([]).shape == (0,)


@pytest.mark.parametrize("adjust", [stats.holm, stats.benjamini_hochberg])
@pytest.mark.parametrize(
    ("p", "message"),
    [([0.1, math.nan], "contains NaN"), ([0.1, 1.2], "got 1.2"), ([-0.1], "got -0.1"), ([[0.1]], "1-dimensional")],
)
def test_unusable_p_values_are_named(adjust, p, message: str) -> None:
    with pytest.raises(InputError, match=message):
        adjust(p)
