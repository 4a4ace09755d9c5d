"""`radmoe bench` measures what selection costs on this machine, stage by stage."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from radmoe.cli.common import (
    Json,
    KindName,
    limited,
    progress,
    settled_kinds,
    sizes_of,
    takes_rule,
)
from radmoe.errors import InputError
from radmoe.system.printing import console, say_json

_SAMPLES = 20  # the least number of measurements per stage

HEADING = "Research"
EXAMPLES = (
    "radmoe bench",
    "radmoe bench mine/ --kind code",
)


@takes_rule("readout", "k", "kernel")
def command(
    rule: Any,
    pool: Annotated[Path | None, typer.Argument(metavar="[POOL]", help="A pool; by default one is planted.")] = None,
    kind: KindName = None,
    limit: Annotated[int, typer.Option("--limit", help="Only the first problems.")] = 50,
    as_json: Json = False,
) -> None:
    """Time each stage of a selection, per problem and on one thread.

    The stages are opening a pool, locating anchors, reading windows, the kernel and the density. Without a pool, one of
    64 rollouts x 2,000 tokens is planted.
    """
    with tempfile.TemporaryDirectory() as scratch:
        if pool is None:
            pool = _plant(Path(scratch) / "pool")
        stages = _measure(pool, kind, rule, limit)
    if as_json:
        say_json(stages)
        return
    from radmoe.system.screen import ScreenTable

    table = ScreenTable(title=f"{stages.pop('problems')} problem(s) of {stages.pop('router')}, one thread", box=None)
    table.add_column("stage")
    table.add_column("median ms per problem", justify="right")
    for name, ms in stages.items():
        table.add_row(name, f"{ms:.2f}")
    console().print(table)


def _plant(path: Path) -> Path:
    from radmoe.pool import PoolWriter
    from radmoe.types import RouterShape
    from radmoe_lab import planted

    recipe = planted.Planted(shape=RouterShape(48, 128, 8), problems=2, rollouts=64, tokens=2000)
    with PoolWriter(path, shape=recipe.shape, vocab=planted.vocab(), model="planted") as writer:
        for problem in progress(planted.groups(recipe), [recipe.rollouts] * recipe.problems, "planting a pool"):
            for rollout in problem.group.rollouts:
                writer.add(problem.group.problem_id, rollout, kind=problem.group.kind)
    return path


def _measure(path: Path, kind: str | None, rule: Any, limit: int) -> dict[str, Any]:
    from radmoe.pool import open_pool
    from radmoe.selection.kernels import binary_jaccard, knn_density, weighted_jaccard
    from radmoe.selection.readout import read, windows
    from radmoe.selection.selector import select

    pool = open_pool(path)
    problems = limited(limit, pool.problems)
    if not problems:
        raise InputError(f"{path} holds no rollouts: nothing to measure")
    kinds = settled_kinds(pool, kind, rule.readout, problems)
    settings = {problem: rule.settle(own) for problem, own in kinds.items()}
    select(pool.group(problems[0]), kind=kinds[problems[0]], rule=rule)  # compile before timing
    times: dict[str, list[float]] = {}

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        times.setdefault(name, []).append(1e3 * (time.perf_counter() - start))

    rounds = problems * -(-_SAMPLES // len(problems))
    for problem in progress(rounds, sizes_of(pool, rounds), "measuring"):
        setting = settings[problem]
        kernel = binary_jaccard if setting.kernel == "binary" else weighted_jaccard
        with stage("whole selection, pool opened fresh"):
            select(open_pool(path).group(problem), kind=setting.kind, rule=rule)
        with stage("  open the pool, read token ids"):
            group = open_pool(path).group(problem)
        with stage("  locate anchors"):
            for rollout in group.rollouts:
                windows(setting.readout, rollout.token_ids, group.vocab, setting.kind)
        with stage("  locate, read windows, average"):
            reading = read(group, setting.readout, setting.kind, binary=setting.kernel == "binary")
        with stage("  kernel"):
            S = kernel(reading.Z)
        if len(S) > 1:
            with stage("  density"):
                knn_density(S, setting.k)
    medians = {name: median(values) for name, values in times.items()}
    return {"problems": len(problems), "router": str(pool.shape)} | medians
