"""Pools as a stranger would forge them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from radmoe.pool import PoolWriter, files, schema
from radmoe.pool.tables import RUN_FIELDS, write_table
from radmoe.types import Rollout, RouterShape
from radmoe_lab import planted

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


def relist(pool: Path, name: str) -> None:
    """Make pool.json agree with a file that was replaced."""
    entry = {"bytes": (pool / name).stat().st_size, "crc32": files.crc32_file(pool / name)}
    listed = schema.read_json(pool / schema.POOL_JSON)["files"]
    reseal(pool / schema.POOL_JSON, files=listed | {name: entry})


def write_document(pool: Path, document: str, body: dict[str, Any], relist: Collection[str] = ()) -> None:
    """Write one of the JSON files of a pool as it is given, whatever is in it, with checksums that fit.

    The entries of `relist` in pool.json are made to agree with these files, and the entry of a shard with its description.
    """
    body.pop("crc32", None)
    if document == schema.TOKENIZER_JSON:
        (pool / document).write_text(json.dumps(body))
        write_document(pool, schema.POOL_JSON, json.loads((pool / schema.POOL_JSON).read_bytes()), relist=(document,))
        return
    if isinstance(body.get("files"), dict):
        for name in relist:
            body["files"][name] = {"bytes": (pool / name).stat().st_size, "crc32": files.crc32_file(pool / name)}
    (pool / document).write_bytes(schema.seal_json(body))
    if document.endswith(schema.SHARD_META):
        listed = json.loads((pool / schema.POOL_JSON).read_bytes())
        entry = {"bytes": (pool / document).stat().st_size, "crc32": files.crc32_file(pool / document)}
        listed["shards"][Path(document).parent.name] |= entry | ({"runs": body["runs"]} if "runs" in body else {})
        write_document(pool, schema.POOL_JSON, listed)


def forge_runs(pool: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the rows of runs.parquet in place, with checksums that fit."""
    rows = pq.read_table(pool / schema.RUNS).to_pylist()
    change(rows)
    write_table(pa.Table.from_pylist(rows, schema=RUN_FIELDS), pool / schema.RUNS)
    relist(pool, schema.RUNS)


def reseal(path: Path, *, pool: Path | None = None, **change: object) -> None:
    """Change a sealed JSON document, with a checksum that fits; pool.json of `pool` is made to agree with a shard's."""
    body = schema.read_json(path) | change
    path.write_bytes(schema.seal_json(body))
    if pool is not None:
        shards = schema.read_json(pool / schema.POOL_JSON)["shards"]
        entry = {"bytes": path.stat().st_size, "crc32": files.crc32_file(path), "runs": body["runs"]}
        reseal(pool / schema.POOL_JSON, shards=shards | {path.parent.name: entry})
