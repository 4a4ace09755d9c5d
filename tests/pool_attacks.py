"""Pools as a stranger would forge them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from radmoe.lab import planted
from radmoe.pool import PoolWriter, files, schema
from radmoe.types import Rollout, RouterShape

SHARD = "token_data_00000"
DELIMITED = "token_data_00000/../../home/victim"
SHAPE = RouterShape(3, 8, 2)


def small_rollout(length: int, seed: int = 0) -> Rollout:
    rng = np.random.default_rng([seed, length])
    ids = np.argsort(rng.random((length, 3, 8)), axis=-1)[..., :2].astype(np.int16)
    return Rollout(rng.integers(500, size=length).astype(np.int32), ids, np.full(ids.shape, 0.5, np.float16))


def abandoned_pool(path: Path) -> Path:
    """A pool whose writer was killed after three rollouts."""
    writer = PoolWriter(path, shape=SHAPE, vocab=planted.vocab(), model="test")
    for i in range(3):
        writer.add("a", small_rollout(5, i), rollout_index=i, text=f"text {i}")
    writer.abandon()
    return path


def reseal(path: Path, *, pool: Path | None = None, **change: object) -> None:
    """Change a sealed JSON document, with a checksum that fits; pool.json of `pool` is made to agree with it."""
    body = schema.read_json(path) | change
    path.write_bytes(schema.seal_json(body))
    if pool is not None:
        entry = {"bytes": path.stat().st_size, "crc32": files.crc32_file(path)}
        if path.name == schema.SHARD_META:
            shards = schema.read_json(pool / schema.POOL_JSON)["shards"]
            shards[path.parent.name] = entry | {"runs": body["runs"]}
            reseal(pool / schema.POOL_JSON, shards=shards)
        else:
            listed = schema.read_json(pool / schema.POOL_JSON)["files"]
            reseal(pool / schema.POOL_JSON, files=listed | {path.name: entry})
