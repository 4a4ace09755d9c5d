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
    "radmoe grade pool/ --answers answers.jsonl --json   |   radmoe grade pool/ --dataset hmmt_feb_2025   |   "
    "radmoe grade pool/ --dataset gpqa_diamond --data gpqa.jsonl --seed 7"
)


def command(
    pool: PoolPath,
    task: Annotated[
        str | None,
        typer.Option("--task", help="Lab task: math-1 to math-4, choice or code.", show_default="as the pool says"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            help="Seed of the lab task's problems, or of a dataset's options.",
            show_default="as the pool says",
        ),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option("--answers", help="JSONL of problem_id and answer (an integer, a letter or LaTeX)."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", help="aime_2024, aime_2025, hmmt_feb_2025, brumo_2025, gpqa_diamond or livecodebench_v5."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="JSONL of the dataset's rows, instead of the hub.", show_default=False)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            help="Seconds per program, contest test or LaTeX comparison.",
            show_default="1, 6 and 3",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Sandboxes at once; changes no result.")] = 2,
    as_json: Json = False,
) -> None:
    """Extract and check every rollout's answer, and write the pool's labels.

    Integers and letters are compared as normalised, LaTeX by math-verify in a process that is killed when it takes too
    long, programs by their tests in a sandbox. The labels are for evaluation: nothing that selects ever reads them.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from radmoe.grading.benchmarks import load_problems, seed_in
    from radmoe.grading.grade import grade_pool, problems_of, read_answers
    from radmoe.pool import open_pool

    asked = dataset is not None or data is not None
    if answers is not None and (task is not None or seed is not None or asked):
        raise InputError("--answers replaces --task, --dataset, --data and --seed: give one or the other")
    if asked and task is not None:
        raise InputError("--dataset and --data replace --task: give one or the other")
    if timeout is not None and timeout <= 0:
        raise InputError(f"--timeout must be positive, got {timeout:g}")
    opened = open_pool(pool)
    if answers is not None:
        known = read_answers(answers)
    elif asked:
        known = load_problems(dataset, data, seed=seed_in(opened.problems) if seed is None else seed)
    else:
        known = problems_of(opened, task=task, seed=seed)
    screen = console(stderr=True)
    columns = (TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        work = bar.add_task("grading", total=len(opened))
        summary = grade_pool(pool, known, jobs=jobs, timeout=timeout, progress=lambda done: bar.advance(work, done))
    if not summary.parseable:
        none = "no \\boxed{...} or fenced block"
        typer.echo(
            f"radmoe: no rollout of {pool} has an answer ({none}): all {summary.graded} count as wrong", err=True
        )
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
