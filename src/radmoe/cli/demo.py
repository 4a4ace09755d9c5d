"""`radmoe demo`: two small MoE models answer problems 16 times each; RAD picks, and we look at how it did."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from radmoe.cli.common import console, progress

if TYPE_CHECKING:
    from radmoe.pool import Pool

EXAMPLES = "Examples: radmoe demo   |   radmoe demo --out /tmp/demo --seed 7   |   radmoe demo -n 64 --limit 30"

MODELS = ("lab-qwen", "lab-oss")
TASKS = {"math-3": 9, "code": 5}  # problems of each for each model
METHODS = ("a random rollout", "majority of answers", "RAD", "RAD+DC", "oracle (best of all)")


class Shown(NamedTuple):
    """One problem: the share or the fact of being right per method (NaN: no vote), and where its picture is."""

    problem_id: str
    right: tuple[float, ...]
    picture: Path


def command(
    out: Annotated[Path, typer.Option("--out", help="Where pools and pictures are written.")] = Path("out/demo"),
    n: Annotated[int, typer.Option("-n", help="Rollouts per problem.")] = 16,
    limit: Annotated[
        int | None,
        typer.Option("--limit", help="Problems per task and model.", show_default="9 of math-3, 5 of code"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, fresh problems and rollouts.")] = 0,
) -> None:
    """Sample real rollouts from the lab models on this machine, select, and compare.

    Everything is real and local: the models (8M parameters, trained for this project), their rollouts, the
    routing. Running it again samples nothing anew.
    """
    from radmoe.cli.rollouts import capture_pool
    from radmoe.pool import open_pool

    screen = console()
    shown: list[Shown] = []
    for model in MODELS:
        found: dict[str, list[Shown]] = {}
        for task, problems in TASKS.items():
            path = out / f"{model}-{task}-n{n}-s{seed}"
            captured = capture_pool(model, path, task=task, n=n, limit=limit or problems, seed=seed)
            screen.print(f"[dim]{captured}[/dim]", soft_wrap=True)
            found[task] = list(_problems(open_pool(path), out / "pictures" / path.name))
            shown += found[task]
        _table(model, found, n)
    screen.print("\nPictures: the consensus matrix by basin, and the rollouts on a plane")
    for problem in shown:
        screen.print(f"  {problem.picture}  {_said(problem)}", soft_wrap=True)
    screen.print("\nNow try:")
    for call in (f"select {path} --text", f"evaluate {out}/*-s{seed}", f"inspect {path}"):
        screen.print(f"  .venv/bin/radmoe {call}", soft_wrap=True)


def _problems(pool: Pool, pictures: Path) -> Iterator[Shown]:
    """Every problem judged and drawn. Labels are read after the picks are made, to judge them."""
    from radmoe import baselines
    from radmoe.grading.labels import read_labels
    from radmoe.report.pictures import draw_problem
    from radmoe.selector import select

    kind = pool.kind or "math"
    picks = {
        group.problem_id: (group, [select(group, task=kind, confidence=c).index for c in (None, "conf50")])
        for group in progress(pool.groups(), len(pool.problems), "selecting")
    }
    labels = read_labels(pool.path)
    for problem_id in progress(sorted(picks), len(picks), "drawing"):
        group, chosen = picks[problem_id]
        graded = [labels[problem_id][i] for i in pool.rollout_indices(problem_id)]
        marks = [label.correct for label in graded]
        voted = baselines.majority([label.answer for label in graded])
        right = [baselines.average(marks), *(float(at is not None and marks[at]) for at in (voted, *chosen))]
        if kind == "code":
            right[1] = math.nan  # nearly every program is a string of its own: there is nothing to count
        found = Shown(problem_id, (*right, float(any(marks))), pictures / f"{problem_id}.png")
        title = f"{pool.model}, {problem_id}: {sum(marks)} of {len(marks)} rollouts right; {_said(found)}"
        draw_problem(group, graded, found.picture, task=kind, title=title)
        yield found


def _said(problem: Shown) -> str:
    _, voted, picked, *_ = problem.right
    vote = "" if math.isnan(voted) else f", majority {'right' if voted else 'wrong'}"
    return f"RAD {'right' if picked else 'wrong'}{vote}"


def _table(model: str, found: dict[str, list[Shown]], n: int) -> None:
    """Methods by task, in percent, with 95% intervals over problems."""
    from rich.table import Table

    from radmoe.stats import bootstrap_mean

    columns = {task: [problem.right for problem in shown] for task, shown in found.items()}
    columns["together"] = [right for rows in columns.values() for right in rows]
    table = Table(title=f"\n{model}: right, in percent [95% interval]", title_justify="left")
    table.add_column("method")
    for task, rows in columns.items():
        table.add_column(f"{task}\n{len(rows)} x {n}", justify="right")
    for i, method in enumerate(METHODS):
        cells = []
        for rows in columns.values():
            values = [row[i] for row in rows]
            if any(map(math.isnan, values)):
                cells.append("--")
                continue
            if len(values) < 2:
                cells.append(f"{100 * values[0]:.0f}")
                continue
            interval = bootstrap_mean(values)
            cells.append(f"{100 * interval.estimate:.0f} [{100 * interval.low:3.0f},{100 * interval.high:4.0f}]")
        table.add_row(method, *cells, style="bold" if method == "RAD" else "")
    console().print(table)
