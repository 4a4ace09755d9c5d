"""What evaluation costs at the paper's size: 4,850 problems x 64 rollouts, 48x128 top-8, windows of 16 tokens.

    python -m benchmarks.evaluate [--pool DIR] [--problems 4850] [--jobs 2]
    python -m benchmarks.evaluate --lab [--pool DIR] [--jobs 2]     # the lab's full size instead

The pool is planted: 97 problems are generated and written again and again under other ids, with routing kept only where
`delimiter@16` reads it, and rollouts of some 55 tokens. Times therefore hold for windows and kernels, not for reading
the token ids and logprobs of long rollouts. With --pool the pool is kept there and used again. Times are the wall's
and the processes' own (user and system, workers included): on a busy machine only the second is steady.

With --lab there are the eight pools of one lab configuration, 725 problems x 64 rollouts of some 120 tokens, 11x32 top-8,
with all routing; their records stand for seven configurations when the tables are made.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from radmoe.errors import MethodUnavailable
from radmoe.pool import PoolWriter, Profile
from radmoe.pool.schema import LABELS
from radmoe.types import Kind, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted

RECIPE = Planted(shape=RouterShape(48, 128, 8), problems=97, rollouts=64, tokens=30, agreement=0.3)
LAB = Planted(shape=RouterShape(11, 32, 8), problems=30, rollouts=64, tokens=120, agreement=0.3)
LAB_TASKS: dict[str, tuple[Kind, int]] = {
    **{f"math-{level}": ("math", 30) for level in range(1, 5)},
    "choice": ("choice", 198),
    "code": ("code", 167),
    "code-wide": ("code", 120),
    "explain": ("text", 120),
}
CONFIGURATIONS = 7


def write(path: Path, problems: int, recipe: Planted = RECIPE, kind: Kind = "math", **options: Any) -> None:
    """The pool and its labels, unless they are there."""
    from radmoe.grading.labels import Label, write_labels

    if (path / LABELS).exists():
        return
    labels = []
    with PoolWriter(path, shape=recipe.shape, vocab=planted.vocab(), model="planted", **options) as writer:
        distinct = list(planted.groups(recipe))
        for number, made in enumerate(islice(cycle(distinct), problems)):
            name = f"problem-{number:05d}"
            for i, (rollout, answer) in enumerate(zip(made.group.rollouts, made.answers, strict=True)):
                if i >= writer.done(name):
                    writer.add(name, rollout, kind=kind, rollout_index=i)
                labels.append(Label(name, i, answer, answer == made.truth))
    write_labels(path, labels)


@contextmanager
def stage(name: str, spent: dict[str, tuple[float, float]]) -> Iterator[None]:
    wall, cpu = time.perf_counter(), _cpu()
    yield
    spent[name] = (time.perf_counter() - wall, _cpu() - cpu)
    print(f"{name:44} {spent[name][0]:7.1f} s wall {spent[name][1]:7.1f} s cpu", flush=True)


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def write_lab(path: Path) -> list[Path]:
    """The pools of one lab configuration. Boxed answers stand for choices, and for prose, which is read behind </think>."""
    for seed, (task, (kind, problems)) in enumerate(LAB_TASKS.items()):
        recipe = replace(LAB, kind="code" if kind == "code" else "math", seed=seed)
        write(path / task, problems, recipe, kind, task=task, style="planted")
    return [path / task for task in LAB_TASKS]


def measure(paths: list[Path], jobs: int, copies: int = 1) -> dict[str, tuple[float, float]]:
    """Seconds, wall and CPU, of each stage of `radmoe evaluate`. Tables are made of `copies` configurations."""
    from radmoe.evaluation import build_report, evaluate_pool
    from radmoe.evaluation.render import FORMATS
    from radmoe.evaluation.screen import plain

    spent: dict[str, tuple[float, float]] = {}
    with stage(f"open, select, grade ({jobs} processes)", spent):
        records = [one for path in paths for one in evaluate_pool(path, jobs=jobs, use_cache=False)]
    many = [replace(one, model=f"{one.model} {copy}") for copy in range(copies) for one in records]
    with stage(f"tables, tests and intervals ({copies} x {len(paths)} pools)", spent):
        report = build_report(many)
    formats: dict[str, Callable[..., str]] = {"terminal": plain, **FORMATS}
    with stage(f"{len(formats)} formats", spent):
        for render in formats.values():
            render(report)
    with stage("fill the cache (not part of it)", {}):
        evaluate_pool(paths[0], jobs=jobs)
    with stage("a pool from the cache", spent):
        evaluate_pool(paths[0], jobs=jobs)
    print(f"\n{report.verdict}")
    return spent


def breakdown(path: Path, problems: int = 100) -> None:
    """Milliseconds of CPU that a problem spends where, on the first problems and one process.

    Stages come first, in the order in which methods ask for them; then what each method adds to them.
    """
    from radmoe.evaluation.methods import METHODS
    from radmoe.evaluation.pools import open_graded

    with stage("open the graded pool: pool, labels, kinds", {}):
        (graded,) = open_graded(path, use_cache=False)
    spent: dict[str, list[float]] = {}

    def clock(name: str, call: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = call()
        spent.setdefault(name, []).append(time.process_time() - start)
        return result

    for name in graded.problem_ids[:problems]:
        problem = clock("token ids", lambda n=name: graded.problem(n))
        strict = problem.setting.strict
        clock("anchors, windows of 16, similarity", lambda p=problem: p.similarity())
        clock("marker windows, similarity", lambda p=problem, r=strict: p.similarity(r))
        clock("RAD's selection and basin", lambda p=problem: p.selection)
        clock("top-k logprobs and confidence", lambda p=problem: p.confidence)
        clock("sampled logprobs and likelihood", lambda p=problem: p.likelihoods)
        clock("steps", lambda p=problem: p.steps)
        for method in METHODS.values():
            with suppress(MethodUnavailable):
                clock(f"method {method.name}", lambda m=method, p=problem: m.judge(p))
    count = min(problems, len(graded))
    print(f"\nper problem, CPU, median of {count} (sum {1e3 * sum(map(median, spent.values())):.2f} ms):")
    for name, seconds in spent.items():
        print(f"  {name:42} {1e3 * median(seconds):7.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--pool", type=Path, help="keep the pool here")
    parser.add_argument("--problems", type=int, default=4850)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--lab", action="store_true", help="one configuration of the lab at full size")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = options.pool or Path(scratch) / "pool"
        with stage("make the pools (not part of it)", {}):
            if options.lab:
                paths, recipe, problems = write_lab(path), LAB, sum(count for _, count in LAB_TASKS.values())
            else:
                paths, recipe, problems = [path], RECIPE, options.problems
                write(path, problems, profile=Profile(readouts=("delimiter@16",)))
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        print(f"{problems:,} problems x {recipe.rollouts}, {recipe.shape}, {size / 1e9:.2f} GB\n")
        spent = measure(paths, options.jobs, CONFIGURATIONS if options.lab else 1)
        wall, cpu = (sum(times) for times in zip(*list(spent.values())[:3], strict=True))
        print(f"whole evaluation: {wall:.1f} s wall, {cpu:.1f} s cpu\n")
        breakdown(paths[-1])


if __name__ == "__main__":
    main()
