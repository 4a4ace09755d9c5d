"""`radmoe grade`: which rollouts of a pool are right."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from radmoe.cli.common import Json, PoolPath, console
from radmoe.errors import InputError

EXAMPLES = (
    "Examples: radmoe grade pool/   |   radmoe grade pool/ --task code --jobs 4   |   "
    "radmoe grade pool/ --answers answers.jsonl --json"
)


def command(
    pool: PoolPath,
    task: Annotated[
        str | None,
        typer.Option("--task", help="Lab task: math-1 to math-4, choice or code.", show_default="as the pool says"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of the lab task's problems.", show_default="as the pool says")
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option("--answers", help="JSONL of problem_id and answer (an integer, a letter or a string)."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Sandboxes at once; changes no result.")] = 2,
    as_json: Json = False,
) -> None:
    """Extract and check every rollout's answer, and write the pool's labels.

    Programs run in a sandbox. The labels are for evaluation: nothing that selects ever reads them.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from radmoe.grading.grade import grade_pool, problems_of, read_answers
    from radmoe.pool import open_pool

    if answers is not None and (task is not None or seed is not None):
        raise InputError("--answers replaces --task and --seed: give one or the other")
    opened = open_pool(pool)
    known = read_answers(answers) if answers is not None else problems_of(opened, task=task, seed=seed)
    screen = console(stderr=True)
    columns = (TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        work = bar.add_task("grading", total=len(opened))
        summary = grade_pool(pool, known, jobs=jobs, progress=lambda done: bar.advance(work, done))
    if as_json:
        typer.echo(json.dumps({"pool": str(pool), **asdict(summary)}))
        return
    from rich.table import Table

    per_problem = summary.graded / summary.problems
    average = f"Avg@{per_problem:g}" if per_problem.is_integer() else "Avg"
    table = Table(title=f"{pool}: {summary.problems} problems", box=None)
    for heading in ("rollouts", "graded", "parseable", "right", average):
        table.add_column(heading, justify="right")
    counts = (summary.rollouts, summary.graded, summary.parseable, summary.right)
    table.add_row(*map(str, counts), f"{100 * summary.average:.1f}%")
    console().print(table)
