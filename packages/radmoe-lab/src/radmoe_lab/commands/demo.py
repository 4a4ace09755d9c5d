"""`radmoe demo`: two small MoE models answer problems 16 times each, RAD picks, and tables compare it with other
methods.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from radmoe.cli.capturing import capture_with_bar, graded_average, plan_for, summary_line
from radmoe.cli.common import progress
from radmoe.system.printing import block, console, say, styled
from radmoe_lab.commands import say_next_steps

HEADING = "Research"
EXAMPLES = (
    "radmoe demo",
    "radmoe demo --out /tmp/demo --seed 7",
    "radmoe demo -n 64 --limit 30",
)

MODELS = ("lab-qwen", "lab-oss")
TASKS = {"math-3": 9, "code": 5}  # problems of each for each model
SHOWN = ("average", "majority", "rad", "rad+dc", "oracle")  # methods, by their names in the registry


class Shown(NamedTuple):
    """One problem of the demo: how right each method is on it (NaN if there is nothing to vote on), and its picture."""

    problem_id: str
    hits: dict[str, float]
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
    """Sample from the lab models on this machine, select, compare.

    Everything is real and local: the models (8M parameters, trained for this project), their rollouts, the
    routing. Running it again samples nothing anew. At the end stands what the lab's models did at full size, which is
    a committed result and not computed here.
    """
    screen = console()
    shown: list[Shown] = []
    pools: list[Path] = []
    for model in MODELS:
        by_task: dict[str, list[Shown]] = {}
        for task, problems in TASKS.items():
            path = out / f"{model}-{task}-n{n}-s{seed}"
            captured = capture_with_bar(plan_for(task, None, model, limit=limit or problems, seed=seed, n=n), path)
            line = summary_line(captured, graded_average(path, task, None, seed))
            screen.print(styled((line, "dim")), soft_wrap=True)
            pools.append(path)
            by_task[task] = list(_problems(path, out / "pictures" / path.name))
            shown += by_task[task]
        _table(model, by_task, n)
    say("")
    say("Pictures: the consensus matrix by basin, and the rollouts on a plane")
    for problem in shown:
        say(f"  {problem.picture}  {_verdict(problem.hits)}")
    say("")
    say_next_steps(f"select {path} --text", f"evaluate {out}/*-s{seed}", f"inspect {path}")
    say("")
    _committed()
    _page(pools, out / "report.html")


def _page(pools: list[Path], out: Path) -> None:
    """Write the page of all problems and print its path."""
    from radmoe.report.explorer import write_report

    write_report(pools, out)
    say("")
    say(f"Look inside: open {out} in a browser. It says of every problem which rollout was picked, and why.")


def _committed() -> None:
    """Print the table over all configurations from the committed result."""
    from dataclasses import replace

    from radmoe.evaluation.screen import show_table

    try:
        from radmoe_studies.report.results import COMMITTED, read_results
    except ImportError:
        say("The results at full size are in radmoe-studies, which is not installed.")
        return
    results = read_results(COMMITTED)
    overview = results.overview()
    title = f"At full size: a committed result of {results.date}, which {results.command} makes again"
    show_table(replace(overview, title=title, notes=(f"{results.scale}.", *overview.notes)), console())


def _problems(path: Path, pictures: Path) -> Iterator[Shown]:
    """Judge every method on every problem, and draw it."""
    from radmoe.evaluation.methods import METHODS
    from radmoe.evaluation.pools import open_graded
    from radmoe.evaluation.scores import NEAR_UNIQUE_KINDS
    from radmoe.grading.labels import Label
    from radmoe_lab.pictures import draw_problem

    (graded,) = open_graded(path, use_cache=False)
    for problem in progress(graded, [1] * len(graded), "selecting and drawing", "problems"):
        hits = {name: METHODS[name].judge(problem).hit for name in SHOWN}
        if problem.setting.kind in NEAR_UNIQUE_KINDS:
            hits["majority"] = math.nan  # nearly every program is a string of its own: there is nothing to count
        right = f"{int(problem.correct.sum())} of {len(problem)} rollouts right"
        title = f"{graded.model}, {problem.problem_id}: {right}; {_verdict(hits)}"
        picture = pictures / f"{problem.problem_id}.png"
        marks = enumerate(zip(problem.answers, problem.marks.correct, strict=True))
        labels = [Label(problem.problem_id, place, answer, correct) for place, (answer, correct) in marks]
        draw_problem(problem.group, labels, picture, kind=problem.setting.kind, title=title)
        yield Shown(problem.problem_id, hits, picture)


def _verdict(hits: dict[str, float]) -> str:
    """Say whether RAD and, if there is one, the majority are right."""
    vote = "" if math.isnan(hits["majority"]) else f", majority {'right' if hits['majority'] else 'wrong'}"
    return f"RAD {'right' if hits['rad'] else 'wrong'}{vote}"


def _table(model: str, by_task: dict[str, list[Shown]], n: int) -> None:
    """Print the accuracy of each method by task, in percent, with 95% intervals over problems."""
    from radmoe.evaluation.kinds import NAMES
    from radmoe.evaluation.stats import bootstrap_mean
    from radmoe.system.screen import ScreenTable

    columns = by_task | {"together": [problem for shown in by_task.values() for problem in shown]}
    table = ScreenTable(title=f"{model}: right, in percent [95% interval]", title_justify="left")
    table.add_column("method")
    for task, shown in columns.items():
        table.add_column(block(f"{task}\n{len(shown)} x {n}"), justify="right")
    for method in SHOWN:
        cells = []
        for shown in columns.values():
            values = [problem.hits[method] for problem in shown]
            if any(map(math.isnan, values)):
                cells.append("--")
                continue
            if len(values) < 2:
                cells.append(f"{100 * values[0]:.0f}")
                continue
            interval = bootstrap_mean(values)
            cells.append(f"{100 * interval.estimate:.0f} [{100 * interval.low:3.0f},{100 * interval.high:4.0f}]")
        table.add_row(NAMES[method], *cells, style="bold" if method == "rad" else "")
    say("")
    console().print(table)
