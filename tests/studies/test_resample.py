"""Means over resampled problems: the same law as the one-column bootstrap, and shared between columns."""

from __future__ import annotations

import numpy as np
import pytest

from radmoe.errors import InputError
from radmoe.stats import cluster_bootstrap
from radmoe.studies.resample import as_interval, resample


def test_a_column_has_the_interval_of_the_cluster_bootstrap() -> None:
    rng = np.random.default_rng(0)
    x, clusters = rng.random(200), [f"p{i % 50}" for i in range(200)]
    ours = as_interval(resample(x[:, None], clusters, resamples=20_000), 0)
    theirs = cluster_bootstrap(x, clusters, resamples=20_000)
    assert (ours.estimate, ours.n) == (pytest.approx(theirs.estimate), theirs.n)
    assert (ours.low, ours.high) == (pytest.approx(theirs.low, abs=2e-3), pytest.approx(theirs.high, abs=2e-3))


def test_columns_share_their_resamples() -> None:
    x = np.random.default_rng(1).random(60)
    drawn = resample(np.column_stack([x, x - 0.25]), list(range(60)), resamples=300)
    estimate, draws = drawn.difference(0, 1)
    assert estimate == pytest.approx(0.25)
    assert np.allclose(draws, 0.25)


def test_what_is_not_a_number_is_left_out_of_its_column_only() -> None:
    table = np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, 7.0]])
    drawn = resample(table, ["a", "b", "c"], resamples=300)
    assert drawn.estimate.tolist() == [2.0, 6.0]


def test_rows_and_clusters_must_agree() -> None:
    with pytest.raises(InputError, match="2 rows need as many clusters"):
        resample(np.ones((2, 1)), ["a"], resamples=300)
