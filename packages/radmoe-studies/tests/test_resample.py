"""Means over resampled problems: the same law as the one-column bootstrap, and shared between columns."""

from __future__ import annotations

import numpy as np
import pytest

from radmoe.errors import InputError
from radmoe.evaluation.stats import cluster_bootstrap
from radmoe_studies.resample import Quantity, resample


def test_a_column_has_the_interval_of_the_cluster_bootstrap() -> None:
    rng = np.random.default_rng(0)
    x, clusters = rng.random(200), [f"p{i % 50}" for i in range(200)]
    ours = resample(x[:, None], clusters, resamples=20_000)
    theirs = cluster_bootstrap(x, clusters, resamples=20_000)
    assert (ours.estimate[0], ours.n) == (pytest.approx(theirs.estimate), theirs.n)
    assert ours.interval(0) == pytest.approx((theirs.low, theirs.high), abs=2e-3)


def test_columns_share_their_resamples() -> None:
    x = np.random.default_rng(1).random(60)
    drawn = resample(np.column_stack([x, x - 0.25]), list(range(60)), resamples=300)
    gap = drawn.difference(0, 1)
    assert gap.estimate == pytest.approx(0.25)
    assert np.allclose(gap.draws, 0.25)


def test_a_multiple_can_be_taken_off_draw_by_draw() -> None:
    one = Quantity(3.0, np.array([3.0, 4.0]), frozenset("ab"))
    left = one.minus(Quantity(1.0, np.array([1.0, 2.0]), frozenset("bc")), 2.0)
    assert left.estimate == 1.0
    assert left.draws.tolist() == [1.0, 0.0]
    assert left.n == 3


def test_n_counts_the_problems_that_have_a_number_and_not_their_rows() -> None:
    """Two configurations answered each of three problems, and one problem has no number in the second column."""
    table = np.array([[1.0, 1.0], [0.0, 0.0], [1.0, np.nan]] * 2)
    drawn = resample(table, ["a", "b", "c"] * 2, resamples=300)
    assert (drawn.n, drawn.mean(0).n, drawn.mean(1).n, drawn.difference(0, 1).n) == (3, 3, 2, 3)
    assert drawn.mean(1).problems == {"a", "b"}
    assert drawn.quantity(0.0, drawn.draws[:, 1], [1]).n == 2


def test_what_is_not_a_number_is_left_out_of_its_column_only() -> None:
    table = np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, 7.0]])
    drawn = resample(table, ["a", "b", "c"], resamples=300)
    assert drawn.estimate.tolist() == [2.0, 6.0]


def test_rows_and_clusters_must_agree() -> None:
    with pytest.raises(InputError, match="2 rows need as many clusters"):
        resample(np.ones((2, 1)), ["a"], resamples=300)
