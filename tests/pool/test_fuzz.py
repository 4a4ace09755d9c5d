"""Random bytes in a pool: the reader never crashes, hangs, or takes more memory than the files could hold."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from radmoe.errors import PoolCorrupt, PoolError, RadmoeError
from radmoe.pool import open_pool
from radmoe.pool.journal import read
from radmoe.pool.schema import JOURNAL, OPEN_JSON
from radmoe.selection.selector import select

MOST_MEMORY = 200 << 20  # far above a pool of 300 kB, far below what a forged size field could ask for


def use(path: Path) -> list[int | None]:
    """Open, read windows and whole columns, select: everything a reader does. Returns the picks."""
    picks = []
    for group in open_pool(path).groups():
        picks.append(select(group, fusion="conf50").index)
        for rollout in group.rollouts[:2]:
            assert len(rollout.token_ids) == len(rollout.expert_ids)
    return picks


@pytest.mark.slow
@settings(max_examples=80, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(which=st.integers(0, 1000), junk=st.binary(max_size=400), keep=st.booleans())
@example(which=0, junk=b'{"schema_version": 2, "crc32": 0}', keep=False)
@example(which=0, junk=b"[" * 5000, keep=False)
@example(which=0, junk=b'{"schema_version": 1e999}', keep=False)
def test_random_bytes_are_refused_or_change_nothing(pool_path: Path, which: int, junk: bytes, keep: bool) -> None:
    """Some bytes are padding, or in columns nobody reads here: then every pick stays, and verify still tells."""
    expected = use(pool_path)
    files = sorted(
        p for p in pool_path.rglob("*") if p.is_file() and p.name not in ("pool.lock", "pool.writer", "tokenizer.json")
    )
    file = files[which % len(files)]
    whole = file.read_bytes()
    changed = junk + whole[len(junk) :] if keep else junk
    file.write_bytes(changed)
    try:
        with contextlib.suppress(RadmoeError):
            assert use(pool_path) == expected
        from planted_pools import faults_of  # not found where this file runs as a script

        assert bool(faults_of(pool_path)) == (changed != whole)
    finally:
        file.write_bytes(whole)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=300))
@example(junk=b"RJ02" + (2**63).to_bytes(8, "little") + b"\0" * 8)
def test_a_random_journal_yields_no_record(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / JOURNAL).write_bytes(junk)
    with contextlib.suppress(PoolCorrupt):  # it does not even begin as a journal
        assert list(read(tmp_path / JOURNAL)[1]) == []


def test_a_damaged_open_pool_is_refused(tmp_path: Path) -> None:
    (tmp_path / OPEN_JSON).write_bytes(b"\xff\xfe")
    with pytest.raises(PoolError):
        open_pool(tmp_path)


@pytest.mark.slow
def test_damaged_chunks_never_crash_the_reader(pool_path: Path) -> None:
    """In a process of its own: blosc2 decompresses hundreds of damaged chunks, header and index intact."""
    done = subprocess.run(
        [sys.executable, __file__, str(pool_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    refused, grown = map(int, done.stdout.split())
    assert refused > 100
    assert grown < MOST_MEMORY


def _peak_memory() -> int:
    """Bytes; VmHWM starts afresh in a new program, which ru_maxrss does not."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10


def _damage_and_read(path: Path, rounds: int = 600) -> None:
    rng = np.random.default_rng(7)
    files = sorted(path.rglob("*.b2"))
    originals = [file.read_bytes() for file in files]
    use(path)
    before = _peak_memory()
    refused = 0
    for _ in range(rounds):
        which = int(rng.integers(len(files)))
        data = bytearray(originals[which])
        head = int.from_bytes(data[11:15], "big")
        end = head + int.from_bytes(data[39:47], "big")
        if rng.random() < 0.5:  # the chunk's own header and block index
            for at in head + rng.integers(min(400, end - head), size=4):
                data[at] = rng.integers(256)
        else:
            at = int(rng.integers(head, end))
            data[at : at + 64] = rng.bytes(min(64, end - at))
        files[which].write_bytes(data)
        try:
            use(path)
        except RadmoeError:
            refused += 1
        files[which].write_bytes(originals[which])
    print(refused, _peak_memory() - before)


if __name__ == "__main__":
    _damage_and_read(Path(sys.argv[1]))
