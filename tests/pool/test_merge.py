"""Pools of several workers become one, without a shard being rewritten."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from planted_pools import write_pool
from radmoe.errors import InputError, PoolMismatch, PoolNotFound
from radmoe.pool import PoolWriter, merge_pools, open_pool
from radmoe.selection.selector import select
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup


def shares(made: list[PlantedGroup], root: Path) -> list[Path]:
    """What three workers wrote: some problems each, and of the last problem some rollouts each."""
    paths = []
    for worker in range(3):
        path = root / f"worker-{worker}"
        with PoolWriter(path, shape=made[0].group.shape, vocab=planted.vocab(), model="planted") as writer:
            for place in reversed(range(len(made))):
                group = made[place].group
                for i, rollout in enumerate(group.rollouts):
                    if (i if place == len(made) - 1 else place) % 3 == worker:
                        name, text = group.problem_id, made[place].texts[i]
                        writer.add(name, rollout, kind="math", rollout_index=i, problem_index=place, text=text)
        paths.append(path)
    return paths


def test_a_merged_pool_is_the_pool_of_one_worker(made: list[PlantedGroup], shared_pool: Path, tmp_path: Path) -> None:
    pool, whole = merge_pools(shares(made, tmp_path), tmp_path / "all"), open_pool(shared_pool)
    assert pool.verify() == []
    assert pool.problems == whole.problems
    assert pool.kinds == whole.kinds
    assert len(pool.shards) == 3
    for problem in pool.problems:
        assert pool.rollout_indices(problem) == whole.rollout_indices(problem)
        assert pool.texts(problem) == whole.texts(problem)
        one, other = select(pool.group(problem)), select(whole.group(problem))
        assert (one.index, one.basin, one.anchors) == (other.index, other.basin, other.anchors)
        assert np.array_equal(one.density, other.density, equal_nan=True)


def test_shards_are_linked_not_rewritten(made: list[PlantedGroup], tmp_path: Path) -> None:
    paths = shares(made, tmp_path)
    merge_pools(paths, tmp_path / "all")
    column = "token_data_00000/moe_topk_expert_ids.int16.b2"
    assert (paths[0] / column).samefile(tmp_path / "all" / column)
    assert (paths[2] / column).samefile(tmp_path / "all" / column.replace("00000", "00002"))
    for path in paths:
        assert open_pool(path).verify() == []


def test_where_links_cannot_be_made_shards_are_copied(
    made: list[PlantedGroup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    assert merge_pools(shares(made, tmp_path), tmp_path / "all").verify() == []


def test_a_merged_pool_can_be_appended_to(made: list[PlantedGroup], tmp_path: Path) -> None:
    pool = merge_pools(shares(made, tmp_path), tmp_path / "all")
    before = len(pool)
    with PoolWriter(pool.path, shape=pool.router, vocab=pool.vocab, model="planted") as writer:
        assert writer.has(made[0].group.problem_id, 0)
        writer.add("new", made[0].group.rollouts[0], kind="math")
    assert len(open_pool(pool.path)) == before + 1


def test_pools_that_do_not_belong_together_are_refused_and_nothing_is_left(
    made: list[PlantedGroup], shared_pool: Path, tmp_path: Path
) -> None:
    other_model = tmp_path / "model"
    with PoolWriter(other_model, shape=made[0].group.shape, vocab=planted.vocab(), model="another") as writer:
        writer.add("x", made[0].group.rollouts[0])
    other_task = write_pool(tmp_path / "task", made[:1], task="math-9")
    other_words = tmp_path / "words"
    tokenizer = type(planted.tokenizer()).from_str(planted.tokenizer().to_str())
    tokenizer.add_tokens(["radmoe"])
    with PoolWriter(other_words, shape=made[0].group.shape, vocab=tokenizer, model="planted") as writer:
        writer.add("x", made[0].group.rollouts[0])
    no_weights = tmp_path / "ids"
    with PoolWriter(no_weights, shape=made[0].group.shape, vocab=planted.vocab(), model="planted") as writer:
        rollout = made[0].group.rollouts[0]
        writer.add("x", type(rollout)(rollout.token_ids, rollout.expert_ids))
    same = write_pool(tmp_path / "same", made[:1])
    out = tmp_path / "out"
    for second, message in (
        (other_model, "model = 'planted' and .* 'another': only pools of one run record merge"),
        (other_task, "task = None and .* 'math-9'"),
        (other_words, "vocab = "),
        (no_weights, "they must agree"),
        (same, r"both hold rollout 0 of problem 'planted-0000'"),
    ):
        with pytest.raises(PoolMismatch, match=message):
            merge_pools([shared_pool, second], out)
    with pytest.raises(InputError, match="at least two pools, got 1"):
        merge_pools([shared_pool], out)
    with pytest.raises(PoolNotFound, match="there is no pool"):
        merge_pools([shared_pool, tmp_path / "nowhere"], out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ids", "model", "same", "task", "words"]


def test_an_existing_directory_is_not_merged_into(made: list[PlantedGroup], tmp_path: Path) -> None:
    paths = shares(made, tmp_path)
    with pytest.raises(PoolMismatch, match="exists already: give a new directory"):
        merge_pools(paths[:2], paths[2])


def test_problems_of_which_pools_say_different_kinds_are_refused(made: list[PlantedGroup], tmp_path: Path) -> None:
    group = made[0].group
    for index, kind in enumerate(("math", "code")):
        with PoolWriter(tmp_path / kind, shape=group.shape, vocab=planted.vocab(), model="planted") as writer:
            writer.add("p", group.rollouts[index], kind=kind, rollout_index=index)  # type: ignore[arg-type]
    with pytest.raises(PoolMismatch, match=r"problem 'p' as math, .* as code"):
        merge_pools([tmp_path / "math", tmp_path / "code"], tmp_path / "out")
