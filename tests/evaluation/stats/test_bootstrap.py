"""Bootstrap intervals: their law, their coverage, the paper's natural-pool check."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.stats import bootstrap as scipy_bootstrap

from radmoe.errors import InputError
from radmoe.evaluation import stats
from radmoe.evaluation.stats import bootstrap as module

VALUES = npst.arrays(np.float64, st.integers(2, 30), elements=st.floats(-1, 1))


def outcomes(b: int, c: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Two selectors that disagree on b + c of n problems."""
    x, y = np.ones(n), np.ones(n)
    y[:b], x[b : b + c] = 0, 0
    return x, y


@pytest.mark.parametrize(
    ("b", "c", "p", "low", "high"), [(83, 74, 0.52, -0.0050, 0.0107), (90, 72, 0.18, -0.0022, 0.0135)]
)
def test_the_papers_natural_pool_check_recomputes(b: int, c: int, p: float, low: float, high: float) -> None:
    """Sec. results: n = 3180, +0.28 pp and +0.57 pp over Majority. The discordant counts are not printed: these
    are the ones that give the printed p; the interval must then agree to one problem in 3180."""
    found = stats.paired_bootstrap(*outcomes(b, c, 3180))
    assert round(stats.mcnemar_exact(b, c), 2) == p
    assert found.estimate == pytest.approx((b - c) / 3180)
    assert (found.low, found.high) == (pytest.approx(low, abs=1 / 3180), pytest.approx(high, abs=1 / 3180))
    assert found.p == pytest.approx(p, abs=0.06)


@pytest.mark.parametrize("values", [[0.0, 0.0, 1.0], [0.1, 0.7, 2.0, 4.4]])
@pytest.mark.parametrize("cost", [0, 40])
def test_resampled_means_follow_the_law_of_all_resamples(values, cost: int, monkeypatch) -> None:
    """Every one of n^n resamples by hand, against 60,000 draws by multinomial (cost 0) and by index."""
    monkeypatch.setattr(module, "MULTINOMIAL_COST", cost)
    means = np.sort([np.mean(draw) for draw in itertools.product(values, repeat=len(values))])
    sums = module._resample(np.array(values)[:, None], 60_000, np.random.default_rng(0))[:, 0]
    drawn = np.sort(sums / len(values))
    for at in np.unique(means.round(9)):
        expected = np.mean(means <= at + 1e-6)
        assert np.mean(drawn <= at + 1e-6) == pytest.approx(expected, abs=0.01)


def test_both_ways_of_resampling_give_one_interval(monkeypatch) -> None:
    x = np.random.default_rng(0).integers(0, 4, size=2000).astype(float)
    quick = stats.bootstrap_mean(x)
    monkeypatch.setattr(module, "MULTINOMIAL_COST", 2000)
    slow = stats.bootstrap_mean(x)
    assert quick != slow
    assert (quick.low, quick.high) == (pytest.approx(slow.low, abs=0.004), pytest.approx(slow.high, abs=0.004))


def test_the_interval_agrees_with_scipy() -> None:
    x = np.random.default_rng(7).gamma(2.0, size=300)
    reference = scipy_bootstrap(
        (x,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    found = stats.bootstrap_mean(x)
    assert (found.low, found.high) == (pytest.approx(reference.low, abs=0.01), pytest.approx(reference.high, abs=0.01))


def test_resamples_do_not_depend_on_the_block_size(monkeypatch) -> None:
    x = np.random.default_rng(0).normal(size=50)
    whole = stats.bootstrap_mean(x, resamples=500)
    monkeypatch.setattr(module, "BLOCK", 50 * 7)
    assert stats.bootstrap_mean(x, resamples=500) == whole


@given(VALUES, st.integers(0, 2**32))
@settings(max_examples=50)
def test_one_seed_one_interval_that_lies_within_the_data(x: np.ndarray, seed: int) -> None:
    found = stats.bootstrap_mean(x, resamples=200, seed=seed)
    assert found == stats.bootstrap_mean(x, resamples=200, seed=seed)
    assert x.min() - 1e-9 <= found.low <= found.high <= x.max() + 1e-9
    assert 0 < found.p <= 1
    assert (found.n, found.resamples, found.level) == (len(x), 200, 0.95)


@given(VALUES)
@settings(max_examples=50)
def test_swapping_the_pair_mirrors_the_interval(x: np.ndarray) -> None:
    y = np.roll(x, 1) / 2
    one, other = stats.paired_bootstrap(x, y, resamples=101), stats.paired_bootstrap(y, x, resamples=101)
    assert one.estimate == pytest.approx(-other.estimate, abs=1e-12)
    assert stats.cluster_bootstrap(x, np.arange(len(x)), y=y, resamples=101).estimate == pytest.approx(one.estimate)


def test_clusters_of_one_are_the_plain_bootstrap() -> None:
    x = np.random.default_rng(1).normal(size=300)
    plain, clustered = stats.bootstrap_mean(x), stats.cluster_bootstrap(x, np.arange(300))
    assert (plain.low, plain.high, plain.n) == (pytest.approx(clustered.low), pytest.approx(clustered.high), 300)


def test_copies_of_a_problem_do_not_narrow_the_clustered_interval() -> None:
    x = (np.random.default_rng(2).random(200) < 0.6).astype(float)
    once = stats.bootstrap_mean(x)
    copies = stats.cluster_bootstrap(np.repeat(x, 8), np.repeat(np.arange(200), 8))
    assert copies.high - copies.low == pytest.approx(once.high - once.low, rel=0.05)
    naive = stats.bootstrap_mean(np.repeat(x, 8))
    assert naive.high - naive.low < 0.5 * (copies.high - copies.low)


def test_clusters_of_unequal_size_follow_the_law_of_all_resamples() -> None:
    """A mean over entries, so a large cluster weighs more and the divisor varies: all 27 resamples by hand."""
    shards = [[1.0], [0.0, 0.0, 1.0], [0.5] * 6]
    draws = itertools.product(shards, repeat=3)
    means = np.array([np.concatenate(draw).mean() for draw in draws])
    found = stats.cluster_bootstrap(
        np.concatenate(shards), np.repeat([0, 1, 2], [1, 3, 6]), level=0.6, resamples=40_000
    )
    assert found.estimate == pytest.approx(0.5)
    low, high = np.quantile(means, [0.2, 0.8], method="inverted_cdf")
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_cluster_labels_may_be_names_in_any_order() -> None:
    x = np.random.default_rng(3).normal(size=90)
    names = np.array(["aime", "gpqa", "code"] * 30)
    order = np.random.default_rng(4).permutation(90)
    one, other = stats.cluster_bootstrap(x, names), stats.cluster_bootstrap(x[order], names[order])
    assert (one.low, one.high, one.n) == (pytest.approx(other.low), pytest.approx(other.high), 3)


def test_the_two_stage_variance_is_the_sum_of_both_stages() -> None:
    """Resampled means vary by (v + w / N) / P: v across observed rates, w within problems, both plug-in."""
    rng = np.random.default_rng(5)
    rollouts = rng.random((80, 16)) < rng.beta(1, 1, size=80)[:, None]
    rates = rollouts.mean(axis=1)
    sd = math.sqrt((rates.var() + (rates * (1 - rates)).mean() / 16) / 80)
    found = stats.two_stage_bootstrap(rollouts, resamples=40_000)
    assert found.estimate == pytest.approx(rates.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * sd, rel=0.03)


def test_ragged_and_many_valued_rollouts_resample_by_their_own_law() -> None:
    rng = np.random.default_rng(6)
    rollouts = [rng.normal(i % 3, size=3 + i % 5) for i in range(40)]
    means, within = (np.array([f(r) for r in rollouts]) for f in (np.mean, lambda r: r.var() / len(r)))
    found = stats.two_stage_bootstrap(rollouts)
    sd = math.sqrt((means.var() + within.mean()) / 40)
    assert found.estimate == pytest.approx(means.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * sd, rel=0.05)


def test_one_rollout_each_is_the_plain_bootstrap() -> None:
    x = np.random.default_rng(8).random(400) < 0.7
    one, other = stats.two_stage_bootstrap(x[:, None]), stats.bootstrap_mean(x)
    assert (one.low, one.high) == (pytest.approx(other.low, abs=0.005), pytest.approx(other.high, abs=0.005))


def covers(found: stats.Interval, truth: float) -> bool:
    return found.low <= truth <= found.high


@pytest.mark.slow
def test_mean_and_paired_intervals_cover_95_times_in_100() -> None:
    rng = np.random.default_rng(10)
    plain = paired = 0
    for seed in range(1200):
        ability = rng.random(500)
        x, y = rng.random(500) < 0.3 + 0.5 * ability, rng.random(500) < 0.2 + 0.5 * ability
        plain += covers(stats.bootstrap_mean(x, resamples=1000, seed=seed), 0.55)
        paired += covers(stats.paired_bootstrap(x, y, resamples=1000, seed=seed), 0.1)
    assert 0.93 <= plain / 1200 <= 0.97
    assert 0.93 <= paired / 1200 <= 0.97


@pytest.mark.slow
def test_clustered_intervals_cover_95_times_in_100_where_naive_ones_do_not() -> None:
    rng = np.random.default_rng(11)
    clustered = naive = 0
    problem = np.repeat(np.arange(150), 8)
    for seed in range(600):
        x = rng.random((150, 8)) < rng.random((150, 1))
        clustered += covers(stats.cluster_bootstrap(x.ravel(), problem, resamples=600, seed=seed), 0.5)
        naive += covers(stats.bootstrap_mean(x.ravel(), resamples=600, seed=seed), 0.5)
    assert 0.93 <= clustered / 600 <= 0.97
    assert naive / 600 < 0.85


def test_two_stage_intervals_err_on_the_wide_side() -> None:
    rng = np.random.default_rng(12)
    hits = 0
    for seed in range(300):
        rollouts = rng.random((60, 8)) < rng.random((60, 1))
        hits += covers(stats.two_stage_bootstrap(rollouts, resamples=600, seed=seed), 0.5)
    assert hits / 300 >= 0.94


def test_the_p_value_is_small_far_from_zero_and_never_zero() -> None:
    assert stats.bootstrap_mean([1.0, 2.0, 3.0], resamples=999).p == pytest.approx(2 / 1000)
    assert stats.bootstrap_mean([-1.0, 1.0] * 50).p == 1.0
    assert stats.bootstrap_mean([0.0, 0.0]).p == 1.0


def test_values_all_alike_give_an_interval_of_width_zero() -> None:
    found = stats.bootstrap_mean([0.25] * 10)
    assert (found.estimate, found.low, found.high) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.bootstrap_mean([]), "at least 2 problems, got 0"),
        (lambda: stats.bootstrap_mean([1.0]), "at least 2 problems, got 1"),
        (lambda: stats.bootstrap_mean([1.0, math.nan]), "x contains NaN"),
        (lambda: stats.bootstrap_mean([1.0, math.inf]), "x contains NaN or infinity"),
        (lambda: stats.bootstrap_mean([1.0, 2.0], resamples=0), "resamples must be at least 1, got 0"),
        (lambda: stats.bootstrap_mean([1.0, 2.0], level=95), "level must lie strictly between 0 and 1, got 95"),
        (lambda: stats.paired_bootstrap([1, 0], [1, 0, 1]), "got 2 and 3"),
        (lambda: stats.cluster_bootstrap([1, 0], ["a", "a"]), "at least 2 clusters, got 1"),
        (lambda: stats.cluster_bootstrap([1, 0], ["a"]), "got 2 and 1"),
        (lambda: stats.cluster_bootstrap([1, 0], [["a", "b"]]), "one label per entry"),
        (lambda: stats.cluster_bootstrap([1, 0], ["a", None]), "clusters contains None or NaN"),
        (lambda: stats.cluster_bootstrap([1, 0], np.array(["a", 1], object)), "clusters mixes kinds"),
        (lambda: stats.two_stage_bootstrap([[1, 0], []]), "problem 1 has no rollouts"),
        (lambda: stats.two_stage_bootstrap([[1, 0]]), "at least 2 problems, got 1"),
        (lambda: stats.two_stage_bootstrap([[1, 0], [math.nan]]), "rollouts of problem 1 contains NaN"),
        (lambda: stats.two_stage_bootstrap([[1, 0], [1]], resamples=-3), "got -3"),
    ],
)
def test_unusable_input_is_named(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
