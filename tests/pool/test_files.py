"""A pool from a stranger: nothing outside it is written or read, whatever stands in place of its files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from planted_pools import faults_of
from pool_attacks import DELIMITED, SHARD, abandoned_pool, reseal
from radmoe.errors import PoolCorrupt, PoolUnsafe
from radmoe.evaluation import evaluate_pool
from radmoe.grading.labels import Label, read_labels, write_labels
from radmoe.pool import Pool, PoolWriter, files, merge_pools, open_pool, schema
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup

SECRET = b"what the victim wrote"
FILES = [
    "pool.json",
    "runs.parquet",
    "tokenizer.json",
    "tokenizer.bytes",
    "labels.parquet",
    "pool.lock",
    "pool.writer",
    f"{SHARD}/moe_meta.json",
    f"{SHARD}/moe_row_ptr.int64",
    f"{SHARD}/moe_topk_expert_ids.int16.b2",
    f"{SHARD}/tok_token_ids.int32.b2",
]


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """A call that waits for the other end of a FIFO is ended and fails."""

    def too_long(*_: object) -> None:
        raise AssertionError("the call hangs")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(15)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file outside the pool, which must be as it was when the test ends."""
    file = tmp_path / "home" / "victim"
    file.parent.mkdir()
    file.write_bytes(SECRET)
    yield file
    assert file.read_bytes() == SECRET
    assert [p.name for p in file.parent.iterdir()] == ["victim"]


@pytest.fixture
def graded(pool_path: Path, made: list[PlantedGroup]) -> Path:
    write_labels(
        pool_path,
        [Label(m.group.problem_id, i, a, a == m.truth) for m in made for i, a in enumerate(m.answers)],
    )
    return pool_path


def use(pool: Path) -> None:
    """Everything that a reader of a stranger's pool may do to it."""
    for group in open_pool(pool).groups():
        assert len(group.rollouts[0].expert_ids)
    assert open_pool(pool).verify() == []
    write_labels(pool, [label for labels in read_labels(pool).values() for label in labels.values()])
    evaluate_pool(pool)
    Pool.recover(pool)


def append(pool: Path) -> None:
    first = open_pool(pool)
    PoolWriter(pool, shape=first.router, vocab=first.vocab, model=first.model).close()


def fifo(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def dangling(path: Path, victim: Path) -> None:
    path.symlink_to(victim.parent / "new")


def device(path: Path, victim: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("devices cannot be made here")


def listening(path: Path, victim: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(before)


@pytest.mark.parametrize("special", [link, dangling, fifo, device, listening])
@pytest.mark.parametrize("name", FILES)
def test_nothing_but_plain_files_stands_for_a_file_of_a_pool(
    graded: Path, victim: Path, name: str, special: Callable[[Path, Path], None]
) -> None:
    (graded / name).unlink()
    special(graded / name, victim)
    for action in (use, Pool.recover, append):
        with pytest.raises(PoolUnsafe, match=f"{Path(name).name} is a .*: a pool holds only plain files"):
            action(graded)


@pytest.mark.slow
def test_a_sound_graded_pool_is_used_without_complaint(graded: Path) -> None:
    use(graded)
    append(graded)
    use(graded)


def test_the_pool_itself_may_be_given_through_a_link(graded: Path, tmp_path: Path) -> None:
    (tmp_path / "short").symlink_to(graded)
    use(tmp_path / "short")


@pytest.mark.parametrize("name", ["labels.parquet.tmp", "pool.json.tmp", "runs.parquet.tmp", ".labels.parquet.tmp"])
def test_a_link_that_waits_for_a_temporary_file_is_never_written_through(graded: Path, victim: Path, name: str) -> None:
    labels = [Label("planted-0000", 0, "x", True)]
    (graded / name).symlink_to(victim)
    write_labels(graded, labels)
    assert not (graded / "labels.parquet").is_symlink()
    for action in (use, append):
        with pytest.raises(PoolUnsafe):
            action(graded)


def test_labels_replace_a_link_instead_of_following_it(graded: Path, victim: Path) -> None:
    (graded / "labels.parquet").unlink()
    (graded / "labels.parquet").symlink_to(victim)
    with pytest.raises(PoolUnsafe):
        read_labels(graded)
    write_labels(graded, [Label("planted-0000", 0, "x", True)])
    assert not (graded / "labels.parquet").is_symlink()


def test_temporary_files_have_names_nobody_can_know(tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        files.write_atomic(tmp_path / "x", lambda f: seen.update(p.name for p in tmp_path.glob(".x.*.tmp")))
    assert len(seen) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        files.write_atomic(tmp_path / "x", lambda f: 1 / 0)  # type: ignore[arg-type, return-value]
    assert (tmp_path / "x").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_shard_that_is_a_link_is_not_sealed_into(tmp_path: Path, victim: Path) -> None:
    pool = abandoned_pool(tmp_path / "pool")
    outside = victim.parent.parent / "outside"
    shutil.move(pool / SHARD, outside)
    (pool / SHARD).symlink_to(outside)
    before = sorted(outside.iterdir())
    for action in (Pool.recover, open_pool):
        with pytest.raises(PoolUnsafe, match=f"{SHARD} is a link"):
            action(pool)
    assert sorted(outside.iterdir()) == before


@pytest.mark.parametrize("special", [link, fifo, device])
@pytest.mark.parametrize("name", [f"{SHARD}/journal.bin", "pool.open.json", f"{SHARD}/runs.parquet"])
def test_nothing_but_plain_files_is_recovered(
    tmp_path: Path, victim: Path, name: str, special: Callable[[Path, Path], None]
) -> None:
    pool = abandoned_pool(tmp_path / "pool")
    (pool / name).unlink(missing_ok=True)
    special(pool / name, victim)
    for action in (open_pool, Pool.recover):
        with pytest.raises(PoolUnsafe, match=Path(name).name):
            action(pool)


def test_columns_that_are_links_are_not_sealed_through(tmp_path: Path, victim: Path) -> None:
    pool = abandoned_pool(tmp_path / "pool")
    (pool / SHARD / "moe_topk_expert_ids.int16.b2").symlink_to(victim)
    with pytest.raises(PoolUnsafe, match="is a link"):
        Pool.recover(pool)


@pytest.mark.parametrize("name", ["pool.lock", "pool.writer"])
def test_a_lock_that_is_another_name_of_a_file_is_refused(graded: Path, victim: Path, name: str) -> None:
    (graded / name).unlink()
    (graded / name).hardlink_to(victim)
    for action in (append, Pool.recover):
        with pytest.raises(PoolUnsafe, match=f"{name} is a hard link"):
            action(graded)


@pytest.mark.parametrize("name", ["../home/victim", "/etc/passwd", "/dev/zero", "..", "", "a/b", DELIMITED])
def test_names_in_descriptions_are_those_of_the_format(graded: Path, victim: Path, name: str) -> None:
    body = schema.read_json(graded / "pool.json")
    shard = next(iter(body["shards"].values()))
    for change in (
        {"files": body["files"] | {name: {"bytes": len(SECRET), "crc32": 0}}},
        {"shards": body["shards"] | {name: shard}},
        {"shards": {name: shard}},
    ):
        reseal(graded / "pool.json", **change)
        with pytest.raises(PoolUnsafe, match=r"names .*, which is no file of a pool"):
            open_pool(graded)
    reseal(graded / "pool.json", **body)
    meta = schema.read_json(graded / SHARD / "moe_meta.json")
    for part in ("pointers", "columns"):
        change = {part: meta[part] | {name: next(iter(meta[part].values()))}}
        reseal(graded / SHARD / "moe_meta.json", pool=graded, **change)
        with pytest.raises(PoolUnsafe, match=r"names .*, which is no file of a pool"):
            open_pool(graded)


def test_merging_takes_no_file_from_outside_a_pool(made: list[PlantedGroup], tmp_path: Path, victim: Path) -> None:
    paths = []
    for number in range(2):
        group = made[number].group
        paths.append(tmp_path / f"{number}")
        with PoolWriter(paths[-1], shape=group.shape, vocab=planted.vocab(), model="planted") as writer:
            writer.add(group.problem_id, group.rollouts[0])
    columns = schema.read_json(paths[0] / SHARD / "moe_meta.json")["columns"]
    columns["tok_token_ids"]["file"] = "../../home/victim"
    reseal(paths[0] / SHARD / "moe_meta.json", pool=paths[0], columns=columns)
    with pytest.raises(PoolCorrupt, match="not described as the format says"):
        merge_pools(paths, tmp_path / "deep" / "merged")
    assert not (tmp_path / "deep").exists()


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path) -> None:
    pool = abandoned_pool(tmp_path / "pool")
    rubbish = [pool / ".pool.json.0123456789abcdef.tmp", pool / SHARD / ".moe_meta.json.0123456789abcdef.tmp"]
    for file in rubbish:
        file.write_bytes(b"half")
    assert len(Pool.recover(pool)) == 3
    assert not any(file.exists() for file in rubbish)


def test_a_directory_in_place_of_a_file_is_one_line(graded: Path) -> None:
    for name in FILES:
        copy = Path(shutil.copytree(graded, graded.parent / "copy"))
        (copy / name).unlink()
        (copy / name).mkdir()
        if not faults_of(copy):
            with pytest.raises(PoolUnsafe, match=f"{name} is a directory"):
                Pool.recover(copy)
        shutil.rmtree(copy)


def test_a_file_that_another_worker_removes_meanwhile_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = abandoned_pool(tmp_path / "pool")
    scandir = os.scandir

    def scan_then_remove(directory: Path) -> nullcontext[list[os.DirEntry[str]]]:
        with scandir(directory) as listing:
            entries = list(listing)
        (pool / SHARD / schema.JOURNAL).unlink(missing_ok=True)
        if directory == pool:
            (pool / "gone").rmdir()
        return nullcontext(entries)

    (pool / "gone").mkdir()
    monkeypatch.setattr(os, "scandir", scan_then_remove)
    files.check_tree(pool)
    assert not (pool / "gone").exists()
    assert not (pool / SHARD / schema.JOURNAL).exists()
