"""Compact pools: what they leave out, what that saves, and that no selection changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_pools import faults_of, write_pool
from radmoe.errors import InputError, PoolMismatch, ReadoutError, RolloutError
from radmoe.pool import Profile, open_pool
from radmoe.selection.readout import windows
from radmoe.selection.selector import select
from radmoe.types import RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted, PlantedGroup


def routing_bytes(path: Path) -> int:
    return sum(
        entry["bytes"]
        for shard in open_pool(path).shards.values()
        for name, entry in shard.meta["columns"].items()
        if name.startswith("moe_")
    )


def test_sorting_experts_changes_no_selection(made: list[PlantedGroup], shared_pool: Path, tmp_path: Path) -> None:
    path = write_pool(tmp_path / "sorted", made, profile=Profile(sort_experts=True))
    assert faults_of(path) == []
    for full, compact in zip(open_pool(shared_pool).groups(), open_pool(path).groups(), strict=True):
        ids = compact.rollouts[0].expert_ids
        assert (np.diff(ids, axis=-1) > 0).all()
        for options in ({}, {"kernel": "binary"}):
            a, b = select(full, **options), select(compact, **options)
            assert (a.index, a.basin) == (b.index, b.basin)
            assert np.array_equal(a.density, b.density, equal_nan=True)


def test_sorting_pays_in_an_ids_only_pool(tmp_path: Path) -> None:
    groups = list(
        planted.groups(Planted(shape=RouterShape(8, 128, 8), problems=1, rollouts=8, tokens=600, weights=False))
    )
    plain = write_pool(tmp_path / "plain", groups)
    compact = write_pool(tmp_path / "sorted", groups, profile=Profile(sort_experts=True))
    assert routing_bytes(compact) < 0.95 * routing_bytes(plain)


def test_an_ids_only_pool_weighs_every_expert_the_same(made: list[PlantedGroup], tmp_path: Path) -> None:
    groups = list(planted.groups(Planted(problems=1, rollouts=8, tokens=80, weights=False)))
    pool = open_pool(write_pool(tmp_path / "ids", groups))
    assert not pool.has_weights
    assert pool.group("planted-0000").rollouts[0].weights is None
    assert select(pool.group("planted-0000")).index == select(groups[0].group).index


def test_a_layer_subset_selects_as_those_layers_of_the_whole(made: list[PlantedGroup], tmp_path: Path) -> None:
    path = write_pool(tmp_path / "shallow", made, profile=Profile(layers=(0, 1)))
    pool = open_pool(path)
    assert faults_of(path) == []
    assert (pool.shape.layers, pool.router.layers) == (2, 12)
    for m in made:
        a, b = select(m.group, layers=[0, 1]), select(pool.group(m.group.problem_id))
        assert a.index == b.index
        assert np.array_equal(a.density, b.density, equal_nan=True)
    meta = pool.shards[0].meta
    assert meta["captured_bytes"] == 6 * sum(
        meta["columns"][name]["rows"] * meta["columns"][name]["per_row"] * 2
        for name in ("moe_topk_expert_ids", "moe_topk_expert_weights")
    )


def test_a_window_only_pool_serves_its_readouts_and_names_the_rest(
    made: list[PlantedGroup], shared_pool: Path, tmp_path: Path
) -> None:
    path = write_pool(tmp_path / "windows", made, profile=Profile(readouts=("delimiter@16", "boundary@marker")))
    pool = open_pool(path)
    assert faults_of(path) == []
    assert routing_bytes(path) < 0.25 * routing_bytes(shared_pool)
    for m in made:
        stored = pool.group(m.group.problem_id)
        for readout in ("delimiter@16", "delimiter@marker", "delimiter@8", "boundary@marker"):
            a, b = select(m.group, readout=readout), select(stored, readout=readout)
            assert a.index == b.index
            assert np.array_equal(a.density, b.density, equal_nan=True)
        with pytest.raises(RolloutError, match=r"has the routing of \d+ of its tokens, not of all in"):
            select(stored, readout="trajectory@16")
        with pytest.raises(RolloutError, match="use a readout it was captured for"):
            stored.rollouts[0].expert_ids  # noqa: B018
        assert np.array_equal(stored.rollouts[0].token_ids, m.group.rollouts[0].token_ids)


@pytest.mark.parametrize("readout", ["closing@16", "closing@-16", "delimiter@span", "all"])
def test_a_window_only_pool_keeps_the_rows_of_whole_answers_and_of_their_ends(
    made: list[PlantedGroup], tmp_path: Path, readout: str
) -> None:
    pool = open_pool(write_pool(tmp_path / "windows", made, profile=Profile(readouts=(readout,))))
    assert pool.profile.readouts == (readout,)
    assert faults_of(pool.path) == []
    for m in made:
        stored = pool.group(m.group.problem_id)
        for rollout in stored.rollouts:
            kept = [
                t for start, stop in windows(readout, rollout.token_ids, pool.vocab, "math") for t in range(start, stop)
            ]
            assert rollout.positions.tolist() == kept
        a, b = select(m.group, readout=readout), select(stored, readout=readout)
        assert a.index == b.index
        assert np.array_equal(a.density, b.density, equal_nan=True)


def test_a_compact_pool_can_be_appended_to_under_the_same_profile(made: list[PlantedGroup], tmp_path: Path) -> None:
    profile = Profile(layers=(0, 3), readouts=("delimiter@16",))
    write_pool(tmp_path / "p", made[:1], profile=profile)
    write_pool(tmp_path / "p", made[1:2], profile=profile)
    assert open_pool(tmp_path / "p").problems == [m.group.problem_id for m in made[:2]]
    with pytest.raises(PoolMismatch, match="was made with profile"):
        write_pool(tmp_path / "p", made[2:3])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layers": (3, 1)}, InputError, "ascending"),
        ({"layers": ()}, InputError, "distinct, ascending"),
        ({"layers": (-1, 2)}, InputError, "not negative"),
        ({"readouts": ()}, InputError, "name at least one"),
        ({"readouts": ("foo@16",)}, ReadoutError, "unknown readout family"),
    ],
)
def test_profiles_that_make_no_sense_are_refused(options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Profile(**options)


def test_a_layer_the_router_lacks_is_refused(made: list[PlantedGroup], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="profile layer 12 does not exist: the router has 12 layers"):
        write_pool(tmp_path / "p", made, profile=Profile(layers=(0, 12)))
    assert not (tmp_path / "p").exists()
