"""Gold answers and tests. Grading loads them from here; an import contract forbids this module to capture and
selection.
"""

from __future__ import annotations

from pathlib import Path

from radmoe.errors import GoldNotFound
from radmoe.problems.base import Problem
from radmoe.problems.records import open_source


def load_problems(
    task: str | None = None, data: str | Path | None = None, *, seed: int | None = None
) -> dict[str, Problem]:
    """Load the problems of a data set or of a JSONL file, by id; the arguments are those of `load_questions`.

    Lines of a file of one's own that have neither an answer nor tests are left out. Raises GoldNotFound if all are.
    """
    source = open_source(task, data, seed=seed)
    problems: dict[str, Problem] = {}
    for record in source.records():
        prompt, gold = source.dataset.ask(record), source.dataset.gold(record)
        if gold is not None:
            problems[record.problem_id] = Problem(
                record.problem_id,
                source.task,
                prompt,
                kind=record.kind,
                integer=source.dataset.integer,
                meaning=source.dataset.meaning,
                **vars(gold),
            )
    if not problems:
        raise GoldNotFound(f"{data or task} has no answers: add answer, or tests, to its lines")
    return problems
