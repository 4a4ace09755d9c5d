"""Check every byte of a pool against what was written, and whether that makes sense; say which rollouts a fault touches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from radmoe.errors import PoolError, RolloutError
from radmoe.pool import files, schema
from radmoe.pool.columns import ColumnReader, check_frame, check_size, chunk_rows, damaged_chunks
from radmoe.pool.fault import Fault, Run
from radmoe.pool.reader import Pool
from radmoe.pool.sense import ascending, check_tables, check_values
from radmoe.pool.shard import Shard

_SLICE_BYTES = 4 << 20  # of rows that are checked at a time


def verify(
    pool: Pool, *, progress: Callable[[int], None] | None = None, shards: Collection[int] | None = None
) -> list[Fault]:
    """Every fault of a pool that could be opened (`Pool.verify`), or of its tables and these shards.

    `progress` is called after each column with the number of bytes in it.
    """
    faults: list[Fault] = []
    for name, entry in pool.meta["files"].items():
        faults += _check_file(pool.path, name, entry)
    faults += _check_sense(pool, faults)
    runs = _runs_by_row(pool)
    for number in pool.shards if shards is None else shards:
        shard = pool.shards[number]
        faults += _check_file(pool.path, f"{shard.path.name}/{schema.SHARD_META}", pool.meta["shards"][shard.path.name])
        for reader in shard.columns.values():
            faults += _check_column(pool, shard, reader, runs[number])
            if progress is not None:
                progress(reader.meta["bytes"])
    return faults


def _check_sense(pool: Pool, damaged: list[Fault]) -> list[Fault]:
    """Contradictions in the tables and the tokenizer. Damaged files are left out, because they are reported already."""
    names = {fault.file for fault in damaged}
    try:
        return [fault for fault in check_tables(pool) if fault.file not in names]
    except PoolError as e:
        return [] if damaged else [Fault(schema.RUNS, str(e))]


def _check_file(root: Path, name: str, entry: dict[str, Any]) -> Iterator[Fault]:
    try:
        check_size(root / name, entry["bytes"])
    except PoolError as e:
        yield Fault(name, str(e))
        return
    if files.crc32_file(root / name) != entry["crc32"]:
        yield Fault(name, "the bytes are not the ones written: restore the file from a copy")


def _check_column(pool: Pool, shard: Shard, reader: ColumnReader, runs: list[Run]) -> Iterator[Fault]:
    name = f"{shard.path.name}/{reader.path.name}"
    try:
        check_frame(reader.path, reader.meta)
    except PoolError as e:
        yield Fault(name, str(e), tuple(runs))
        return
    if bad := damaged_chunks(reader.path, reader.meta):
        pointer = shard.pointer(reader.column)
        damaged_runs: set[int] = set()
        for chunk in bad:
            first, last = chunk_rows(reader.meta, chunk)
            start = int(np.searchsorted(pointer, first, "right")) - 1
            damaged_runs.update(range(start, int(np.searchsorted(pointer, last, "left"))))
        chunks = ", ".join(map(str, bad[:8]))
        yield Fault(name, f"damaged bytes in chunk {chunks}", tuple(runs[i] for i in sorted(damaged_runs)))
        return
    try:
        rows = max(_SLICE_BYTES // reader.row_bytes, 1)
        for start in range(0, reader.rows, rows):
            values = reader.read(start, min(start + rows, reader.rows))
            if reader.column in (schema.EXPERT_WEIGHTS, schema.PROMPT_WEIGHTS):
                values = values.reshape(len(values), -1, pool.shape.top_k)
            check_values(reader.column, values, pool.shape, len(pool.vocab))
        if reader.column is schema.TOKEN_INDEX:
            _check_positions(shard, reader)
    except (PoolError, RolloutError) as e:
        yield Fault(name, f"{e} (from row {start})", tuple(runs))


def _check_positions(shard: Shard, reader: ColumnReader) -> None:
    """The rows of a run stand for tokens in ascending order, all of which the run has."""
    rows, tokens = shard.pointer(schema.TOKEN_INDEX), shard.pointer(schema.TOKEN_IDS)
    for run in range(len(rows) - 1):
        positions = reader.read(int(rows[run]), int(rows[run + 1]))[:, 0]
        length = int(tokens[run + 1] - tokens[run])
        if not ascending(positions, length):
            raise RolloutError(f"the rows of run {run} do not stand for ascending tokens of {length}")


def _runs_by_row(pool: Pool) -> dict[int, list[Run]]:
    """For each shard, the problem and rollout index of each of its runs."""
    table = pool.runs(["problem_id", "rollout_index", "shard", "row"]).to_pydict()
    out: dict[int, list[Run]] = {n: [("", -1)] * shard.meta["runs"] for n, shard in pool.shards.items()}
    for problem, index, shard, row in zip(*table.values(), strict=True):
        out[shard][row] = (problem, index)
    return out
