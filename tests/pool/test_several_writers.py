"""Who may write to a pool: one process, or several that say they are workers; and what becomes of rollouts that come twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from pathlib import Path

import pytest

from planted_pools import faults_of
from radmoe.errors import PoolBusy, PoolIncomplete, PoolMismatch
from radmoe.pool import Pool, open_pool
from small_pools import rollout, same, writer


def _fill(path: str, name: str) -> None:
    with writer(Path(path), shard_bytes=4000, workers=True) as w:
        for i in range(12):
            w.add("shared", rollout(10, i))
            w.add(name, rollout(11, i))


@pytest.mark.slow
def test_several_processes_fill_shards_of_their_own(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fill, args=(str(tmp_path / "p"), f"own-{i}")) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    pool = open_pool(tmp_path / "p")
    assert len(pool) == 72
    assert pool.rollout_indices("shared") == list(range(36))
    for i in range(3):
        assert all(same(rollout(11, j), r) for j, r in enumerate(pool.group(f"own-{i}").rollouts))
    assert faults_of(tmp_path / "p") == []


def test_a_writer_may_wait_while_another_completes_the_pool(tmp_path: Path) -> None:
    early, late = writer(tmp_path / "p", workers=True), writer(tmp_path / "p", workers=True)
    early.add("a", rollout(5))
    early.close()
    assert len(open_pool(tmp_path / "p")) == 1
    late.add("b", rollout(6))
    with pytest.raises(PoolIncomplete):
        open_pool(tmp_path / "p")
    idle = writer(tmp_path / "p", workers=True)
    late.close()
    idle.close()
    assert open_pool(tmp_path / "p").problems == ["a", "b"]
    assert faults_of(tmp_path / "p") == []


def test_the_same_rollout_from_two_workers_is_named_not_lost(tmp_path: Path) -> None:
    one, two = writer(tmp_path / "p", workers=True), writer(tmp_path / "p", workers=True)
    one.add("a", rollout(5), rollout_index=3)
    two.add("a", rollout(6), rollout_index=3)
    one.close()
    with pytest.raises(PoolMismatch, match="token_data_00000 and token_data_00001 both hold rollout 3 of problem 'a'"):
        two.close()
    pool = Pool.recover(tmp_path / "p")
    assert len(pool) == 1
    assert same(pool.group("a").rollouts[0], rollout(5))
    (dropped,) = pool.dropped
    assert str(dropped) == (
        "rollout 3 of problem 'a' was there twice and differs: the older one, in token_data_00000, is kept; "
        "that in token_data_00001 is left out"
    )
    assert faults_of(tmp_path / "p") == []
    assert (pool.tokens, open_pool(tmp_path / "p").dropped) == (5, ())
    with writer(tmp_path / "p") as w:
        assert w.done("a") == 1
        w.add("a", rollout(7), rollout_index=0)
    assert [len(r) for r in open_pool(tmp_path / "p").group("a").rollouts] == [7, 5]


def test_the_same_rollout_written_twice_alike_is_kept_once(tmp_path: Path) -> None:
    pair = [writer(tmp_path / "p", workers=True) for _ in range(2)]
    for w in pair:
        w.add("a", rollout(5), rollout_index=3, text="same")
        w.add("a", rollout(6), rollout_index=4, text=f"by {id(w)}")
        w.abandon()
    with writer(tmp_path / "p") as again:
        assert again.done("a") == 2
        again.abandon()
    pool = Pool.recover(tmp_path / "p")
    assert [(d.rollout_index, d.identical) for d in pool.dropped] == [(3, True), (4, False)]
    assert pool.rollout_indices("a") == [3, 4]
    assert pool.texts("a") == ["same", f"by {id(pair[0])}"]
    assert faults_of(tmp_path / "p") == []


def test_a_live_writer_cannot_be_recovered_away(tmp_path: Path) -> None:
    w = writer(tmp_path / "p")
    for _ in range(2):  # before its first rollout, and after
        with pytest.raises(PoolBusy, match=f"is being written by process {os.getpid()} on {socket.gethostname()}"):
            Pool.recover(tmp_path / "p")
        w.add("a", rollout(5))
    w.close()
    assert len(Pool.recover(tmp_path / "p")) == 2


@pytest.mark.parametrize(("first", "second"), [(False, False), (False, True), (True, False)])
def test_a_second_writer_is_refused_unless_both_are_workers(tmp_path: Path, first: bool, second: bool) -> None:
    w = writer(tmp_path / "p", workers=first)
    with pytest.raises(PoolBusy, match=f"is being written by process {os.getpid()} on .*: wait"):
        writer(tmp_path / "p", workers=second)
    w.add("a", rollout(5))
    w.close()
    writer(tmp_path / "p", workers=second).close()
    assert len(open_pool(tmp_path / "p")) == 1


def _hold_and_die(path: str) -> None:
    w = writer(Path(path))
    w.add("a", rollout(5))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_dead_writer_blocks_nobody(tmp_path: Path) -> None:
    worker = multiprocessing.get_context("spawn").Process(target=_hold_and_die, args=(str(tmp_path / "p"),))
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    assert (tmp_path / "p" / "pool.writer").read_text() == f"{worker.pid} {socket.gethostname()}\n"
    with writer(tmp_path / "p") as w:
        assert w.done("a") == 1


def test_a_writer_that_is_refused_holds_nothing(tmp_path: Path) -> None:
    writer(tmp_path / "p").close()
    with pytest.raises(PoolMismatch):
        writer(tmp_path / "p", task="another")
    writer(tmp_path / "p").close()
