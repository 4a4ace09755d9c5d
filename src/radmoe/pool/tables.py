"""The two tables of a pool: their columns, and how they are read and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from radmoe.errors import PoolCorrupt
from radmoe.pool import files

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
        ("steps", pa.list_(pa.struct([("given", pa.list_(pa.int32())), ("start", pa.int64())]))),
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


def read_table(
    path: Path,
    fields: pa.Schema,
    *,
    columns: list[str] | None = None,
    filters: list[Any] | None = None,
    restore: str = "restore it from a copy",
) -> pa.Table:
    """The table in a file, or some columns and rows of it. Raises PoolCorrupt if it has not the given fields."""
    try:
        files.size_of(path)  # which refuses anything but a regular file
        # A file of pyarrow's own: its reading threads would need the interpreter for one of Python's, which aborts the
        # process if that ends first.
        with pa.OSFile(str(path)) as f:
            stored = pq.read_schema(f)
            for field in fields:
                if field.name not in stored.names or stored.field(field.name).type != field.type:
                    raise PoolCorrupt(f"{path} has no column {field.name} of type {field.type}: {restore}")
            f.seek(0)
            return pq.read_table(f, columns=columns, filters=filters, page_checksum_verification=True)
    except (OSError, ValueError, pa.ArrowException) as e:
        reason = (str(e) or type(e).__name__).splitlines()[0]
        raise PoolCorrupt(f"{path} cannot be read ({reason}): {restore}") from None


def write_table(table: pa.Table, path: Path) -> None:
    """Write or replace a table, so that it appears whole or not at all."""
    files.write_atomic(path, lambda f: pq.write_table(table, f, compression="zstd", write_page_checksum=True))
