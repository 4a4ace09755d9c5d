"""`radmoe demo`: the whole way, from rollouts on disk to the selected one, in seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radmoe.cli.common import console, progress

if TYPE_CHECKING:
    from radmoe.grading.labels import Label
    from radmoe.lab.planted import Planted
    from radmoe.pool import Pool
    from radmoe.types import RolloutGroup, Selection

EXAMPLES = "Examples: radmoe demo   |   radmoe demo --out /tmp/demo --seed 7"

_SHADES = ("#0d1b2a", "#1b3a5b", "#23648f", "#2a93b0", "#5cc0b4", "#b5e3a1", "#fdf6b0")


def command(
    out: Annotated[Path, typer.Option("--out", help="Where the pools are written.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option("--seed", help="Another seed, other pools.")] = 0,
) -> None:
    """Make two planted pools, select from them, and compare with random, majority and the oracle.

    The rollouts are synthetic: their answer basins were put there, so this shows that the parts work
    together, not how well RAD works on a model.
    """
    from radmoe.lab.planted import Planted

    screen = console()
    for task in ("math", "code"):
        path = out / f"planted-{task}-{seed}"
        pool = _make(Planted(task=task, seed=seed, rollouts=32), path)
        _compare(pool, task)
    _show_matrix(pool, pool.problems[0], task)
    screen.print("\nNow try:")
    for call in (f"inspect {path}", f"select {path} --task {task}", f"verify {path}"):
        screen.print(f"  .venv/bin/radmoe {call}", soft_wrap=True)


def _make(recipe: Planted, path: Path) -> Pool:
    from radmoe.grading.labels import Label, write_labels
    from radmoe.lab import planted
    from radmoe.pool import PoolWriter, open_pool
    from radmoe.pool.schema import LABELS

    if (path / LABELS).exists():
        return open_pool(path)
    labels = []
    writer = PoolWriter(
        path, shape=recipe.shape, vocab=planted.vocab(), model="planted", sampling={"seed": recipe.seed}
    )
    with writer:
        for made in progress(planted.groups(recipe), recipe.problems, f"planting {path.name}"):
            problem = made.group.problem_id
            for i, (rollout, text, answer) in enumerate(
                zip(made.group.rollouts, made.texts, made.answers, strict=True)
            ):
                if i >= writer.done(problem):
                    writer.add(problem, rollout, rollout_index=i, text=text, finish_reason="stop")
                labels.append(Label(problem, i, answer, answer == made.truth))
    write_labels(path, labels)
    return open_pool(path)


def _compare(pool: Pool, task: str) -> None:
    from rich.table import Table

    from radmoe.grading.labels import read_labels
    from radmoe.selector import medoid, select

    labels = read_labels(pool.path)
    methods: dict[str, Callable[[RolloutGroup], Selection]] = {
        "RAD  delimiter@16": lambda g: select(g, task=task),
        "RAD  delimiter@marker": lambda g: select(g, task=task, readout="delimiter@marker"),
        "RAD  binary kernel": lambda g: select(g, task=task, kernel="binary"),
        "RAD+DC  conf50": lambda g: select(g, task=task, confidence="conf50"),
        "medoid (control)": lambda g: medoid(g, task=task),
        "random window (control)": lambda g: select(g, task=task, readout="rand-one-loc@16"),
    }
    right: dict[str, list[float]] = {name: [] for name in ("random rollout", "majority of answers", *methods, "oracle")}
    for group in progress(pool.groups(), len(pool.problems), f"selecting {task}"):
        graded = [labels[group.problem_id][i] for i in pool.rollout_indices(group.problem_id)]
        correct = [label.correct for label in graded]
        right["random rollout"].append(fmean(correct))
        right["majority of answers"].append(_majority(graded))
        for name, method in methods.items():
            index = method(group).index
            right[name].append(0.0 if index is None else float(correct[index]))
        right["oracle"].append(float(any(correct)))
    table = Table(
        title=f"\nplanted {task}: {len(pool.problems)} problems x {len(graded)} rollouts", title_justify="left"
    )
    table.add_column("method")
    table.add_column("right", justify="right")
    table.add_column("")
    for name, values in right.items():
        share = fmean(values)
        style = "bold" if name.startswith("RAD  delimiter@16") else ""
        table.add_row(name, f"{share:.1%}", "█" * round(30 * share), style=style)
    console().print(table)


def _majority(graded: list[Label]) -> float:
    votes = Counter(label.answer for label in graded if label.answer is not None)
    if not votes:
        return 0.0
    winner = votes.most_common(1)[0][0]
    return float(next(label.correct for label in graded if label.answer == winner))


def _show_matrix(pool: Pool, problem: str, task: str) -> None:
    """The consensus matrix of one problem, ordered by basin, in the terminal."""
    import numpy as np
    from rich.text import Text

    from radmoe.selector import select, similarity

    group = pool.group(problem)
    picked = select(group, task=task)
    S, reading = similarity(group, task=task)
    runs = np.flatnonzero(reading.located)
    roots = picked.roots[runs]
    order = np.lexsort((-picked.score[runs], roots, -np.bincount(roots)[roots], roots != picked.index))
    shown = S[np.ix_(order, order)]
    off = shown[~np.eye(len(shown), dtype=bool)]
    low, high = float(off.min()), float(off.max())
    screen = console()
    screen.print(f"\nconsensus matrix of {problem} by basin, {low:.2f} (dark) to {high:.2f} (bright)")
    cell = "  " if 2 * len(shown) + 40 <= screen.width else " "
    for i, row in enumerate(shown):
        line = Text("  ")
        for value in row:
            level = int((min(float(value), high) - low) / max(high - low, 1e-9) * (len(_SHADES) - 1))
            line.append(cell, style=f"on {_SHADES[level]}")
        run = int(runs[order[i]])
        line.append(f"  {run:2d} " + _note(picked, run))
        screen.print(line, no_wrap=True)


def _note(picked: Any, run: int) -> str:
    if run == picked.index:
        return f"RAD's pick: density {picked.density[run]:.2f}, {len(picked.basin)} in its basin"
    return f"climbs to {picked.roots[run]}" if picked.roots[run] != run else "a mode of its own"
