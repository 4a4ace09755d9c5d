"""`radmoe grade` finds which rollouts of a pool are right."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from radmoe.cli.common import Json, PoolPath, option, takes
from radmoe.errors import InputError
from radmoe.system.plugins import added
from radmoe.system.printing import bar, console, say, say_json

EXAMPLES = (
    "radmoe grade pool/",
    "radmoe grade pool/ --jobs 4 --timeout 2",
    "radmoe grade pool/ --task hmmt_feb_2025",
    "radmoe grade pool/ --data problems.jsonl",
    "radmoe grade mine/ --behaviours",
    "radmoe grade pool/ --task gpqa_diamond --data gpqa.jsonl --seed 7",
    "radmoe grade pool/ --answers answers.jsonl --json",
)


_SOURCE: dict[str, Any] = {  # where problems come from: the arguments of `problems_of`
    "task": option(
        str,
        "--task",
        f"The data set the problems come from: {', '.join((*added('tasks'), 'aime_2024', 'aime_2025'))}, "
        "hmmt_feb_2025, brumo_2025, gpqa_diamond, livecodebench_v5, or package.module.NAME of your own.",
        "as the pool records",
    ),
    "data": option(Path, "--data", "A JSONL file of the problems, as capture read it, instead of the hub."),
    "seed": option(
        int,
        "--seed",
        "The seed that drew the lab's problems or shuffled GPQA's options.",
        "as the problems' ids say",
    ),
}
_LIMITS: dict[str, Any] = {  # how programs and comparisons run: arguments of `grade_pool` and `write_behaviours`
    "timeout": option(float, "--timeout", "Seconds per program, contest test or LaTeX comparison.", "1, 6 and 3"),
    "jobs": option(int, "--jobs", "Sandboxes at once; changes no result.", "2"),
    "unconfined": option(
        bool,
        "--unconfined",
        "Run programs even where the system cannot confine them: they may then read your files and their tests.",
    ),
}


@takes("source", dict, _SOURCE)
@takes("limits", dict, _LIMITS)
def command(
    pool: PoolPath,
    source: Any,
    answers: Annotated[
        Path | None,
        typer.Option("--answers", help="Or a JSONL of problem_id and answer: an integer, a letter, LaTeX or a text."),
    ] = None,
    limits: Any = None,
    behaviours: Annotated[
        bool,
        typer.Option(
            "--behaviours", help="Also run programs on their prompt's examples, to group them by what they return."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check every rollout's answer and write the pool's labels.

    Math answers are compared by value, in a process that is killed when it takes too long; letters and texts are
    normalised and compared; programs run their tests in a sandbox. The labels are for evaluation: nothing that selects
    ever reads them.
    """
    from radmoe.grading import grade_pool
    from radmoe.grading.sources import problems_of, read_answers
    from radmoe.pool import open_pool

    if answers is not None and source:
        raise InputError("--answers replaces --task, --data and --seed: give one or the other")
    limits = {"jobs": 2} | limits
    if limits.get("timeout", 1) <= 0:
        raise InputError(f"--timeout must be positive, got {limits['timeout']:g}")
    opened = open_pool(pool)
    problems = None
    if answers is not None:
        problems = read_answers(answers)
    elif source:
        problems = problems_of(opened, **source)
    with bar("grading", total=len(opened)) as update:
        summary = grade_pool(pool, problems, progress=lambda done: update(advance=done), **limits)
    behaving = None
    if behaviours:
        from radmoe.grading.behaviours import write_behaviours

        with bar("running programs", "programs") as update:
            behaving = write_behaviours(pool, problems, progress=lambda done: update(advance=done), **limits)
    if not summary.parseable:
        say(
            f"radmoe: no rollout of {pool} has an answer (no \\boxed{{...}}, fenced block or final response): "
            f"all {summary.graded} count as wrong",
            err=True,
        )
    if as_json:
        say_json({"pool": str(pool), **asdict(summary)} | ({} if behaving is None else {"behaving": behaving}))
        return
    from radmoe.system.screen import ScreenTable

    per_problem = summary.graded / summary.problems
    average = f"Avg@{per_problem:g}" if per_problem.is_integer() else "Avg"
    table = ScreenTable(title=f"{pool}: {summary.problems} problems", box=None)
    for heading in ("rollouts", "graded", "parseable", "right", average):
        table.add_column(heading, justify="right")
    counts = (summary.rollouts, summary.graded, summary.parseable, summary.right)
    table.add_row(*map(str, counts), f"{100 * summary.average:.1f}%")
    console().print(table)
    if summary.unmarked:
        say(
            f"{summary.unmarked} answers stand in rollouts without \\boxed{{, which is what selection looks for: in \\fbox or "
            "\\boxed without braces, or as a letter stated in words"
        )
    if behaving is not None:
        say(f"{behaving} programs return something for the examples in their prompts")
