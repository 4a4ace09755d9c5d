"""`radmoe bench`: what selection costs on this machine, stage by stage."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from radmoe.cli.common import Json, Kernel, Neighbours, ReadoutName, Task, console, defaults, limited, progress
from radmoe.errors import InputError

_SAMPLES = 20  # at least so many per stage

EXAMPLES = "Examples: radmoe bench   (a planted pool of 64 x 2,000 tokens)   |   radmoe bench pool/ --task code"


def command(
    pool: Annotated[Path | None, typer.Argument(metavar="[POOL]", help="A pool; without one, a planted one.")] = None,
    task: Task = "math",
    readout: ReadoutName = None,
    k: Neighbours = None,
    kernel: Kernel = None,
    limit: Annotated[int, typer.Option("--limit", help="Only the first problems.")] = 50,
    as_json: Json = False,
) -> None:
    """Time opening, locating, reading windows, the kernel and the density, one thread, per problem."""
    with tempfile.TemporaryDirectory() as scratch:
        if pool is None:
            pool = _plant(Path(scratch) / "pool")
        stages = _measure(pool, defaults(task, readout, k, kernel), limit)
    if as_json:
        typer.echo(json.dumps(stages))
        return
    from rich.table import Table

    table = Table(title=f"{stages.pop('problems')} problem(s) of {stages.pop('router')}, one thread", box=None)
    table.add_column("stage")
    table.add_column("median ms per problem", justify="right")
    for name, ms in stages.items():
        table.add_row(name, f"{ms:.2f}")
    console().print(table)


def _plant(path: Path) -> Path:
    from radmoe.lab import planted
    from radmoe.pool import PoolWriter
    from radmoe.types import RouterShape

    recipe = planted.Planted(shape=RouterShape(48, 128, 8), problems=2, rollouts=64, tokens=2000)
    with PoolWriter(path, shape=recipe.shape, vocab=planted.vocab(), model="planted") as writer:
        for made in progress(planted.groups(recipe), recipe.problems, "planting a pool"):
            for rollout in made.group.rollouts:
                writer.add(made.group.problem_id, rollout)
    return path


def _measure(path: Path, options: dict[str, Any], limit: int) -> dict[str, Any]:
    from radmoe.kernels import binary_jaccard, knn_density, weighted_jaccard
    from radmoe.pool import open_pool
    from radmoe.readout import read, windows
    from radmoe.selector import select

    pool = open_pool(path)
    problems = limited(limit, pool.problems)
    if not problems:
        raise InputError(f"{path} holds no rollouts: nothing to measure")
    select(pool.group(problems[0]), **options)  # compile before timing
    place = {name: options[name] for name in ("readout", "task")}
    kernel = binary_jaccard if options["kernel"] == "binary" else weighted_jaccard
    times: dict[str, list[float]] = {}

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        times.setdefault(name, []).append(1e3 * (time.perf_counter() - start))

    rounds = problems * -(-_SAMPLES // len(problems))
    for problem in progress(rounds, len(rounds), "measuring"):
        with stage("whole selection, pool opened fresh"):
            select(open_pool(path).group(problem), **options)
        with stage("  open the pool, read token ids"):
            group = open_pool(path).group(problem)
        with stage("  locate anchors"):
            for rollout in group.rollouts:
                windows(token_ids=rollout.token_ids, vocab=group.vocab, **place)
        with stage("  locate, read windows, average"):
            reading = read(group, **place, binary=options["kernel"] == "binary")
        with stage("  kernel"):
            S = kernel(reading.Z)
        if len(S) > 1:
            with stage("  density"):
                knn_density(S, options["k"])
    medians = {name: median(values) for name, values in times.items()}
    return {"problems": len(problems), "router": str(pool.shape)} | medians
