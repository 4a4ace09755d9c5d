"""The lab's figures, from pools that `radmoe capture --task` made.

    python -m benchmarks.lab pools/*
    python -m benchmarks.lab pools/lab-oss-*-math-* --first 3     # the problems that all three efforts were asked
    python -m benchmarks.lab --load                               # how evenly the shipped models use their experts

Per pool, and for the math sets of a model and style together: how often a rollout, the majority, RAD and the best
of all are right, how long rollouts are, how much one exact string dominates, and basin purity with 95% intervals
over problems.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

SHOWN = {"average": "Avg", "majority": "majority", "rad": "RAD", "rad+dc": "RAD+DC", "oracle": "oracle"}
PURITY = ("delimiter@16", "delimiter@marker", "rand-one-loc@16")


@dataclass
class Cell:
    """One number per problem for everything measured on a pool."""

    model: str
    style: str
    task: str
    kind: str
    temperature: float
    rollouts: int
    scores: dict[str, dict[str, float]] = field(default_factory=dict)  # what -> problem -> value


def measure(path: Path) -> Cell:
    """Every figure of a graded pool, problem by problem."""
    from radmoe.cohort import METHODS, open_cohort
    from radmoe.studies.purity import problem_purity

    cohort = open_cohort(path)
    pool, kinds = cohort.pool, list(cohort.settings)
    if len(kinds) > 1:
        raise SystemExit(f"{path} holds answers of several kinds ({', '.join(kinds)}): give pools of one")
    cell = Cell(
        pool.model,
        pool.style or "default",
        pool.task or path.name,
        kinds[0],
        pool.sampling["temperature"],
        max(len(marks.answers) for marks in cohort.marks.values()),
    )
    for problem in cohort:
        values = {name: METHODS[name].judge(problem).hit for name in SHOWN}
        values["tokens"] = float(problem.lengths.mean())
        strings = Counter(answer for answer in problem.answers if answer is not None)
        values["top string"] = max(strings.values(), default=0) / len(problem)
        if kinds[0] == "math":
            purities = {readout: problem_purity(problem, readout) for readout in PURITY}
            values |= {readout: purity for readout, purity in purities.items() if purity is not None}
        for name, value in values.items():
            cell.scores.setdefault(name, {})[problem.problem_id] = value
    return cell


def pooled(cells: Iterable[Cell]) -> list[Cell]:
    """The math sets of each model and style as one."""
    together: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        if cell.kind == "math":
            key = cell.model, cell.style
            whole = together.setdefault(key, Cell(*key, "math", "math", cell.temperature, cell.rollouts))
            for what, values in cell.scores.items():
                whole.scores.setdefault(what, {}).update(values)
    return list(together.values())


def row(cell: Cell) -> list[str]:
    from radmoe.stats import bootstrap_mean

    def mean(what: str) -> float:
        return fmean(cell.scores[what].values())

    shown = [cell.model, cell.style, f"{cell.temperature:g}", cell.task, str(len(cell.scores["average"]))]
    shown += [f"{100 * mean(method):.1f}" for method in SHOWN]
    shown.append(f"{mean('tokens'):.0f}")
    shown.append(f"{fmean(value <= 0.2 for value in cell.scores['top string'].values()):.0%}")
    for readout in PURITY:
        values = list(cell.scores.get(readout, {}).values())
        if len(values) < 2:
            shown.append("")
            continue
        interval = bootstrap_mean(values)
        shown.append(f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]")
    return shown


HEADINGS = [
    "model", "style", "T", "task", "problems", *SHOWN.values(), "tokens",
    "no string > 20%", *(f"purity {readout}" for readout in PURITY),
]  # fmt: skip


def first(cell: Cell, count: int) -> Cell:
    """Only the first problems of the task, by the number at the end of their ids."""
    scores = {
        what: {name: value for name, value in values.items() if int(name.rpartition("-")[2]) < count}
        for what, values in cell.scores.items()
    }
    return replace(cell, scores=scores)


def loads() -> None:
    """Expert load of every shipped model on a batch of all tasks."""
    import torch

    from radmoe.lab.corpus import batches
    from radmoe.lab.models import MODELS, weights
    from radmoe.lab.train import expert_load

    for name, model in MODELS.items():
        source = batches(model, tokens=12_000, pad=model.config().pad_token_id, seed=5, workers=0)
        load = expert_load(weights(name), torch.from_numpy(next(source)[0]))
        print(
            f"{name}: entropy of the least even layer {load['entropy_min']:.3f}, rarest expert {load['rarest_expert']:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pools", nargs="*", type=Path)
    parser.add_argument("--first", type=int, help="only the first so many problems of each task")
    parser.add_argument("--load", action="store_true", help="print the shipped models' expert load instead")
    parser.add_argument(
        "--json", type=Path, help="write the values of every problem here, for a later call, and no table"
    )
    chosen = parser.parse_args()
    if chosen.load:
        loads()
        return
    cells = [
        Cell(**entry)
        for path in chosen.pools
        for entry in (json.loads(path.read_text()) if path.suffix == ".json" else [vars(measure(path))])
    ]
    if chosen.first:
        cells = [first(cell, chosen.first) for cell in cells]
    if chosen.json:
        chosen.json.write_text(json.dumps([vars(cell) for cell in cells]) + "\n")
        return
    print("| " + " | ".join(HEADINGS) + " |")
    print("|" + " --- |" * len(HEADINGS))
    for cell in cells + pooled(cells):
        print("| " + " | ".join(row(cell)) + " |")


if __name__ == "__main__":
    main()
