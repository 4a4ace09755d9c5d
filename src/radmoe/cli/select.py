"""`radmoe select`: which rollout of each problem to return."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radmoe.cli.common import (
    Json,
    Kernel,
    Neighbours,
    PoolPath,
    ReadoutName,
    console,
    defaults,
    limited,
    number,
    progress,
)

if TYPE_CHECKING:
    from radmoe.pool import Pool
    from radmoe.types import Selection

EXAMPLES = (
    "Examples: radmoe select pool/   |   radmoe select pool/ --task code --readout delimiter@marker   |   "
    "radmoe select pool/ --confidence conf50 --json   |   radmoe select runs/ --task agent"
)


def command(
    pool: PoolPath,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            help="math, choice, code or agent: which marker opens the answer.",
            show_default="as the pool says, else math",
        ),
    ] = None,
    readout: ReadoutName = None,
    k: Neighbours = None,
    kernel: Kernel = None,
    confidence: Annotated[
        str | None, typer.Option("--confidence", help="RAD+DC: conf50 or ranksum.", show_default="plain RAD")
    ] = None,
    layers: Annotated[
        str | None, typer.Option("--layers", help="Layer subset: s0 (a decile), c2, x9, or 0-3,7.", show_default="all")
    ] = None,
    budget: Annotated[int | None, typer.Option("--budget", help="Read only this many tokens per rollout.")] = None,
    problem: Annotated[list[str] | None, typer.Option("--problem", help="Only this problem; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first problems.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Threads; changes no result.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="For the random control readouts.")] = 0,
    text: Annotated[bool, typer.Option("--text", help="Also print the chosen rollout's text.")] = False,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the JSON lines to this file instead.")] = None,
) -> None:
    """Pick one rollout per problem from a pool, reading routing only.

    Under --json (or --out) each line holds problem_id, index (the pick's place among the problem's rollouts,
    null: abstained), its rollout_index, density and located (one entry per rollout; null where a rollout
    was not scored), abstained, margin, basin and k.
    """
    from radmoe.pool import open_pool
    from radmoe.selector import select_many

    opened = open_pool(pool)
    options = defaults(task or opened.kind or "math", readout, k, kernel) | {
        "confidence": confidence,
        "layers": layers,
        "budget": budget,
        "seed": seed,
    }
    problems = limited(limit, list(problem) if problem else opened.problems)
    groups = (opened.group(p) for p in problems)
    found = progress(select_many(groups, threads=jobs, **options), len(problems), "selecting")
    if as_json or out is not None:
        picks = _write_json(opened, problems, found, out)
    else:
        picks = list(zip(problems, found, strict=True))
        _print(picks, options)
    if text:
        _print_texts(opened, picks)
    _refuse_nothing(pool, picks, options)


def _write_json(
    pool: Pool, problems: list[str], found: Iterator[Selection], out: Path | None
) -> list[tuple[str, Selection]]:
    from radmoe.pool.schema import disk_errors, write_atomic

    picks, lines = [], []
    for pick in zip(problems, found, strict=True):
        picks.append(pick)
        lines.append(_line(pool, *pick))
        if out is None:
            typer.echo(lines.pop())
    if out is not None:
        with disk_errors(out):
            write_atomic(out, "".join(line + "\n" for line in lines).encode())
    return picks


def _line(pool: Pool, problem: str, selection: Selection) -> str:
    at = selection.index
    return json.dumps(
        {
            "problem_id": problem,
            "index": at,
            "rollout_index": None if at is None else pool.rollout_indices(problem)[at],
            "density": [number(d) for d in selection.density],
            "located": [bool(x) for x in selection.located],
            "abstained": selection.abstained,
            "margin": number(selection.margin),
            "basin": list(selection.basin),
            "k": selection.k,
        }
    )


def _print(picks: list[tuple[str, Selection]], options: dict[str, Any]) -> None:
    from rich.table import Table

    title = f"{options['readout']}, {options['task']}, {options['kernel']} kernel, k={options['k']}"
    table = Table(title=title + (f", {options['confidence']}" if options["confidence"] else ""), box=None)
    table.add_column("problem")
    for heading in ("rollouts", "located", "pick", "mean similarity", "basin", "margin"):
        table.add_column(heading, justify="right")
    for problem, s in picks:
        counts = (str(len(s.located)), str(int(s.located.sum())))
        if s.index is None:
            table.add_row(problem, *counts, "abstains", "", "", "", style="yellow")
            continue
        mean = s.density[s.index] / s.k if s.k else float("nan")
        margin = "-" if number(s.margin) is None else f"{s.margin:.3f}"
        table.add_row(problem, *counts, str(s.index), f"{mean:.3f}", str(len(s.basin)), margin)
    console().print(table)


def _print_texts(pool: Pool, picks: list[tuple[str, Selection]]) -> None:
    """Text is read only now, after every pick was made."""
    for problem, selection in picks:
        if selection.index is not None:
            text = pool.texts(problem)[selection.index]
            typer.echo(f"\n--- {problem}, rollout {selection.index}\n{text or '(no text kept)'}")


def _refuse_nothing(path: Path, picks: list[tuple[str, Selection]], options: dict[str, Any]) -> None:
    """Nothing selected anywhere is an error: most likely the wrong task or readout for this pool."""
    from radmoe.errors import AnchorNotFound

    if any(s.index is not None for _, s in picks):
        return
    if not picks:
        raise AnchorNotFound(f"{path} holds no rollouts: nothing to select from")
    most = max(int(s.located.sum()) for _, s in picks)
    reason = (
        f"no rollout has the anchor of {options['readout']} for task {options['task']}: radmoe inspect shows the anchors there are"
        if most == 0
        else f"no problem has two located rollouts of {options['readout']}, which a density needs: sample more rollouts"
    )
    raise AnchorNotFound(f"{path}: {reason}")
