"""The lab's tasks as data sets, for the table in `radmoe.problems.datasets` to find by path."""

from __future__ import annotations

from itertools import islice

from radmoe.problems import Dataset, Gold, Record
from radmoe_lab.tasks import LONG_TASKS, TASKS, Task, stream
from radmoe_lab.tasks.meaning import meaning


def _ask(record: Record) -> str:
    return str(record.row["prompt"])


def _gold(record: Record) -> Gold:
    return Gold(record.row["answer"], record.row["tests"], record.row["entry"])


def _dataset(task: Task) -> Dataset:
    """Rows are the task's test problems, drawn one at a time; their ids already name a seed other than the default."""
    return Dataset(
        task.name,
        task.kind,
        _ask,
        _gold,
        rows=lambda seed: map(vars, islice(stream(task.name, seed=seed), task.size)),
        integer=True if task.kind == "math" else None,
        meaning=meaning if task.kind == "text" else None,
    )


MATH_1, MATH_2, MATH_3, MATH_4, CHOICE, CODE, CODE_WIDE, EXPLAIN = (_dataset(task) for task in TASKS.values())
LONG_MATH, LONG_CODE, LONG_CHOICE = (_dataset(task) for task in LONG_TASKS.values())
