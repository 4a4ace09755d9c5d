"""Several pools become one: their shards are linked or copied as they are, never rewritten.

Workers that share a plan each fill a pool of their own. Merged, these are the pool that one worker would have filled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from radmoe.errors import InputError, PoolMismatch
from radmoe.pool import files, schema
from radmoe.pool.completion import contradiction, describe, header_of, numbered, write_manifest
from radmoe.pool.lease import Lease
from radmoe.pool.reader import Pool, open_pool
from radmoe.pool.schema import disk_errors
from radmoe.pool.stores import StorePath
from radmoe.types import Kind


def merge_pools(
    sources: Sequence[str | Path], out: str | Path, *, progress: Callable[[int], None] = lambda shards: None
) -> Pool:
    """Merge complete pools of one run record, router and vocabulary into a new one, and open it.

    No rollout may be in two of them. Shards are hard links where the file system allows it, else copies. Labels are
    not merged: grade the merged pool. `progress` is called after each shard with the number of shards done. A failed
    merge leaves nothing behind, and what a killed one left in the directory of `out` is removed by the next.
    """
    out = files.place(out)
    if len(sources) < 2:
        raise InputError(f"merging needs at least two pools, got {len(sources)}")
    pools = [open_pool(source) for source in sources]
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PoolMismatch(f"{out} exists already: give a new directory to merge into")
    nonempty = [pool for pool in pools if len(pool)]
    _check_alike(nonempty)
    _check_apart(nonempty)
    with disk_errors(out):
        if isinstance(out, StorePath):
            _fill_store(out, pools, progress)
            return open_pool(out)
        with files.appearing(out, "merge") as made:
            _fill(made, pools, progress)
    return open_pool(out)


def _fill_store(out: StorePath, pools: Sequence[Pool], progress: Callable[[int], None]) -> None:
    """Merge into a store, where nothing can be renamed, and a pool without pool.json is not there yet."""
    right = Lease(out)
    try:
        _fill(out, pools, progress)
    except BaseException:
        files.each(out, lambda path: path.unlink(), [*out.walk_keys()])
        raise
    finally:
        right.release()


def _check_alike(pools: Sequence[Pool]) -> None:
    """Refuse pools of other models, tokenizers, settings or columns."""
    for pool in pools[1:]:
        first = pools[0]
        if (difference := contradiction(first.meta, pool.meta)) is not None:
            key, one, other = difference
            raise PoolMismatch(
                f"{first.path} has {key} = {one!r} and {pool.path} {other!r}: only pools of one run record merge"
            )
        ours, theirs = first.meta.get("columns"), pool.meta.get("columns")
        if ours != theirs:
            raise PoolMismatch(
                f"{first.path} has columns {describe(ours or {})} and {pool.path} {describe(theirs or {})}: they must agree"
            )


def _check_apart(pools: Sequence[Pool]) -> None:
    """Refuse a rollout that two pools hold, and a problem for which they record different kinds."""
    homes: dict[tuple[str, int], Pool] = {}
    kinds: dict[str, tuple[Kind, Pool]] = {}
    for pool in pools:
        for problem, kind in pool.kinds.items():
            if kind is not None and kinds.setdefault(problem, (kind, pool))[0] != kind:
                other, home = kinds[problem]
                raise PoolMismatch(
                    f"{home.path} has problem {problem!r} as {other}, {pool.path} as {kind}: which is it?"
                )
            for index in pool.rollout_indices(problem):
                home = homes.setdefault((problem, index), pool)
                if home is not pool:
                    raise PoolMismatch(
                        f"{home.path} and {pool.path} both hold rollout {index} of problem {problem!r}: "
                        "merge pools that share no rollout"
                    )


def _fill(out: Path, pools: Sequence[Pool], progress: Callable[[int], None]) -> None:
    tables: list[pa.Table] = []
    count = 0
    for name in (schema.TOKENIZER_JSON, schema.VOCAB_TABLE):
        files.write_atomic(out / name, files.read_bytes(pools[0].path / name))
    for pool in pools:
        table = pool.runs()
        numbers = {}
        for number, shard in pool.shards.items():
            target = out / schema.shard_name(count)
            target.mkdir()
            pairs = [(shard.path / name, target / name) for name in (*_files(shard.meta), schema.SHARD_META)]
            files.each(out, lambda pair: files.copy(*pair), pairs)
            if not files.in_store(target):
                files.sync(target)
            numbers[number], count = count, count + 1
            progress(count)
        renumbered = pa.array([numbers[shard] for shard in table["shard"].to_pylist()], pa.int32())
        tables.append(table.set_column(table.schema.get_field_index("shard"), "shard", renumbered))
    merged = pa.concat_tables(tables)
    header = next((header_of(pool.meta) for pool in pools if len(pool)), header_of(pools[0].meta))
    write_manifest(out, header, numbered(merged, merged["rollout_index"].to_pylist()))


def _files(meta: dict[str, Any]) -> list[str]:
    """The names of the files of a shard. They are the format's own, not those that its description writes down."""
    columns = [column.file for column in schema.COLUMNS if column.name in meta["columns"]]
    return [*columns, *(schema.pointer_file(name) for name in meta["pointers"])]
