"""`radmoe evaluate` measures on graded pools whether selection helped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radmoe.cli.common import Json, KindName, On, pool_path, takes_rule, write_file
from radmoe.errors import InputError
from radmoe.system.printing import bar, console, say, say_block

if TYPE_CHECKING:
    from radmoe.evaluation import GradedPool
    from radmoe.evaluation.report import Report

EXAMPLES = (
    "radmoe evaluate pool/",
    "radmoe evaluate pools/*/ --full",
    "radmoe evaluate pools/*/ --out tables.md",
    "radmoe evaluate pools/lab-*/ --rivals --fewer 8 --fewer 16 --out rivals.md",
    "radmoe evaluate pool/ --readout boundary@16 --json",
    "radmoe evaluate mine/ --kind code --name humaneval --format latex",
    "radmoe evaluate pools/*/ --on ray://head:6379 --out tables.md",
    "radmoe evaluate pools/lab-*/ --by family --confidence-window 32 -n 16",
)


@takes_rule("readout", "k", "kernel", "confidence_window")
def command(
    pools: Annotated[
        list[Path], typer.Argument(metavar="POOL", help="Graded pools.", show_default=False, parser=pool_path)
    ],
    rule: Any,
    kind: KindName = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Dataset name, one per pool in order.", show_default="task or directory"),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "-n", help="Only the first rollouts of each problem: what would fewer have done?", show_default="all"
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option("--by", help="Rows of tables: configuration (model and style), or family (its styles pooled)."),
    ] = "configuration",
    full: Annotated[bool, typer.Option("--full", help="Print every table.")] = False,
    rivals: Annotated[
        bool, typer.Option("--rivals", help="Compare routing with what is free, instead of or in addition to it.")
    ] = False,
    fewer: Annotated[
        list[int] | None,
        typer.Option("--fewer", help="With --rivals: also with only so many rollouts of each problem; may repeat."),
    ] = None,
    resamples: Annotated[int, typer.Option("--resamples", help="Bootstrap resamples of every interval.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed", help="Of the bootstrap.")] = 0,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", help="Processes, where there is no --on; changes no result.", show_default="all cores"),
    ] = None,
    on: On = None,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep results in the user's cache directory for the next call.")
    ] = True,
    style: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="terminal, markdown, csv, latex or json.",
            show_default="terminal; with --out, by its suffix",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead.")] = None,
    as_json: Json = False,
) -> None:
    """Compare RAD with other ways to pick, on graded pools.

    Prints whether selection helped, how RAD compares with the best baseline that reads no routing, and how right
    every usual method is. --full prints all tables: accuracy by dataset, the strict marker-only readout, anchor
    coverage, where the lift comes from, paired tests, the random envelope, dense wrong basins, every other
    method, the methods by kind of answer, and RAD against each baseline. A cell that shows -- says below the
    table why. Grade the pools first (radmoe grade).

    --rivals asks instead whether it is the routing: by kind of answer and by regime (data set, configuration, how
    many rollouts are right, how far they agree, how many there are) it compares routing with likelihood,
    self-certainty, text overlap, edit distance, programs grouped by what they do, and a majority vote, and says to
    which of them routing adds something.
    """
    _check_statistics()
    chosen = output_format(style, out, as_json)
    names: list[str | None] = list(name or [])
    if names and len(names) != len(pools):
        raise InputError(f"{len(names)} --name for {len(pools)} pools: give one per pool, in their order")
    if fewer and not rivals:
        raise InputError("--fewer adds rows to the tables of --rivals: give both, or -n for the first rollouts alone")
    from radmoe.evaluation import build_report
    from radmoe.evaluation.pools import check_distinct
    from radmoe.evaluation.rivals import rivals_report
    from radmoe.evaluation.scores import Draws, check_grouping

    check_grouping(by)
    check_distinct(pools)
    options = {"kind": kind, "rule": rule, "jobs": cores(jobs), "on": on or "", "use_cache": cache}

    def evaluated(n: int | None) -> list[GradedPool]:
        return [
            one
            for pool, dataset in zip(pools, names or [None] * len(pools), strict=True)
            for one in _evaluate(pool, options | {"n": n, "dataset": dataset})
        ]

    draws = Draws(resamples, seed)
    if rivals:
        by_number = {number: evaluated(number) for number in sorted(set(fewer or ()))}
        show(rivals_report(evaluated(n), by_number, draws), chosen, out, full=True)
        return
    show(build_report(evaluated(n), draws, by=by), chosen, out, full=full)


def show(report: Report, chosen: str, out: Path | None, *, full: bool) -> None:
    """Print a report in a format, or write it to a file. A terminal gets one screen unless it shall be `full`."""
    from radmoe.evaluation import render, screen

    if chosen == "terminal" and out is None and not full:
        screen.summary(report, console())
        say("")
        say("Every table: --full. Routing against what is free: --rivals.")
        return
    if chosen == "terminal" and out is None:
        screen.terminal(report, console())
        return
    text = screen.plain(report) if chosen == "terminal" else render.FORMATS[chosen](report)
    if out is None:
        say_block(text.removesuffix("\n"))
    else:
        write_file(out, text)


def _check_statistics() -> None:
    """Raise an InputError that names the extra to install if the statistics are missing."""
    try:
        import scipy  # noqa: F401
    except ImportError as error:
        raise InputError(f"evaluate needs {error.name}: pip install 'radmoe[eval]'") from None


def output_format(style: str | None, out: Path | None, as_json: bool) -> str:
    known = ("terminal", "markdown", "csv", "latex", "json")
    if as_json and style not in (None, "json"):
        raise InputError(f"--json contradicts --format {style}: give one of them")
    if style is None:
        by_suffix = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json", ".txt": "terminal"}
        if out is not None and not as_json and out.suffix not in by_suffix:
            raise InputError(
                f"--out {out} does not say which format it shall have: end it in {', '.join(by_suffix)}, or give --format"
            )
        style = "json" if as_json else "terminal" if out is None else by_suffix[out.suffix]
    if style not in known:
        raise InputError(f"unknown format {style!r}: use one of {', '.join(known)}")
    return style


def cores(jobs: int | None) -> int:
    """The number of processes: as given, else one per usable core."""
    import os

    if jobs is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return jobs


def _evaluate(path: Path, options: dict[str, Any]) -> tuple[GradedPool, ...]:
    """Evaluate one pool, with progress; what was inferred of its kinds is said on stderr."""
    from radmoe.evaluation import evaluate_pool

    with bar(f"evaluating {path.name}") as update:
        pools = evaluate_pool(path, progress=update, **options)
    for note in dict.fromkeys(one.inferred for one in pools if one.inferred):
        say(f"radmoe: {path}: {note}", err=True)
    return pools
