"""Where rollouts stand in a drawing: basins together, and distances kept."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from radmoe.explorer.layout import DENSE, by_basin, plane
from radmoe.selection.selector import select
from radmoe_lab.planted import PlantedGroup


def test_the_pick_s_basin_comes_first_and_basins_stay_together(made: list[PlantedGroup]) -> None:
    picked = select(made[1].group)
    runs = np.flatnonzero(picked.located)
    order = runs[by_basin(picked, runs)]
    assert sorted(order) == sorted(runs)
    assert set(order[: len(picked.basin)]) == set(picked.basin)
    roots = picked.roots[order]
    assert len(set(roots)) == 1 + int(np.count_nonzero(np.diff(roots)))


@given(st.integers(2, 12), st.integers(0, 999))
def test_a_plane_keeps_distances_that_lie_in_one(n: int, seed: int) -> None:
    points = np.random.default_rng(seed).random((n, 2)) * 0.5
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    found = plane((1 - apart).astype(np.float32))
    assert np.allclose(np.linalg.norm(found[:, None] - found[None], axis=-1), apart, atol=1e-3)


def test_many_rollouts_are_placed_as_few_are() -> None:
    points = np.random.default_rng(1).random((DENSE + 100, 2)) * 0.5
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    places = plane((1 - apart).astype(np.float32))
    assert np.allclose(np.linalg.norm(places[:, None] - places[None], axis=-1), apart, atol=1e-3)
