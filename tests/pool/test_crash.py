"""`kill -9` while writing, sealing and completing: never a pool that opens with wrong data."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from radmoe.errors import PoolIncomplete, PoolNotFound
from radmoe.pool import Pool, PoolWriter, open_pool
from radmoe.types import Rollout, RouterShape
from radmoe_lab import planted

SHAPE = RouterShape(4, 16, 3)
KILLS = 20


def rollout(number: int) -> Rollout:
    """Rollout `number`, the same in every process."""
    rng = np.random.default_rng(number)
    length = 20 + number % 50
    ids = np.argsort(rng.random((length, 4, 16)), axis=-1)[..., :3].astype(np.int16)
    weights = rng.dirichlet(np.ones(3), (length, 4)).astype(np.float16)
    return Rollout(rng.integers(500, size=length).astype(np.int32), ids, weights)


def write_forever(path: str) -> None:
    """Add rollouts, acknowledge each on stdout; small shards and frequent closing keep every phase busy."""
    while True:
        with PoolWriter(path, shape=SHAPE, vocab=planted.vocab(), model="crash", shard_bytes=60_000) as writer:
            start = writer.done("p")
            for number in range(start, start + 40):
                writer.add("p", rollout(number), rollout_index=number, text=f"text {number}")
                print(number, flush=True)


def check(path: Path, acknowledged: int) -> None:
    """Everything acknowledged is there, and whatever is there is right."""
    assert open_pool(path).verify() == []
    pool = open_pool(path)
    stored = pool.group("p") if pool.problems else None
    indices = pool.rollout_indices("p") if pool.problems else []
    assert indices == list(range(len(indices)))
    assert len(indices) >= acknowledged
    for number in indices:
        expected, got = rollout(number), stored.rollouts[number]
        assert np.array_equal(expected.token_ids, got.token_ids)
        assert np.array_equal(expected.expert_ids, got.expert_ids)
        assert np.array_equal(expected.weights, got.weights)
    if indices:
        assert pool.texts("p") == [f"text {n}" for n in indices]


@pytest.mark.slow
def test_killed_writers_never_leave_a_pool_that_lies(tmp_path: Path) -> None:
    """The same pool is killed again and again, each time resumed by the next writer."""
    path, rng, acknowledged = tmp_path / "pool", random.Random(20260), 0
    opened = incomplete = 0
    for _ in range(KILLS):
        command = [sys.executable, __file__, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline()]  # it has begun
            time.sleep(rng.uniform(0.0, 0.25))
            child.kill()
            lines += child.stdout.readlines()
        said = [int(line) for line in lines if line.endswith("\n")]
        assert said[0] >= acknowledged  # the resumed writer knew of all that came before
        acknowledged = said[-1] + 1
        try:
            pool = open_pool(path)
        except PoolIncomplete:
            incomplete += 1
            if rng.random() < 0.5:
                continue  # let the next writer recover it
            Pool.recover(path)
        else:
            opened += 1
            assert len(pool) >= acknowledged
        check(path, acknowledged)
        acknowledged = len(open_pool(path))
    Pool.recover(path)
    check(path, acknowledged)
    assert acknowledged > KILLS
    assert incomplete > 0


@pytest.mark.slow
def test_a_writer_killed_before_its_first_rollout_leaves_nothing_that_opens(tmp_path: Path) -> None:
    code = f"import os, {Path(__file__).stem} as t; t.PoolWriter({str(tmp_path / 'p')!r}, shape=t.SHAPE, vocab=t.planted.vocab(), model='x'); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=False)
    with pytest.raises((PoolIncomplete, PoolNotFound)):
        open_pool(tmp_path / "p")
    assert len(Pool.recover(tmp_path / "p")) == 0


if __name__ == "__main__":
    write_forever(sys.argv[1])
