"""Problems are deleted from a pool: nothing of them is left, everything else is as it was, and a kill leaves one or the other."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from full_pools import KINDS, PROBLEMS, content, fill
from malformed_journals import joined, split
from planted_pools import graded_pool
from radmoe.errors import InputError, PoolBusy, PoolCorrupt, PoolError, PoolIncomplete
from radmoe.grading.labels import read_labels
from radmoe.pool import Pool, open_pool, schema
from radmoe.pool.tables import BEHAVIOUR_FIELDS, read_table, write_table
from radmoe_lab.planted import PlantedGroup
from small_pools import SHAPE, rollout, writer


def written(path: Path) -> set[tuple[str, int, int]]:
    """The files of a pool, each with what changes when it is written anew."""
    return {(p.name, p.stat().st_ino, p.stat().st_mtime_ns) for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_what_stays_is_as_it_was(tmp_path: Path, kind: str) -> None:
    before = open_pool(fill(tmp_path / "pool", kind))
    wanted = {problem: content(before, problem) for problem in PROBLEMS}
    captured = before.routing_bytes()[0]
    left = before.delete({"b"})
    assert left.verify() == []
    assert left.problems == ["a", "c", "d"]
    assert {problem: content(left, problem) for problem in left.problems} == {p: wanted[p] for p in left.problems}
    assert left.meta["run"] == before.meta["run"]
    gone = sum(fields["tokens"] for fields, *_ in wanted["b"])  # type: ignore[index, call-overload]
    assert left.routing_bytes()[0] == captured - gone * SHAPE.layers * SHAPE.top_k * (2 if kind == "sorted ids" else 4)


def test_no_file_that_held_the_problem_is_left(made: list[PlantedGroup], tmp_path: Path) -> None:
    path, name = graded_pool(tmp_path / "pool", made), made[1].group.problem_id
    rows = [{"problem_id": each.group.problem_id, "rollout_index": 0, "behaviour": "one"} for each in made]
    write_table(BEHAVIOUR_FIELDS.empty_table().from_pylist(rows, BEHAVIOUR_FIELDS), path / schema.BEHAVIOURS)
    before = written(path)
    left = open_pool(path).delete([name])
    kept = {each.group.problem_id for each in made} - {name}
    assert set(left.problems) == set(read_labels(path)) == kept
    assert set(read_table(path / schema.BEHAVIOURS, BEHAVIOUR_FIELDS)["problem_id"].to_pylist()) == kept
    old = {schema.TOKENIZER_JSON, schema.VOCAB_TABLE, schema.LOCK}  # that say nothing of a problem
    assert {name for name, *_ in written(path) & before} == old
    assert [each.name for each in path.rglob("*") if each.name.startswith((".", schema.JOURNAL))] == []
    assert sum(shard.meta["runs"] for shard in left.shards.values()) == len(left)


def test_shards_without_the_problem_are_not_touched(tmp_path: Path) -> None:
    path = fill(tmp_path / "pool", shard_bytes=1)  # a shard for each rollout
    before = {shard: written(shard) for shard in path.glob("token_data_*")}
    left = open_pool(path).delete({"d"})
    assert len(left.shards) == 12
    assert {shard: written(shard) for shard in path.glob("token_data_*")}.items() <= before.items()


def test_every_problem_can_be_deleted_and_the_pool_goes_on(tmp_path: Path) -> None:
    path = fill(tmp_path / "pool")
    left = open_pool(path).delete(PROBLEMS)
    assert (left.problems, left.shards, left.verify()) == ([], {}, [])
    assert fill(path) == path
    assert open_pool(path).problems == list(PROBLEMS)
    assert open_pool(path).verify() == []


def test_rows_that_no_run_points_to_leave_with_it(tmp_path: Path) -> None:
    """Recovery leaves a duplicate in its shard, and a record that it refuses in a file beside it."""
    path = tmp_path / "pool"
    for number in range(2):
        half = writer(path)
        half._explicit.clear()
        half.add("a", rollout(9, seed=7), rollout_index=0)
        half.add("b", rollout(9, seed=number), rollout_index=0, text="the secret of b")
        half.abandon()
        if number:
            (journal,) = path.glob("*/journal.bin")
            head, *records = split(journal.read_bytes())
            journal.write_bytes(joined([head, *records, ({"problem_id": "b"}, b"the secret of b")]))
    pool = Pool.recover(path)
    assert len(pool.dropped) == 3
    assert len([*path.glob("*/journal.refused")]) == 1
    left = pool.delete(["b"])
    assert [shard.meta["runs"] for shard in left.shards.values()] == [1]
    assert [*path.glob("*/journal.*")] == []


def test_a_problem_that_is_not_there_is_refused_and_nothing_is_deleted(tmp_path: Path) -> None:
    path = fill(tmp_path / "pool")
    before = written(path)
    with pytest.raises(InputError, match="has no problem 'e'; it has 4, such as 'a'"):
        open_pool(path).delete(["a", "e"])
    assert written(path) == before


def test_damage_is_not_copied_into_a_sound_shard(tmp_path: Path) -> None:
    path = fill(tmp_path / "pool", shard_bytes=1 << 20)
    (column,) = path.glob("*/moe_topk_expert_ids*")
    data = bytearray(column.read_bytes())
    data[len(data) // 2] ^= 1
    column.write_bytes(data)
    before = written(path)
    with pytest.raises(PoolCorrupt, match=r"new shards would hide it: .*moe_topk_expert_ids"):
        open_pool(path).delete(["a"])
    assert written(path) == before


def test_a_pool_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    path = fill(tmp_path / "pool")
    opened = open_pool(path)
    with writer(path, **KINDS["whole"]):
        with pytest.raises(PoolBusy, match=f"is being written by process {os.getpid()}"):
            opened.delete(["a"])
        with pytest.raises(PoolIncomplete, match=f"it is being written by process {os.getpid()}"):
            open_pool(path)
    assert open_pool(path).problems == list(PROBLEMS)


def test_a_forged_note_of_what_is_deleted_is_refused(tmp_path: Path) -> None:
    path = fill(tmp_path / "pool")
    body = schema.read_json(path / schema.POOL_JSON)
    (path / schema.POOL_JSON).unlink()
    (path / schema.OPEN_JSON).write_bytes(schema.seal_json(body | {"without": [5]}))
    with pytest.raises(PoolCorrupt, match=re.escape("gives without[0] as 5, it must be a text")):
        Pool.recover(path)


def operations(path: Path, work: Callable[[], object], *, kill_at: int | None = None) -> int | None:
    """How many file operations `work` does in `path`; None where it was killed before the one of this number."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        count, writing = 0, os.O_WRONLY | os.O_RDWR | os.O_CREAT

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal count
            changes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
            opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & writing
            if (changes or opens) and str(path) in str(arguments[0]):
                if count == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1

        try:
            sys.addaudithook(watch)
            work()
            os.write(write, str(count).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        _, status = os.waitpid(child, 0)
        if kill_at is not None and os.WIFSIGNALED(status):
            return None
        return int(said.read())


@pytest.mark.slow
def test_a_kill_at_any_file_operation_leaves_the_pool_with_the_problem_or_without(tmp_path: Path) -> None:
    """Half of what the kills leave is recovered, the other half finished by the next writer."""
    whole = fill(tmp_path / "whole", n=2)  # two shards
    wanted = {problem: content(open_pool(whole), problem) for problem in PROBLEMS}
    path, states = tmp_path / "pool", Counter[str]()
    count = operations(shutil.copytree(whole, path), lambda: open_pool(path).delete({"b"}))
    assert count is not None
    for number, kill in enumerate([*range(0, count, 3), count - 1, count]):
        shutil.rmtree(path)
        shutil.copytree(whole, path)
        done = operations(path, lambda: open_pool(path).delete({"b"}), kill_at=kill)
        assert done in (None, count)
        try:
            states["without" if "b" not in open_pool(path).problems else "with"] += 1
        except PoolIncomplete:
            states["incomplete"] += 1
        if number % 2:
            Pool.recover(path)
        else:  # a writer that goes on and adds nothing
            writer(path).close()
        left = open_pool(path)
        assert left.verify() == []
        assert {problem: content(left, problem) for problem in left.problems} == {p: wanted[p] for p in left.problems}
        assert set(wanted) - set(left.problems) <= {"b"}
        temporary = ".tmp" if "b" not in left.problems else "-"  # else the next writer removes one
        assert [each for each in path.rglob("*") if each.name.endswith((temporary, "journal.bin", "open.json"))] == []
    assert "b" not in left.problems
    assert min(states[name] for name in ("with", "incomplete", "without")) > 0


@pytest.mark.slow
def test_readers_get_what_was_written_or_one_line(tmp_path: Path) -> None:
    path = tmp_path / "pool"
    with writer(path, shard_bytes=10_000) as pool:
        for i, problem in itertools.product(range(3), range(16)):
            pool.add(f"p{problem}", rollout(20, seed=problem + 16 * i), text=f"{problem} {i}")
    wanted = {problem: content(open_pool(path), problem) for problem in open_pool(path).problems}
    over, wrong, refusals = threading.Event(), list[object](), Counter[type[BaseException]]()

    def read() -> None:
        while not over.is_set():
            try:
                pool = open_pool(path)
                for problem in itertools.chain(*[pool.problems] * 3):
                    assert len(pool.texts(problem)) == 3
                    if content(pool, problem) != wanted[problem]:
                        wrong.append(problem)
            except PoolError as error:
                refusals[type(error)] += 1
            except BaseException as error:
                if not (isinstance(error, KeyError) and "content" in traceback.format_exc()):  # a row that is gone
                    wrong.append(traceback.format_exc())

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for problem in [*wanted][:-1]:
            open_pool(path).delete([problem])
            time.sleep(0.1)  # for readers to open what is left
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert sum(refusals.values()) > 0
