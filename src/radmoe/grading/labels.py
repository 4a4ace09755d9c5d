"""labels.parquet: each rollout's normalised answer and whether it is right."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from radmoe.errors import PoolCorrupt, PoolNotFound
from radmoe.pool import files
from radmoe.pool.schema import LABELS, disk_errors
from radmoe.pool.tables import LABEL_FIELDS, read_table, write_table


class Label(NamedTuple):
    """One rollout's label. `answer` is None where none could be extracted; such a rollout is wrong."""

    problem_id: str
    rollout_index: int
    answer: str | None
    correct: bool


def write_labels(pool: str | Path, labels: Iterable[Label]) -> None:
    """Write or replace a pool's labels."""
    write_rows(files.place(pool) / LABELS, [label._asdict() for label in labels], LABEL_FIELDS)


def write_rows(path: Path, rows: list[dict[str, Any]], fields: pa.Schema) -> None:
    """Write or replace a table that says something of rollouts."""
    with disk_errors(path):
        write_table(pa.Table.from_pylist(rows, schema=fields), path)


def read_labels(pool: str | Path) -> dict[str, dict[int, Label]]:
    """Labels by problem and rollout index."""
    path = files.place(pool) / LABELS
    if not files.exists(path):
        raise PoolNotFound(f"{pool} has no {LABELS}: grade the pool first")
    rows = read_table(path, LABEL_FIELDS, restore="grade the pool again").to_pylist()
    if any(row["problem_id"] is None or row["rollout_index"] is None or row["correct"] is None for row in rows):
        raise PoolCorrupt(f"{path} has labels without a problem, a rollout or a verdict: grade the pool again")
    out: dict[str, dict[int, Label]] = {}
    for row in rows:
        label = Label(**row)
        out.setdefault(label.problem_id, {})[label.rollout_index] = label
    return out
