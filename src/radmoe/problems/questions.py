"""Loads questions: all that capture needs of a data set. Gold answers are loaded elsewhere (see `gold.py`)."""

from __future__ import annotations

from pathlib import Path

from radmoe.errors import InputError
from radmoe.problems.base import Question
from radmoe.problems.records import open_source
from radmoe.types import Kind


def load_questions(
    task: str | None = None,
    data: str | Path | None = None,
    *,
    kind: Kind | None = None,
    seed: int | None = None,
    limit: int | None = None,
) -> tuple[list[Question], str]:
    """Load the questions of a data set or of a JSONL file, or the first `limit` of them, and the task that a pool
    records.

    `task` is a name of the table or a dotted path. With `data` its rows are read from that file; `data` alone is a file
    of one's own, or a benchmark recognised by the file's name or columns, and its task is the file's stem. `kind`
    applies to lines of one's own file that do not state theirs. `seed` (default 0) draws the lab's problems and
    shuffles GPQA's options. Raises an InputError that names the file and line, also for a kind that contradicts a
    recorded one.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}")
    source = open_source(task, data, seed=seed, limit=limit)
    questions = [
        Question(record.problem_id, source.dataset.ask(record), record.kind) for record in source.records(kind)
    ]
    return questions[:limit], source.task
