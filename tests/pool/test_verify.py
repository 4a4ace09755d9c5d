"""A flipped byte is found, wherever it is, and the rollouts it touches are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planted_pools import faults_of
from radmoe.pool import PoolWriter, open_pool
from radmoe.pool.columns import chunk_rows
from radmoe.types import Rollout, RouterShape
from radmoe_lab import planted


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0x40
    file.write_bytes(data)


def test_a_sound_pool_has_no_fault(shared_pool: Path) -> None:
    assert faults_of(shared_pool) == []


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1, exclude_max=True), which=st.integers(0, 10_000))
def test_any_flipped_byte_is_found_and_its_file_named(pool_path: Path, where: float, which: int) -> None:
    files = sorted(
        p
        for p in pool_path.rglob("*")
        if p.is_file() and p.stat().st_size and p.name not in ("pool.lock", "pool.writer")
    )
    file = files[which % len(files)]
    at = int(where * file.stat().st_size)
    flip(file, at)
    try:
        faults = faults_of(pool_path)
        assert faults
        assert any(file.name in fault for fault in faults)
    finally:
        flip(file, at)
    assert faults_of(pool_path) == []


def test_a_flip_touches_only_the_rollouts_of_its_chunk(tmp_path: Path) -> None:
    shape, rng = RouterShape(24, 64, 8), np.random.default_rng(0)
    with PoolWriter(tmp_path / "p", shape=shape, vocab=planted.vocab(), model="big") as writer:
        for i in range(12):
            ids = np.argsort(rng.random((3000, 24, 64)), axis=-1)[..., :8].astype(np.int16)
            writer.add("q", Rollout(np.full(3000, i, np.int32), ids), rollout_index=i)
    pool = open_pool(tmp_path / "p")
    shard = pool.shards[0]
    meta = shard.meta["columns"]["moe_topk_expert_ids"]
    sizes = [size for size, _ in meta["chunks"]]
    assert len(sizes) >= 3
    flip(shard.path / meta["file"], meta["frame_head"] + sizes[0] + sizes[1] // 2)
    (fault,) = open_pool(tmp_path / "p").verify()
    first, last = chunk_rows(meta, 1)
    assert fault.file == "token_data_00000/moe_topk_expert_ids.int16.b2"
    assert fault.runs == tuple(("q", i) for i in range(first // 3000, -(-last // 3000)))
    assert 0 < len(fault.runs) < 12
    assert "q#" in str(fault)


def test_values_no_router_gives_are_found_behind_good_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = RouterShape(2, 8, 2)
    ids = np.tile(np.array([1, 9], np.int16), (5, 2, 1))
    monkeypatch.setattr("radmoe.pool.writer.check_rollout", lambda *_: None)  # a writer that does not look
    with PoolWriter(tmp_path / "p", shape=shape, vocab=planted.vocab(), model="bad") as writer:
        writer.add("q", Rollout(np.zeros(5, np.int32), ids))
    (fault,) = open_pool(tmp_path / "p").verify()
    assert "outside [0, 8)" in fault.message
    assert fault.runs == (("q", 0),)
