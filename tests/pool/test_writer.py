"""What a writer promises: nothing acknowledged is lost, nothing unfit gets in."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planted_pools import RECIPE, faults_of, write_pool
from radmoe.errors import (
    InputError,
    PoolError,
    PoolIncomplete,
    PoolMismatch,
    PoolNotFound,
    PoolWriteError,
    RolloutError,
)
from radmoe.pool import Pool, PoolWriter, open_pool
from radmoe.pool.schema import JOURNAL
from radmoe.types import Rollout, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup
from small_pools import SHAPE, rollout, same, writer


def test_what_is_written_reads_back_the_same(made: list[PlantedGroup], shared_pool: Path) -> None:
    pool = open_pool(shared_pool)
    assert pool.problems == [m.group.problem_id for m in made]
    for m in made:
        stored = pool.group(m.group.problem_id)
        assert all(same(a, b) for a, b in zip(m.group.rollouts, stored.rollouts, strict=True))
        for a, b in zip(m.group.rollouts, stored.rollouts, strict=True):
            assert np.array_equal(a.topk_logprobs.astype(np.float16), b.topk_logprobs)
        assert pool.texts(m.group.problem_id) == m.texts


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    layers=st.integers(1, 5),
    top_k=st.integers(1, 4),
    weights=st.booleans(),
    topk=st.sampled_from([0, 3]),
    shard_bytes=st.sampled_from([1, 2 << 30]),
)
def test_any_pool_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    layers: int,
    top_k: int,
    weights: bool,
    topk: int,
    shard_bytes: int,
) -> None:
    shape = RouterShape(layers, 9, top_k)
    rollouts = [rollout(n, i, shape, weights=weights, topk=topk) for i, n in enumerate(lengths)]
    path = tmp_path_factory.mktemp("any") / "pool"
    options = {"shape": shape, "vocab": planted.vocab(), "model": "any", "shard_bytes": shard_bytes}
    with PoolWriter(path, **options) as w:  # type: ignore[arg-type]
        for r in rollouts:
            w.add("p", r)
    pool = open_pool(path)
    assert len(pool.shards) == (len(lengths) if shard_bytes == 1 else 1)
    assert all(same(a, b) for a, b in zip(rollouts, pool.group("p").rollouts, strict=True))
    assert faults_of(path) == []


@pytest.mark.slow
def test_long_rollouts_span_many_chunks(tmp_path: Path) -> None:
    shape = RouterShape(24, 64, 8)  # 384 bytes a row and column: 4 MiB after 10,922 tokens
    rollouts = [rollout(9000, i, shape) for i in range(3)]
    with PoolWriter(tmp_path / "p", shape=shape, vocab=planted.vocab(), model="long") as w:
        for r in rollouts:
            w.add("p", r)
    stored = open_pool(tmp_path / "p").group("p").rollouts
    for a, b in zip(rollouts, stored, strict=True):
        assert same(a, b)
        ids, mass = b.rows(8990, 9010)
        assert np.array_equal(ids, a.expert_ids[8990:])
        assert np.array_equal(mass, a.weights[8990:])


def test_an_open_pool_says_it_is_incomplete_and_how_much_is_safe(tmp_path: Path) -> None:
    w = writer(tmp_path / "p")
    w.add("a", rollout(5))
    w.add("a", rollout(6))
    with pytest.raises(PoolIncomplete, match=rf"2 rollouts are safe.* written by process {os.getpid()} on "):
        open_pool(tmp_path / "p")
    w.abandon()
    with pytest.raises(PoolIncomplete, match="verify --recover"):
        open_pool(tmp_path / "p")
    assert len(Pool.recover(tmp_path / "p")) == 2
    assert len(open_pool(tmp_path / "p")) == 2


def test_an_exception_leaves_what_was_added_recoverable(tmp_path: Path) -> None:
    with pytest.raises(RolloutError, match="the router is 3x8"), writer(tmp_path / "p") as w:
        w.add("a", rollout(5))
        w.add("a", rollout(5, shape=RouterShape(4, 8, 2)))
    assert len(Pool.recover(tmp_path / "p")) == 1


def test_a_torn_record_is_dropped_and_all_before_it_kept(tmp_path: Path) -> None:
    w = writer(tmp_path / "p")
    for i in range(3):
        w.add("a", rollout(5, i))
    w.abandon()
    journal = tmp_path / "p" / "token_data_00000" / JOURNAL
    os.truncate(journal, journal.stat().st_size - 7)
    assert len(Pool.recover(tmp_path / "p")) == 2
    assert same(open_pool(tmp_path / "p").group("a").rollouts[1], rollout(5, 1))


def test_resuming_keeps_what_is_there_and_knows_what_is_done(tmp_path: Path) -> None:
    first = writer(tmp_path / "p")
    first.add("a", rollout(5), rollout_index=0)
    first.abandon()
    with writer(tmp_path / "p") as second:
        assert (second.done("a"), second.done("b")) == (1, 0)
        with pytest.raises(PoolMismatch, match="already holds rollout 0 of problem 'a'"):
            second.add("a", rollout(5), rollout_index=0)
        second.add("b", rollout(6), rollout_index=0)
    with writer(tmp_path / "p") as third:
        assert (third.done("a"), third.done("b")) == (1, 1)
        third.add("a", rollout(7))
    pool = open_pool(tmp_path / "p")
    assert pool.rollout_indices("a") == [0, 1]
    assert [len(r) for r in pool.group("a").rollouts] == [5, 7]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": RouterShape(4, 8, 2)}, "layers = 3, this writer has 4"),
        ({"model": "other"}, "model = 'test', this writer has 'other'"),
        ({"sampling": {"temperature": 1}}, "sampling.temperature = None"),
    ],
)
def test_a_writer_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with writer(tmp_path / "p") as w:
        w.add("a", rollout(5))
    options = {"shape": SHAPE, "vocab": planted.vocab(), "model": "test"} | change
    with pytest.raises(PoolMismatch, match=message):
        PoolWriter(tmp_path / "p", **options)  # type: ignore[arg-type]
    assert len(open_pool(tmp_path / "p")) == 1


def test_columns_must_agree_across_rollouts_and_writers(tmp_path: Path) -> None:
    with writer(tmp_path / "p") as w:
        w.add("a", rollout(5))
        with pytest.raises(PoolMismatch, match="expert_weights"):
            w.add("a", rollout(5, weights=False))
        w.add("a", rollout(6))
    with writer(tmp_path / "p") as again, pytest.raises(PoolMismatch, match="topk_logprobs"):
        again.add("a", rollout(5, topk=3))
    assert len(open_pool(tmp_path / "p")) == 2


def test_what_does_not_fit_the_router_or_vocabulary_is_refused(tmp_path: Path) -> None:
    with writer(tmp_path / "p") as w:
        with pytest.raises(RolloutError, match="4 layers, top-2; the router is 3x8 top-2"):
            w.add("a", rollout(5, shape=RouterShape(4, 8, 2)))
        with pytest.raises(RolloutError, match=r"outside \[0, 8\)"):
            w.add("a", rollout(50, shape=RouterShape(3, 60, 2)))
        big = rollout(5)
        with pytest.raises(RolloutError, match="wrong tokenizer"):
            w.add("a", Rollout(big.token_ids + 10_000, big.expert_ids, big.weights))
        with pytest.raises(InputError, match="gives rollout_index as -1, it must be a number that is not negative"):
            w.add("a", rollout(5), rollout_index=-1)
        w.add("a", rollout(5))
    with pytest.raises(PoolError, match="closed"):
        w.add("a", rollout(5))
    assert len(open_pool(tmp_path / "p")) == 1


def test_prompt_routing_is_kept_once_and_read_back(tmp_path: Path) -> None:
    prompt = rollout(4, 9)
    with writer(tmp_path / "p") as w:
        w.add("a", rollout(5), prompt_routing=(prompt.expert_ids, prompt.weights))
        w.add("a", rollout(6))
        with pytest.raises(RolloutError, match="prompt weights have shape"):
            w.add("a", rollout(6), prompt_routing=(prompt.expert_ids, prompt.weights[:1]))
    shard = open_pool(tmp_path / "p").shards[0]
    from radmoe.pool.schema import PROMPT_IDS, PROMPT_WEIGHTS

    assert np.array_equal(shard.read(PROMPT_IDS, 0).reshape(4, 3, 2), prompt.expert_ids)
    assert np.array_equal(shard.read(PROMPT_WEIGHTS, 0).reshape(4, 3, 2), prompt.weights)
    assert len(shard.read(PROMPT_IDS, 1)) == 0
    assert faults_of(tmp_path / "p") == []


def test_a_pool_of_nothing_opens_empty(tmp_path: Path) -> None:
    writer(tmp_path / "p").close()
    assert (len(open_pool(tmp_path / "p")), open_pool(tmp_path / "p").problems) == (0, [])


def test_a_directory_that_is_no_pool_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PoolMismatch, match="not empty and not a pool"):
        writer(tmp_path)
    with pytest.raises(PoolNotFound, match="is not a pool"):
        open_pool(tmp_path)
    with pytest.raises(PoolNotFound, match="is not a pool"):
        Pool.recover(tmp_path)


@pytest.mark.parametrize("names", [("tokenizer.json",), ("tokenizer.json", "tokenizer.bytes")])
def test_a_start_that_was_stopped_before_the_header_is_finished(tmp_path: Path, names: tuple[str, ...]) -> None:
    writer(tmp_path / "whole").close()
    (tmp_path / "p").mkdir()
    for name in names:
        (tmp_path / "p" / name).write_bytes((tmp_path / "whole" / name).read_bytes())
    (tmp_path / "p" / f".pool.open.json.{'0' * 16}.tmp").write_bytes(b"{")
    writer(tmp_path / "p").close()
    assert faults_of(tmp_path / "p") == []
    assert sorted(p.name for p in (tmp_path / "p").iterdir()) == sorted(p.name for p in (tmp_path / "whole").iterdir())


def test_a_directory_with_another_tokenizer_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(PoolMismatch, match="not empty and not a pool"):
        writer(tmp_path)
    assert (tmp_path / "tokenizer.json").read_text() == "{}"


def _fill_until_refused(path: str, limit: int, result: multiprocessing.Queue[int | str]) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    w = writer(Path(path))
    w.add("a", rollout(20, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # the kernel refuses to grow any file past this
    done = 1
    try:
        for i in range(1, 1000):
            w.add("a", rollout(20, i))
            done += 1
    except PoolWriteError as e:
        result.put(done)
        result.put(str(e))
    w.abandon()


@pytest.mark.slow
def test_a_full_disk_is_one_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    result: multiprocessing.Queue[int | str] = context.Queue()
    worker = context.Process(target=_fill_until_refused, args=(str(tmp_path / "p"), 10_000, result))
    worker.start()
    done, message = result.get(timeout=60), str(result.get(timeout=60))
    worker.join()
    assert "cannot write" in message
    assert "make room or make it writable" in message
    assert len(Pool.recover(tmp_path / "p")) == done
    stored = open_pool(tmp_path / "p").group("a").rollouts
    assert all(same(rollout(20, i), r) for i, r in enumerate(stored))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("spoiled", "reason"),
    [(rollout(20, 7), "\ud800"), (rollout(20, 7, weights=False), "stop")],
    ids=["text", "columns"],
)
def test_a_group_is_added_whole_or_not_at_all(tmp_path: Path, first: bool, spoiled: Rollout, reason: str) -> None:
    with writer(tmp_path / "p") as w:
        if not first:
            w.add_group("a", [rollout(20, i) for i in range(3)], texts=["x"] * 3, finish_reasons=["stop"] * 3)
        with pytest.raises((RolloutError, PoolMismatch)):
            w.add_group("b", [rollout(20, 5), spoiled], texts=["x", "y"], finish_reasons=["stop", reason])
        assert w.done("b") == 0
        w.add_group("b", [rollout(20, i) for i in (5, 6)], texts=["x", "y"], finish_reasons=["stop", None], kind="math")
    pool = open_pool(tmp_path / "p")
    assert {group.problem_id: len(group) for group in pool.groups()} == ({} if first else {"a": 3}) | {"b": 2}
    assert all(same(rollout(20, 5 + i), r) for i, r in enumerate(pool.group("b").rollouts))
    assert pool.texts("b") == ["x", "y"]
    assert pool.verify() == []


def test_a_disk_that_refuses_everything_is_one_clear_error() -> None:
    with pytest.raises(PoolWriteError, match="cannot write /proc/radmoe-pool"):
        writer(Path("/proc/radmoe-pool"))


def test_planted_pools_are_the_same_every_time(made: list[PlantedGroup], tmp_path: Path) -> None:
    again = list(planted.groups(RECIPE))
    assert all(
        same(a, b)
        for m, n in zip(made, again, strict=True)
        for a, b in zip(m.group.rollouts, n.group.rollouts, strict=True)
    )
    first, second = (write_pool(tmp_path / name, again[:1]) for name in "ab")
    shard = "token_data_00000/moe_topk_expert_ids.int16.b2"
    assert (first / shard).read_bytes() == (second / shard).read_bytes()
