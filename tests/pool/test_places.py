"""What a pool needs of the place where it lies, on a disk and in a real object store."""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path

import numpy as np
import pytest

from planted_pools import RECIPE, graded_pool, write_pool
from radmoe import open_pool, select
from radmoe.errors import PoolBusy, PoolCorrupt, PoolIncomplete, PoolNotFound
from radmoe.evaluation.pools import evaluate_pool
from radmoe.pool import Pool, Profile, files, merge_pools, schema
from radmoe.pool.stores import StorePath
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup
from small_pools import rollout, same, writer


class PlaceContract:
    """Every kind of place passes these; a subclass gives `at`, an empty place."""

    @pytest.fixture
    def at(self) -> Path:
        raise NotImplementedError

    def test_a_file_is_read_back_whole_and_in_pieces(self, at: Path) -> None:
        content = bytes(range(256)) * 1000
        at.mkdir(exist_ok=True)
        files.write_atomic(at / "one", content)
        assert files.read_bytes(at / "one") == content
        assert files.size_of(at / "one") == len(content)
        spans = [(0, 10), (100_000, 150_000), (5, 6), (255_990, 256_000)]
        assert files.read_spans(at / "one", spans) == [content[a:b] for a, b in spans]
        assert files.crc32_file(at / "one") == zlib.crc32(content)
        with files.open_file(at / "one") as f:
            f.seek(-7, 2)
            assert f.read() == content[-7:]

    def test_a_file_is_replaced_unless_it_must_be_new(self, at: Path) -> None:
        at.mkdir(exist_ok=True)
        files.write_atomic(at / "one", b"first", new=True)
        files.write_atomic(at / "one", lambda f: f.write(b"second") and None)
        with pytest.raises(FileExistsError):
            files.write_atomic(at / "one", b"third", new=True)
        assert files.read_bytes(at / "one") == b"second"

    def test_what_is_missing_is_said_so(self, at: Path) -> None:
        at.mkdir(exist_ok=True)
        assert not files.exists(at / "one")
        with pytest.raises(PoolCorrupt, match="one is missing"):
            files.read_bytes(at / "one")
        (at / "one").unlink(missing_ok=True)
        with pytest.raises(PoolNotFound):
            open_pool(at)

    def test_files_are_copied_to_and_from_a_disk(self, at: Path, tmp_path: Path) -> None:
        at.mkdir(exist_ok=True)
        (tmp_path / "local").write_bytes(b"content")
        files.copy(tmp_path / "local", at / "one")
        files.copy(at / "one", at / "two")
        files.copy(at / "two", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b"content"

    def test_a_pool_reads_back_as_it_was_written(self, at: Path, made: list[PlantedGroup], shared_pool: Path) -> None:
        pool, local = open_pool(write_pool(at, made)), open_pool(shared_pool)
        assert pool.verify() == []
        assert pool.problems == local.problems
        for problem in pool.problems:
            for ours, theirs in zip(pool.group(problem).rollouts, local.group(problem).rollouts, strict=True):
                assert same(ours, theirs)  # type: ignore[arg-type]
            one, other = select(pool.group(problem)), select(local.group(problem))
            assert one.index == other.index
            assert one.density.tobytes() == other.density.tobytes()

    def test_a_graded_pool_evaluates_to_the_same(self, at: Path, made: list[PlantedGroup], tmp_path: Path) -> None:
        pools = [graded_pool(path, made) for path in (at, tmp_path / "local")]
        ours, theirs = (evaluate_pool(path, use_cache=False)[0].outcomes.hits for path in pools)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(hits, theirs[name], equal_nan=True) for name, hits in ours.items())

    def test_a_pool_grows_and_is_incomplete_meanwhile(self, at: Path) -> None:
        with writer(at) as first:
            first.add("p", rollout(5), rollout_index=0)
        with writer(at) as second:
            assert second.has("p", 0)
            with pytest.raises(PoolIncomplete, match="1 rollouts are safe"):
                open_pool(at)
            second.add("p", rollout(6), rollout_index=1)
        pool = open_pool(at)
        assert [len(r) for r in pool.group("p").rollouts] == [5, 6]
        assert pool.verify() == []

    def test_a_second_writer_is_refused_and_told_who_writes(self, at: Path) -> None:
        with writer(at), pytest.raises(PoolBusy, match="is being written by process"):
            writer(at)
        writer(at).close()

    def test_what_a_stopped_writer_added_is_recovered(self, at: Path) -> None:
        stopped = writer(at)
        stopped.add("p", rollout(5), rollout_index=0)
        stopped.abandon()
        with pytest.raises(PoolIncomplete, match="1 rollouts are safe"):
            open_pool(at)
        assert len(Pool.recover(at)) == 1
        assert Pool.recover(at).verify() == []

    def test_workers_fill_shards_of_one_pool_and_the_last_completes_it(self, at: Path) -> None:
        workers = [writer(at, workers=True) for _ in range(3)]
        for number, each in enumerate(workers):
            each.add(f"p{number}", rollout(5 + number), rollout_index=0)
        for each in workers:
            with pytest.raises(PoolIncomplete):
                open_pool(at)
            each.close()
        pool = open_pool(at)
        assert sorted(pool.problems) == ["p0", "p1", "p2"]
        assert len(pool.shards) == 3
        assert pool.verify() == []

    def test_of_a_rollout_that_is_there_twice_recovery_keeps_the_older(self, at: Path) -> None:
        workers = [writer(at, workers=True) for _ in range(2)]
        for number, each in enumerate(workers):
            each.add("p", rollout(5 + number), rollout_index=0)
            each.abandon()
        pool = Pool.recover(at)
        assert len(pool) == 1
        assert "was there twice and differs" in str(pool.dropped[0])
        assert len(pool.group("p").rollouts[0]) == 5

    def test_pools_of_both_kinds_merge(self, at: Path, tmp_path: Path) -> None:
        for number, place in enumerate((at / "a", tmp_path / "b")):
            with writer(place) as each:
                each.add(f"p{number}", rollout(5), rollout_index=0)
        for out in (at / "c", tmp_path / "d"):
            merged = merge_pools([at / "a", tmp_path / "b"], out)
            assert merged.problems == ["p0", "p1"]
            assert merged.verify() == []

    def test_a_failed_merge_leaves_nothing(self, at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(2):
            with writer(at / f"{number}") as each:
                each.add(f"p{number}", rollout(5), rollout_index=0)

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("radmoe.pool.merge.write_manifest", stop)
        with pytest.raises(KeyboardInterrupt):
            merge_pools([at / "0", at / "1"], at / "all")
        assert not (at / "all").exists()

    def test_a_flipped_byte_is_found(self, at: Path) -> None:
        with writer(at) as one:
            one.add("p", rollout(50), rollout_index=0)
        column = at / schema.shard_name(0) / schema.EXPERT_IDS.file
        content = bytearray(files.read_bytes(column))
        content[200] ^= 1
        files.write_atomic(column, bytes(content))
        (fault,) = open_pool(at).verify()
        assert fault.file == "token_data_00000/moe_topk_expert_ids.int16.b2"
        assert fault.runs == (("p", 0),)


class TestDisk(PlaceContract):
    @pytest.fixture
    def at(self, tmp_path: Path) -> Path:
        return tmp_path / "pool"


@pytest.mark.slow
class TestObjectStore(PlaceContract):
    @pytest.fixture
    def at(self, bucket: StorePath) -> Path:
        return bucket


@pytest.mark.slow
def test_one_problem_of_a_window_only_pool_takes_eight_requests(
    bucket: StorePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = dataclasses.replace(RECIPE, problems=3, rollouts=16)
    path = write_pool(bucket, list(planted.groups(recipe)), profile=Profile(readouts=("delimiter@16",)))
    pool = open_pool(path)
    asked: list[tuple[int, int]] = []
    ranges = StorePath.ranges
    monkeypatch.setattr(StorePath, "ranges", lambda self, spans: asked.extend(spans) or ranges(self, spans))
    select(pool.group(pool.problems[1]))
    assert 0 < len(asked) <= 8
