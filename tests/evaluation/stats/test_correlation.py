"""Correlations against SciPy, statsmodels and enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import stats as scipy_stats

from radmoe.errors import InputError
from radmoe.evaluation import stats

X = np.random.default_rng(0).normal(size=60)
Y = 0.4 * X + np.random.default_rng(1).normal(size=60)
CONTROL = np.column_stack([X + np.random.default_rng(2).normal(size=60), np.random.default_rng(3).random(60)])


def with_correlation(r: float, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and a control, such that corr(x, y) is r exactly and the control is orthogonal to both."""
    basis = np.linalg.qr(np.column_stack([np.ones(n), np.random.default_rng(9).normal(size=(n, 3))]))[0]
    return basis[:, 1], r * basis[:, 1] + math.sqrt(1 - r * r) * basis[:, 2], basis[:, 3]


def test_without_controls_it_is_pearsons() -> None:
    found, reference = stats.partial_correlation(X, Y), scipy_stats.pearsonr(X, Y)
    assert (found.r, found.p) == (pytest.approx(reference.statistic), pytest.approx(reference.pvalue))
    assert (found.n, found.df) == (60, 58)


@pytest.mark.parametrize("columns", [1, 2])
def test_p_is_that_of_the_regression_slope(columns: int) -> None:
    """Recipe: statsmodels OLS of y on x and the controls; the slope's t test is the partial correlation's."""
    control = CONTROL[:, :columns]
    fit = sm.OLS(Y, sm.add_constant(np.column_stack([X, control]))).fit()
    found = stats.partial_correlation(X, Y, control)
    t = fit.tvalues[1]
    assert found.df == fit.df_resid
    assert found.p == pytest.approx(fit.pvalues[1])
    assert found.r == pytest.approx(t / math.sqrt(t * t + fit.df_resid))


def test_groups_are_dummy_controls() -> None:
    groups = np.array(["20B", "120B", "30B"] * 20)
    dummies = np.column_stack([groups == name for name in ("20B", "120B")])
    within = stats.partial_correlation(X + dummies[:, 0] * 9, Y, CONTROL[:, 0], groups=groups)
    controlled = stats.partial_correlation(X + dummies[:, 0] * 9, Y, np.column_stack([CONTROL[:, 0], dummies]))
    assert (within.r, within.p) == (pytest.approx(controlled.r), pytest.approx(controlled.p))
    assert within.df == controlled.df == 60 - 2 - 1 - 2


def test_the_papers_p_values_follow_from_its_coefficients() -> None:
    """tab:diversity, n = 3152: +0.19 with p = 1.3e-27, +0.28 beside a control with p = 2.9e-59, as rounded."""
    for low, high, p, partial in ((0.185, 0.195, 1.3e-27, False), (0.275, 0.285, 2.9e-59, True)):
        bounds = []
        for r in (high, low):
            x, y, control = with_correlation(r, 3152)
            found = stats.partial_correlation(x, y, control if partial else None)
            assert found.r == pytest.approx(r)
            bounds.append(found.p)
        assert bounds[0] < p < bounds[1]


def test_repeated_and_constant_controls_cost_nothing() -> None:
    once = stats.partial_correlation(X, Y, CONTROL[:, 0])
    again = stats.partial_correlation(X, Y, np.column_stack([CONTROL[:, 0], 3 * CONTROL[:, 0] + 1, np.full(60, 0.1)]))
    assert (again.r, again.p, again.df) == (pytest.approx(once.r), pytest.approx(once.p), once.df)


@pytest.mark.slow
@given(
    npst.arrays(np.float64, 12, elements=st.integers(0, 4)),
    npst.arrays(np.float64, 12, elements=st.integers(0, 4)),
)
def test_spearman_agrees_with_scipy_under_ties(x: np.ndarray, y: np.ndarray) -> None:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        with pytest.raises(InputError, match="constant"):
            stats.spearman(x, y)
        return
    found, reference = stats.spearman(x, y), scipy_stats.spearmanr(x, y)
    assert found.r == pytest.approx(reference.statistic, abs=1e-12)
    if abs(found.r) < 1 - 1e-9:
        assert found.p == pytest.approx(reference.pvalue, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("y", [[1, 2, 3, 4, 5], [2, 1, 4, 3, 5], [1, 1, 2, 5, 3], [1, 1, 1, 1, 2]])
def test_few_pairs_get_an_exact_p(y: list[int]) -> None:
    x = [3.0, 7.0, 8.0, 20.0, 21.0]
    found = stats.spearman(x, y)
    every = [abs(scipy_stats.spearmanr(x, order).statistic) for order in itertools.permutations(y)]
    assert found.p == pytest.approx(np.mean(np.array(every) >= abs(found.r) - 1e-9))


def test_a_perfect_order_of_five_is_not_certain() -> None:
    """Fig. evidence-a: rho = +1.00 over five budgets; of 120 orders, two are as perfect."""
    found = stats.spearman([64, 128, 256, 512, 1024], [0.1, 0.2, 0.3, 0.5, 0.8])
    assert (found.r, found.p) == (1.0, pytest.approx(2 / 120))


@given(npst.arrays(np.float64, 10, elements=st.floats(-5, 5), unique=True))
def test_spearman_only_sees_the_order(x: np.ndarray) -> None:
    y = np.arange(10.0) ** 2
    found = stats.spearman(x, y)
    assert found == stats.spearman(np.argsort(np.argsort(x)), y)
    assert stats.spearman(y, x).r == pytest.approx(found.r)
    assert stats.spearman(-x, y).r == pytest.approx(-found.r)


def test_missing_values_are_refused_or_dropped_on_request() -> None:
    x, groups = X.copy(), np.arange(60) % 3
    x[[3, 8]] = math.nan
    kept = ~np.isnan(x)
    with pytest.raises(InputError, match="2 of 60 pairs contain NaN"):
        stats.spearman(x, Y)
    assert stats.spearman(x, Y, nan="drop") == stats.spearman(x[kept], Y[kept])
    dropped = stats.partial_correlation(x, Y, CONTROL, groups=groups, nan="drop")
    assert dropped == stats.partial_correlation(x[kept], Y[kept], CONTROL[kept], groups=groups[kept])


def test_tiny_and_huge_scales_do_not_matter() -> None:
    plain = stats.partial_correlation(X, Y, CONTROL)
    scaled = stats.partial_correlation(X * 1e-120, Y * 1e120, CONTROL * [1e-9, 1e9])
    assert (scaled.r, scaled.df) == (pytest.approx(plain.r), plain.df)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.partial_correlation([0.1] * 9, range(9)), "x is constant"),
        (lambda: stats.partial_correlation(range(9), [0.1] * 9), "y is constant"),
        (lambda: stats.partial_correlation(X, Y, 2 * X + 1), "x is constant, or determined by the controls"),
        (lambda: stats.partial_correlation([1, 1, 2, 2], [1, 2, 3, 4], groups=[0, 0, 1, 1]), "x is constant, or"),
        (lambda: stats.partial_correlation([1, 2], [2, 1]), "2 pairs leave 0 degrees of freedom"),
        (lambda: stats.partial_correlation(X, Y[:-1]), "got 60 and 59"),
        (lambda: stats.partial_correlation(X, Y, CONTROL[:-1]), "control and x must be paired"),
        (lambda: stats.partial_correlation(X, Y, CONTROL[None]), r"control must be \[n\] or \[n, c\]"),
        (lambda: stats.partial_correlation(X, Y, groups=[1, 2]), "groups and x must be paired"),
        (lambda: stats.partial_correlation([], []), "none of 0 pairs is complete"),
        (lambda: stats.spearman([], []), "none of 0 pairs is complete"),
        (lambda: stats.spearman([1.0], [2.0]), "x is constant or has fewer than 2"),
        (lambda: stats.spearman([1, 2, math.inf], [1, 2, 3]), "infinity"),
        (lambda: stats.spearman([1, 2], [1, 2], nan="omit"), "use raise or drop"),
    ],
)
def test_an_undefined_correlation_is_refused(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
