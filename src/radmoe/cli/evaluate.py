"""`radmoe evaluate`: did selection help on these pools?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radmoe.cli.common import Json, Kernel, Neighbours, ReadoutName, console, defaults
from radmoe.errors import InputError

if TYPE_CHECKING:
    from radmoe.evaluation import Records

EXAMPLES = (
    "Examples: radmoe evaluate pool/   |   radmoe evaluate pools/*/ --out tables.md   |   "
    "radmoe evaluate pool/ --readout boundary@16 --json   |   radmoe evaluate mine/ --task code --name humaneval --format latex"
)


def command(
    pools: Annotated[list[Path], typer.Argument(metavar="POOL", help="Graded pool directories.", show_default=False)],
    task: Annotated[
        str | None,
        typer.Option("--task", help="math, choice, code or agent.", show_default="as the pool says, else math"),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Dataset name, one per pool in order.", show_default="task or directory"),
    ] = None,
    readout: ReadoutName = None,
    k: Neighbours = None,
    kernel: Kernel = None,
    resamples: Annotated[int, typer.Option("--resamples", help="Bootstrap resamples of every interval.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed", help="Of the bootstrap.")] = 0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Processes; changes no result.", show_default="all cores")
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep results in POOL/evaluation.cache for the next call.")
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
    """Compare RAD with random picks, votes and the oracle on graded pools: the paper's tables for your rollouts.

    Accuracy by dataset, the strict marker-only readout, anchor coverage, where the lift comes from, paired
    tests, the random envelope, dense wrong basins, every other baseline, and one sentence that sums it up.
    A cell that shows -- says below the table why. Grade the pools first (radmoe grade).
    """
    try:
        import scipy  # noqa: F401
    except ImportError as error:
        raise InputError(f"evaluate needs {error.name}: pip install 'radmoe[eval]'") from None
    chosen = _format(style, out, as_json)
    names: list[str | None] = list(name or [])
    if names and len(names) != len(pools):
        raise InputError(f"{len(names)} --name for {len(pools)} pools: give one per pool, in their order")
    records = [
        _evaluate(pool, task, readout, k, kernel, dataset, _jobs(jobs), cache)
        for pool, dataset in zip(pools, names or [None] * len(pools), strict=True)
    ]
    from radmoe.evaluation import render, report, screen
    from radmoe.evaluation.scores import Draws

    found = report(records, Draws(resamples, seed))
    if chosen == "terminal" and out is None:
        screen.terminal(found, console())
        return
    text = screen.plain(found) if chosen == "terminal" else render.FORMATS[chosen](found)
    if out is None:
        typer.echo(text, nl=False)
        return
    from radmoe.pool.schema import disk_errors, write_atomic

    with disk_errors(out):
        write_atomic(out, text.encode())


def _format(style: str | None, out: Path | None, as_json: bool) -> str:
    known = ("terminal", "markdown", "csv", "latex", "json")
    if as_json and style not in (None, "json"):
        raise InputError(f"--json contradicts --format {style}: give one of them")
    if style is None:
        by_suffix = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}
        style = "json" if as_json else "terminal" if out is None else by_suffix.get(out.suffix, "terminal")
    if style not in known:
        raise InputError(f"unknown format {style!r}: use one of {', '.join(known)}")
    return style


def _jobs(jobs: int | None) -> int:
    import os

    if jobs is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return jobs


def _evaluate(
    path: Path,
    task: str | None,
    readout: str | None,
    k: int | None,
    kernel: str | None,
    dataset: str | None,
    jobs: int,
    cache: bool,
) -> Records:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from radmoe.evaluation import Settings, evaluate_pool, naming
    from radmoe.pool.reader import manifest

    settings = Settings(**defaults(naming.kind(manifest(path), task), readout, k, kernel))
    errors = console(stderr=True)
    columns = (TextColumn(f"evaluating {path.name}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        work = bar.add_task("evaluating", total=None)
        return evaluate_pool(
            path,
            settings,
            dataset=dataset,
            jobs=jobs,
            use_cache=cache,
            progress=lambda done, total: bar.update(work, completed=done, total=total),
        )
