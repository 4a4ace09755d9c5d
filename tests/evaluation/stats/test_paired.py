"""McNemar and its power against enumeration, SciPy, statsmodels and the paper's tables; sign flips; Cochran's Q."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from statsmodels.stats.contingency_tables import cochrans_q
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from radmoe.errors import InputError
from radmoe.evaluation import stats

COUNT = st.integers(0, 400)

# tab:wjja-main: n, b (only JA right), c (only WJ right), WJ - JA (pp), McNemar p
KERNEL_ROWS = [
    (3786, 103, 120, 0.45, 0.284),
    (3808, 109, 125, 0.42, 0.327),
    (3808, 72, 81, 0.24, 0.518),
    (3786, 107, 99, -0.21, 0.626),
    (15188, 391, 425, 0.22, 0.248),
]
# tab:dc and tab:dc-fusion: every (only the first, only the second, p) with p below 0.6, once, whichever side is first
FUSION_ROWS = [
    (3, 0, 0.250), (2, 5, 0.453), (4, 8, 0.388), (4, 1, 0.375), (7, 3, 0.344), (9, 5, 0.424), (7, 4, 0.549),
    (0, 6, 0.031), (3, 6, 0.508), (11, 16, 0.442), (2, 6, 0.289), (0, 2, 0.500), (1, 5, 0.219), (12, 7, 0.359),
    (2, 9, 0.065), (5, 0, 0.062), (9, 13, 0.523), (6, 10, 0.454),
]  # fmt: skip
# tab:wjja-power: n (from tab:wjja-main), n_disc, MDE@80% (pp), boundary (pp), power@1pp, power@0.5pp
POWER_ROWS = [
    (3786, 223, 1.12, 0.82, 0.70, 0.23),
    (3808, 234, 1.15, 0.84, 0.68, 0.22),
    (3808, 153, 0.95, 0.71, 0.84, 0.29),
    (3786, 206, 1.08, 0.79, 0.74, 0.24),
    (15188, 816, 0.53, 0.38, 1.00, 0.75),
]


@pytest.mark.parametrize(("n", "b", "c", "gap", "p"), KERNEL_ROWS)
def test_the_papers_kernel_rows_recompute(n: int, b: int, c: int, gap: float, p: float) -> None:
    weighted, binary = np.repeat([0, 1, 1], [b, c, n - b - c]), np.repeat([1, 0, 1], [b, c, n - b - c])
    found = stats.mcnemar(weighted, binary)
    assert (found.n, found.b, found.c) == (n, c, b)
    assert round(100 * found.gap, 2) == gap
    assert round(found.p, 3) == p


def test_the_papers_fusion_rows_recompute() -> None:
    b, c, p = np.array(FUSION_ROWS).T
    assert np.abs(stats.mcnemar_exact(b, c) - p).max() <= 0.0005 + 1e-9


@pytest.mark.parametrize(("n", "n_disc", "mde", "boundary", "at_1pp", "at_half"), POWER_ROWS)
def test_the_papers_power_table_recomputes(
    n: int, n_disc: int, mde: float, boundary: float, at_1pp: float, at_half: float
) -> None:
    assert round(100 * stats.mcnemar_mde(n, n_disc), 2) == mde
    assert round(100 * stats.mcnemar_boundary(n, n_disc), 2) == boundary
    assert round(stats.mcnemar_power(n, n_disc, 0.01), 2) == at_1pp
    assert round(stats.mcnemar_power(n, n_disc, 0.005), 2) == at_half


@pytest.mark.parametrize("n_disc", range(11))
def test_p_equals_the_count_of_outcomes_at_least_as_lopsided(n_disc: int) -> None:
    outcomes = [abs(2 * sum(flips) - n_disc) for flips in itertools.product((0, 1), repeat=n_disc)]
    for b in range(n_disc + 1):
        share = np.mean([lopsided >= abs(2 * b - n_disc) for lopsided in outcomes])
        assert stats.mcnemar_exact(b, n_disc - b) == pytest.approx(share, rel=1e-12)


@given(COUNT, COUNT)
def test_p_agrees_with_scipy_and_statsmodels(b: int, c: int) -> None:
    p = stats.mcnemar_exact(b, c)
    assert p == stats.mcnemar_exact(c, b)
    if b + c:
        assert p == pytest.approx(binomtest(b, b + c).pvalue, rel=1e-9)
        assert p == pytest.approx(statsmodels_mcnemar([[0, b], [c, 0]], exact=True).pvalue, rel=1e-9)


def test_p_keeps_its_digits_in_the_far_tail() -> None:
    assert stats.mcnemar_exact(0, 900) == pytest.approx(2.0**-899, rel=1e-9)
    assert stats.mcnemar_exact(499_000, 501_000) == pytest.approx(binomtest(499_000, 1_000_000).pvalue, rel=1e-6)


def test_arrays_and_scalars_agree_and_no_discordant_pairs_give_one() -> None:
    b, c = np.array([[0, 3], [7, 10]]), np.array([0, 9])
    p = stats.mcnemar_exact(b, c)
    assert p.shape == (2, 2)
    assert p[0, 0] == 1.0 == stats.mcnemar_exact(0, 0)
    assert p[1, 1] == stats.mcnemar_exact(10, 9)
    assert isinstance(stats.mcnemar_exact(np.int64(3), np.int64(9)), float)


def test_outcomes_are_counted_from_the_first_selectors_side() -> None:
    found = stats.mcnemar([1, 1, 1, 0, 1], [1, 0, 0, 1, 0])
    assert (found.n, found.b, found.c) == (5, 3, 1)
    assert found.gap == pytest.approx(0.4)
    assert found.p == stats.mcnemar_exact(3, 1)


@given(st.integers(1, 80), st.integers(0, 400), st.floats(0, 1))
def test_power_is_the_probability_of_a_significant_outcome(n_disc: int, rest: int, tilt: float) -> None:
    """Recipe: sum the binomial pmf over every outcome that SciPy's exact test calls significant."""
    n = n_disc + rest
    chance = (1 + tilt) / 2
    expected = sum(
        math.comb(n_disc, b) * chance**b * (1 - chance) ** (n_disc - b)
        for b in range(n_disc + 1)
        if stats.mcnemar_exact(b, n_disc - b) <= 0.05
    )
    power = stats.mcnemar_power(n, n_disc, tilt * n_disc / n)
    assert power == pytest.approx(expected, abs=1e-9)
    assert power == stats.mcnemar_power(n, n_disc, -tilt * n_disc / n)


@given(st.integers(6, 500), st.integers(0, 5000), st.floats(0.06, 0.99))
def test_the_minimum_detectable_effect_has_the_power_asked_for(n_disc: int, rest: int, power: float) -> None:
    n = n_disc + rest
    assert stats.mcnemar_power(n, n_disc, stats.mcnemar_mde(n, n_disc, power)) == pytest.approx(power, abs=1e-6)


@given(st.integers(6, 500), st.integers(0, 5000))
def test_the_boundary_is_significant_and_one_step_less_is_not(n_disc: int, rest: int) -> None:
    n = n_disc + rest
    net = round(stats.mcnemar_boundary(n, n_disc) * n)
    more = (n_disc + net) // 2
    assert stats.mcnemar_exact(more, n_disc - more) <= 0.05
    assert stats.mcnemar_exact(more - 1, n_disc - more + 1) > 0.05


@pytest.mark.parametrize("n_disc", range(6))
def test_five_discordant_pairs_can_never_be_significant(n_disc: int) -> None:
    assert stats.mcnemar_boundary(100, n_disc) == math.inf
    assert stats.mcnemar_mde(100, n_disc) == math.inf
    assert stats.mcnemar_power(100, n_disc, 0.0) == 0.0


def test_power_that_the_level_gives_for_free_needs_no_effect() -> None:
    assert stats.mcnemar_mde(1000, 200, power=0.01) == 0.0


def test_cochrans_q_agrees_with_statsmodels() -> None:
    rng = np.random.default_rng(1)
    for selectors in (2, 3, 10):
        x = rng.random((200, selectors)) < np.linspace(0.5, 0.7, selectors)
        found, reference = stats.cochran_q(x), cochrans_q(x.astype(int))
        assert found.q == pytest.approx(reference.statistic)
        assert found.p == pytest.approx(reference.pvalue)
        assert found.df == selectors - 1


def test_the_papers_omnibus_p_follows_from_its_q() -> None:
    """tab:layer-deciles: Q = 6.72 on 9 degrees of freedom, p = 0.67. A table with that Q, by search."""
    rng = np.random.default_rng(0)
    found = min((stats.cochran_q(rng.random((300, 10)) < 0.5) for _ in range(500)), key=lambda f: abs(f.q - 6.72))
    assert found.q == pytest.approx(6.72, abs=0.02)
    assert round(found.p, 2) == 0.67


def test_cochrans_p_is_that_of_permuting_outcomes_within_problems() -> None:
    rng = np.random.default_rng(5)
    x = rng.random((60, 4)) < np.array([0.5, 0.55, 0.6, 0.7])
    observed = stats.cochran_q(x)
    permuted = [stats.cochran_q(rng.permuted(x, axis=1)).q for _ in range(4000)]
    assert np.mean(np.array(permuted) >= observed.q - 1e-9) == pytest.approx(observed.p, abs=0.02)


def test_two_selectors_make_q_the_uncorrected_mcnemar_statistic() -> None:
    rng = np.random.default_rng(2)
    x = rng.random((100, 2)) < 0.6
    pair = stats.mcnemar(x[:, 0], x[:, 1])
    assert stats.cochran_q(x).q == pytest.approx((pair.b - pair.c) ** 2 / (pair.b + pair.c))


@pytest.mark.slow
@given(st.integers(1, 12), st.integers(2, 5), st.data())
def test_unanimous_problems_do_not_move_q(problems: int, selectors: int, data: st.DataObject) -> None:
    bits = st.lists(st.booleans(), min_size=selectors, max_size=selectors)
    x = data.draw(st.lists(bits, min_size=problems, max_size=problems))
    padded = [*x, [True] * selectors, [False] * selectors]
    assert stats.cochran_q(padded).q == pytest.approx(stats.cochran_q(x).q)


def test_cochrans_p_takes_rows_of_one_problem_together() -> None:
    x = np.random.default_rng(1).random((60, 4)) < [0.5, 0.55, 0.6, 0.65]
    once = stats.cochran_q(x)
    four = stats.cochran_q(np.tile(x, (4, 1)), np.tile(np.arange(60), 4))
    assert 0.01 < once.p < 0.2
    assert four.p == pytest.approx(once.p, abs=0.02)
    assert stats.cochran_q(np.tile(x, (4, 1))).p < 1e-4 < once.p  # as if there were 240 problems
    assert stats.cochran_q(x, np.arange(60)) == once
    assert stats.cochran_q([[1, 1], [0, 0]], ["a", "a"]).p == 1.0


def test_selectors_that_never_disagree_give_q_zero_and_p_one() -> None:
    assert stats.cochran_q([[1, 1, 1], [0, 0, 0]]) == stats.CochranQ(0.0, 2, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.mcnemar_exact(-1, 3), "b must be counts .* got -1"),
        (lambda: stats.mcnemar_exact(1, 2.5), "c must be counts .* got 2.5"),
        (lambda: stats.mcnemar_exact([1, math.nan], [1, 2]), "b contains NaN"),
        (lambda: stats.mcnemar_exact([1, 2], [1, 2, 3]), r"got \(2,\) and \(3,\)"),
        (lambda: stats.mcnemar([], []), "empty"),
        (lambda: stats.mcnemar([1, 0], [1]), "got 2 and 1"),
        (lambda: stats.mcnemar([1, 0.5], [1, 0]), "x must be 0 or 1 .* got 0.5"),
        (lambda: stats.mcnemar_power(100, 20, 1.0), "needs 100 discordant ones, there are 20: gap is a fraction"),
        (lambda: stats.mcnemar_power(100, 20, math.nan), "gap of nan"),
        (lambda: stats.mcnemar_power(100, 200, 0.01), "n_disc=200, n=100"),
        (lambda: stats.mcnemar_mde(0, 0), "n be at least 1"),
        (lambda: stats.mcnemar_mde(100, 20, power=1.0), "power must lie strictly between 0 and 1, got 1"),
        (lambda: stats.mcnemar_boundary(100, 20, alpha=5), "alpha must lie strictly between 0 and 1, got 5"),
        (lambda: stats.cochran_q([[1], [0]]), "2 selectors, got 2 and 1"),
        (lambda: stats.cochran_q(np.zeros((0, 3))), "got 0 and 3"),
        (lambda: stats.cochran_q([1, 0]), r"2-dimensional, got shape \(2,\)"),
        (lambda: stats.cochran_q([[1, 0], [1]]), "rows of one length"),
    ],
)
def test_unusable_input_is_named(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.slow
@given(st.lists(st.integers(-7, 7), max_size=12))
def test_sign_flips_count_every_choice_of_signs(sums: list[int]) -> None:
    sizes = [abs(one) for one in sums if one]
    totals = [
        sum(size * sign for size, sign in zip(sizes, signs, strict=True))
        for signs in itertools.product((1, -1), repeat=len(sizes))
    ]
    expected = sum(abs(total) >= abs(sum(sums)) for total in totals) / len(totals)
    assert stats.sign_flip_exact(sums) == pytest.approx(expected, rel=1e-10)


@given(COUNT, COUNT)
def test_sign_flips_of_single_outcomes_are_exact_mcnemar(b: int, c: int) -> None:
    assert stats.sign_flip_exact([1] * b + [-1] * c + [0] * 3) == pytest.approx(stats.mcnemar_exact(b, c), rel=1e-9)


def test_problems_that_occur_once_are_tested_by_mcnemar_and_others_by_sign_flips() -> None:
    x, y = [1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0, 1]
    once = stats.paired_test(x, y, list("abcdefgh"))
    assert (once.n, once.problems, once.b, once.c, once.test) == (8, 8, 6, 0, "mcnemar")
    assert once.p == stats.mcnemar_exact(6, 0)
    shared = stats.paired_test(x, y, list("aaaaaabb"))  # six configurations repeat one discordant problem
    assert (shared.n, shared.problems, shared.b, shared.gap, shared.test) == (8, 2, 6, 0.75, "sign-flip")
    assert shared.p == 1.0


def test_shared_problems_are_not_called_different_too_often() -> None:
    """Seven configurations that fail on the same problems, and no true difference: McNemar rejects in a third of the
    draws, sign flips in no more than 5% and their own spread."""
    rng = np.random.default_rng(0)
    problems = np.tile(np.arange(60), 7)
    wrong = {"mcnemar": 0, "sign-flip": 0}
    for _ in range(300):
        side = rng.integers(0, 2, 60)  # on each problem one of the two is better, for all configurations
        x = ((side[problems] == 1) & (rng.random(420) < 0.6)).astype(int)
        y = ((side[problems] == 0) & (rng.random(420) < 0.6)).astype(int)
        wrong["mcnemar"] += stats.mcnemar(x, y).p < 0.05
        wrong["sign-flip"] += stats.paired_test(x, y, problems).p < 0.05
    assert wrong["sign-flip"] <= 0.08 * 300
    assert wrong["mcnemar"] > 0.2 * 300


def test_sums_that_are_no_whole_numbers_are_refused() -> None:
    with pytest.raises(InputError, match=r"sums must be whole numbers, got 0\.5"):
        stats.sign_flip_exact([1, 0.5])
    with pytest.raises(InputError, match="x and problems must be paired"):
        stats.paired_test([1, 0], [0, 0], ["a"])
