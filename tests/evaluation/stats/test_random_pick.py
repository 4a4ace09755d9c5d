"""The random pick's law against enumeration, SciPy and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.stats import binom, poisson_binom

from radmoe.errors import InputError
from radmoe.evaluation import stats

RATES = npst.arrays(np.float64, st.integers(1, 9), elements=st.floats(0, 1))


@pytest.mark.slow
@given(RATES)
def test_pmf_and_tail_equal_the_enumeration_of_all_outcomes(rates: np.ndarray) -> None:
    expected = np.zeros(len(rates) + 1)
    for outcome in itertools.product((0, 1), repeat=len(rates)):
        expected[sum(outcome)] += math.prod(r if x else 1 - r for x, r in zip(outcome, rates, strict=True))
    assert stats.poisson_binomial_pmf(rates) == pytest.approx(expected, abs=1e-14)
    for successes in range(len(rates) + 1):
        found = stats.poisson_binomial_test(rates, successes)
        assert found.p == pytest.approx(expected[successes:].sum(), abs=1e-13)


@pytest.mark.slow
@given(RATES, st.randoms())
def test_the_order_of_problems_does_not_matter(rates: np.ndarray, random) -> None:
    shuffled = rates[random.sample(range(len(rates)), len(rates))]
    assert stats.poisson_binomial_pmf(shuffled) == pytest.approx(stats.poisson_binomial_pmf(rates), abs=1e-14)


@pytest.mark.parametrize("n", [50, 3180])
def test_z_and_p_agree_with_scipy(n: int) -> None:
    rates = np.random.default_rng(n).beta(0.5, 0.3, size=n)
    law = poisson_binom(rates)
    for successes in (int(law.mean()), int(law.mean() + 2 * law.std())):
        found = stats.poisson_binomial_test(rates, successes)
        assert found.p == pytest.approx(law.sf(successes - 1), abs=1e-10)
        assert found.z == pytest.approx((successes - law.mean()) / law.std())
        assert found.gap == pytest.approx(successes / n - rates.mean())


def test_five_thousand_equal_rates_are_a_binomial_down_to_the_far_tail() -> None:
    pmf = stats.poisson_binomial_pmf(np.full(5000, 0.3))
    reference = binom.pmf(np.arange(5001), 5000, 0.3)
    far = reference > 1e-290
    assert pmf[far] == pytest.approx(reference[far], rel=1e-9)
    assert pmf.sum() == pytest.approx(1, abs=1e-12)
    found = stats.poisson_binomial_test(np.full(5000, 0.3), 2200)
    assert found.p == pytest.approx(binom.sf(2199, 5000, 0.3), rel=1e-9)
    assert 0 < found.p < 1e-90


def test_per_problem_outcomes_count_as_their_sum() -> None:
    rates = [0.2, 0.5, 1.0]
    assert stats.poisson_binomial_test(rates, [True, False, True]) == stats.poisson_binomial_test(rates, 2)


def test_rates_without_spread_give_certain_answers() -> None:
    rates = [0.0, 1.0, 1.0]
    expected = stats.poisson_binomial_test(rates, 2)
    assert (expected.z, expected.p, expected.sd) == (0.0, 1.0, 0.0)
    assert (stats.poisson_binomial_test(rates, 3).z, stats.poisson_binomial_test(rates, 3).p) == (math.inf, 0.0)
    assert (stats.poisson_binomial_test(rates, 1).z, stats.poisson_binomial_test(rates, 1).p) == (-math.inf, 1.0)


def test_the_envelope_is_the_papers_formula() -> None:
    """Eq. rand-ci by hand: rates 1/4, 1/2, 1; variance (3/16 + 4/16) / 9."""
    found = stats.random_envelope([0.25, 0.5, 1.0])
    sd = math.sqrt(7 / 16) / 3
    assert (found.n, found.mean, found.sd) == (3, pytest.approx(7 / 12), pytest.approx(sd))
    assert (found.lower, found.upper) == (pytest.approx(7 / 12 - 1.96 * sd), pytest.approx(7 / 12 + 1.96 * sd))


@pytest.mark.parametrize("method", ["wald", "exact"])
def test_a_random_pick_stays_inside_the_envelope_95_times_in_100(method) -> None:
    rates = np.random.default_rng(3).integers(0, 65, size=1000) / 64
    found = stats.random_envelope(rates, method)
    accuracy = np.array([(row < rates).mean() for row in np.random.default_rng(4).random((4000, 1000))])
    assert 0.93 <= np.mean((found.lower <= accuracy) & (accuracy <= found.upper)) <= 0.97


@given(RATES)
def test_the_exact_envelope_leaves_at_most_a_fortieth_on_each_side(rates: np.ndarray) -> None:
    found, pmf = stats.random_envelope(rates, "exact"), stats.poisson_binomial_pmf(rates)
    low, high = round(found.lower * found.n), round(found.upper * found.n)
    assert 0 <= low <= high <= found.n
    assert pmf[:low].sum() <= 0.025 + 1e-12
    assert pmf[high + 1 :].sum() <= 0.025 + 1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.random_envelope([]), "rates is empty"),
        (lambda: stats.random_envelope([0.5, 71.0]), "got 71: give fractions, not percent"),
        (lambda: stats.random_envelope([0.5, math.nan]), "contains NaN"),
        (lambda: stats.random_envelope([0.5], "normal"), "'normal': use wald or exact"),
        (lambda: stats.poisson_binomial_test([0.5, -0.1], 1), "got -0.1"),
        (lambda: stats.poisson_binomial_test([0.5, 0.1], 3), "at most the 2 problems, got 3"),
        (lambda: stats.poisson_binomial_test([0.5, 0.1], 1.5), "must be counts"),
        (lambda: stats.poisson_binomial_test([0.5, 0.1], [1, 0, 1]), "got 3 and 2"),
        (lambda: stats.poisson_binomial_test([0.5, 0.1], [2, 0]), "must be 0 or 1, got 2"),
        (lambda: stats.poisson_binomial_pmf(["a"]), "must be numbers"),
    ],
)
def test_unusable_input_is_named(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
