"""labels.parquet: each rollout's normalised answer and whether it is right."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from radmoe.errors import PoolCorrupt, PoolNotFound
from radmoe.pool.schema import LABELS, disk_errors, write_atomic

_FIELDS = pa.schema(
    [
        ("problem_id", pa.string()),
        ("rollout_index", pa.int64()),
        ("answer", pa.string()),
        ("correct", pa.bool_()),
    ]
)


class Label(NamedTuple):
    """One rollout's label. `answer` is None where none could be extracted; such a rollout is wrong."""

    problem_id: str
    rollout_index: int
    answer: str | None
    correct: bool


def write_labels(pool: str | Path, labels: Iterable[Label]) -> None:
    """Write or replace a pool's labels."""
    table = pa.Table.from_pylist([label._asdict() for label in labels], schema=_FIELDS)
    path = Path(pool) / LABELS
    with disk_errors(path):
        write_atomic(path, lambda p: pq.write_table(table, p, compression="zstd", write_page_checksum=True))


def read_labels(pool: str | Path) -> dict[str, dict[int, Label]]:
    """Labels by problem and rollout index."""
    path = Path(pool) / LABELS
    if not path.exists():
        raise PoolNotFound(f"{pool} has no {LABELS}: grade the pool first")
    try:
        rows = pq.read_table(path, schema=_FIELDS, page_checksum_verification=True).to_pylist()
    except (OSError, pa.ArrowException) as e:
        raise PoolCorrupt(f"{path} cannot be read ({e}): grade the pool again") from None
    out: dict[str, dict[int, Label]] = {}
    for row in rows:
        label = Label(**row)
        out.setdefault(label.problem_id, {})[label.rollout_index] = label
    return out
