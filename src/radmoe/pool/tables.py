"""The two tables of a pool: their columns, and how they are read and written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from radmoe.errors import PoolCorrupt, RadmoeError
from radmoe.pool import files, pages
from radmoe.pool.limits import CELL_BYTES, check_claim

_ITEM_BYTES = 48  # what an item of a list takes as a Python object, with its place in the list
_BATCH_BYTES = 32 << 20  # a batch of rows that all point at the longest text of a dictionary takes no more
_COPIES = 2  # rows are in memory as a table, and as Python objects
_BATCH_ROWS = 1 << 16

RUN_FIELDS = pa.schema(
    [
        ("run_id", pa.int64()),
        ("problem_id", pa.string()),
        ("problem_index", pa.int64()),  # the problem's place in the order in which they were asked
        ("kind", pa.string()),
        ("rollout_index", pa.int64()),
        ("shard", pa.int32()),
        ("row", pa.int64()),
        ("tokens", pa.int64()),
        ("finish_reason", pa.string()),
        ("steps", pa.list_(pa.struct([("start", pa.int64()), ("kept", pa.int64())]))),
        ("given", pa.list_(pa.list_(pa.int32()))),  # for each step; a column of its own, since only a replay reads it
        ("text", pa.string()),
        ("prompt", pa.string()),
        ("extra", pa.string()),
    ]
)

LABEL_FIELDS = pa.schema(
    [
        ("problem_id", pa.string()),
        ("rollout_index", pa.int64()),
        ("answer", pa.string()),
        ("correct", pa.bool_()),
    ]
)

BEHAVIOUR_FIELDS = pa.schema([("problem_id", pa.string()), ("rollout_index", pa.int64()), ("behaviour", pa.string())])


def read_table(
    path: Path,
    fields: pa.Schema,
    *,
    columns: list[str] | None = None,
    where: Mapping[str, Any] | None = None,
    restore: str = "restore it from a copy",
) -> pa.Table:
    """The table in a file, or some columns of it, and only the rows that have the values that `where` names.

    Raises PoolCorrupt if it has not the given fields, and PoolTooLarge if it claims more than the memory limit allows.
    """
    where = where or {}
    names = fields.names if columns is None else columns
    wanted = [*names, *(name for name in where if name not in names)]
    try:
        with (
            files.open_file(path) as raw,
            _source(path, raw) as f,
            pq.ParquetFile(f, page_checksum_verification=True) as parquet,
        ):
            disk_bytes = raw.seek(0, os.SEEK_END) if files.in_store(path) else files.on_disk(path)
            stored = parquet.schema_arrow
            for field in fields:
                if stored.names.count(field.name) != 1 or stored.field(field.name).type != field.type:
                    raise PoolCorrupt(f"{path} has no column {field.name} of type {field.type}: {restore}")
            leaves = list(pages.read_leaves(path, raw, parquet.metadata, wanted, disk_bytes))
            _check_cells(path, parquet.metadata.num_rows, leaves, bool(where), disk_bytes)
            dictionary_bytes = max((leaf.dictionary_bytes for leaf in leaves), default=0)
            rows = min(max(_BATCH_BYTES // max(dictionary_bytes, 1), 1), _BATCH_ROWS)
            batches: list[pa.RecordBatch] = []
            held_bytes = held_cells = 0
            for batch in parquet.iter_batches(rows, columns=wanted, use_threads=False):
                for name, value in where.items():
                    batch = batch.filter(pc.equal(batch[name], pa.scalar(value, fields.field(name).type)))
                held_bytes, held_cells = held_bytes + batch.nbytes, held_cells + len(batch) * len(names)
                needed = max(_COPIES * held_bytes, CELL_BYTES * held_cells if where else 0)
                check_claim(path, f"at least {held_bytes:,} bytes of rows", needed, disk_bytes)
                if len(batch) or not batches:
                    batches.append(batch)
            table = pa.Table.from_batches(batches, pa.schema([fields.field(name) for name in wanted]))
            return table.select(names)
    except RadmoeError:
        raise
    except Exception as e:  # whatever pyarrow makes of a forged file
        reason = (str(e) or type(e).__name__).splitlines()[0]
        raise PoolCorrupt(f"{path} cannot be read ({reason}): {restore}") from None


def _source(path: Path, raw: BinaryIO) -> Any:
    """The file for pyarrow: its own where there is one, since threads of its own would need the interpreter for one of Python's."""
    return pa.PythonFile(raw, "r") if files.in_store(path) else pa.OSFile(str(path))


def _check_cells(path: Path, rows: int, leaves: list[pages.Leaf], filtered: bool, disk_bytes: int) -> None:
    """Refuse a table whose values would take too much memory as Python objects, which is how they are used.

    Of a filtered table, the rows that stay are counted as they are read.
    """
    cells = sum(leaf.values * (_ITEM_BYTES if leaf.nested else 0 if filtered else CELL_BYTES) for leaf in leaves)
    check_claim(path, f"{rows:,} rows and {sum(leaf.values for leaf in leaves):,} values", cells, disk_bytes)


def write_table(table: pa.Table, path: Path) -> None:
    """Write or replace a table, so that it appears whole or not at all."""
    files.write_atomic(path, lambda f: pq.write_table(table, f, compression="zstd", write_page_checksum=True))
