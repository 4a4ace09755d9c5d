"""What stored routing tells about the text: a linear decoder reads tokens and answers from it.

    python -m benchmarks.leakage POOL... [--rollouts 16]

For graded pools whose answers are whole numbers, such as `radmoe lab pools --out pools/ --config lab-qwen-thinking --task math-3`.
Ridge regression onto one-hot labels is fitted on every second problem of a pool and tested on the others, so no problem is in
both halves. One row of routing is asked for the token that went into the pass and for the token that came out of it; the route
vector of a window is asked for the digits of the answer. Beside each share that is read right stands that of the commonest label,
which is what an empty row would give.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from radmoe import open_pool
from radmoe.evaluation.pools import open_graded
from radmoe.selection.readout import route_matrix
from radmoe.types import RouterShape, Trace

READOUTS = ("pre-delim@16", "delimiter@marker", "delimiter@16")
_RIDGE = 1e-3  # added to the diagonal, as a share of its mean


def decoded(train: NDArray[np.float32], labels: Sequence[int], test: NDArray[np.float32]) -> NDArray[np.int64]:
    """The label of every test row, by ridge regression of one-hot labels on the training rows and a constant."""
    names, places = np.unique(labels, return_inverse=True)
    X, Y = _with_constant(train), np.eye(len(names))[places]
    gram = X.T @ X
    gram[np.diag_indices(len(gram))] += _RIDGE * np.trace(gram) / len(gram)
    answer: NDArray[np.int64] = names[(_with_constant(test) @ np.linalg.solve(gram, X.T @ Y)).argmax(1)]
    return answer


def _with_constant(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.column_stack([rows, np.ones(len(rows))]).astype(np.float64)


def dense(rollout: Trace, shape: RouterShape) -> NDArray[np.float32]:
    """The rows of a rollout as vectors [T, L * E] of the experts' weights."""
    ids, mass = rollout.rows(0, len(rollout), weights=True)
    rows = np.zeros((len(rollout), shape.layers, shape.experts), np.float32)
    np.put_along_axis(rows, ids.astype(np.int64), 1 / shape.top_k if mass is None else mass.astype(np.float32), -1)
    return rows.reshape(len(rollout), -1)


class Halves:
    """Rows and labels of the problems that are learned from, and of those that are tested."""

    def __init__(self) -> None:
        self._rows: tuple[list[NDArray[np.float32]], ...] = ([], [])
        self._labels: tuple[list[int], ...] = ([], [])

    def add(self, half: int, rows: NDArray[np.float32], labels: Sequence[int]) -> None:
        self._rows[half].append(rows)
        self._labels[half].extend(labels)

    def right(self) -> float:
        """The share of the tested labels that are read right."""
        train, test = (np.concatenate(rows) for rows in self._rows)
        return float((decoded(train, self._labels[0], test) == np.array(self._labels[1])).mean())

    def commonest(self) -> float:
        """The share of the commonest label among those tested."""
        return float(np.unique(self._labels[1], return_counts=True)[1].max() / len(self._labels[1]))

    def __str__(self) -> str:
        learned, tested = (len(labels) for labels in self._labels)
        return (
            f"{self.right():.1%} (the commonest: {self.commonest():.1%}; {learned:,} rows learned, {tested:,} tested)"
        )


def measure(path: Path, rollouts: int) -> dict[str, Halves]:
    """Rows with the tokens beside them, and route vectors with the digits of the answers, of one pool."""
    pool, (graded,) = open_pool(path), open_graded(path)
    found: dict[str, Halves] = {}
    for place, problem in enumerate(graded):
        group, half = pool.group(problem.problem_id), place % 2
        for rollout in group.rollouts[:rollouts]:
            rows = dense(rollout, group.shape)[1:]
            found.setdefault("one row: the token that went in", Halves()).add(
                half, rows, rollout.token_ids[:-1].tolist()
            )
            found.setdefault("one row: the token that came out", Halves()).add(
                half, rows, rollout.token_ids[1:].tolist()
            )
        for readout in READOUTS:
            Z, located = route_matrix(group, readout, graded.kind)
            answers = [problem.answers[i] for i in np.flatnonzero(located).tolist()]
            kept = [i for i, answer in enumerate(answers) if answer is not None and answer.isdigit()]
            for name, digit in (("first", 0), ("last", -1)):
                labels = [int(str(answers[i])[digit]) for i in kept]
                found.setdefault(f"{readout}: the answer's {name} digit", Halves()).add(half, Z[kept], labels)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pools", nargs="+", type=Path, metavar="POOL")
    parser.add_argument("--rollouts", type=int, default=16, help="of each problem, whose single rows are read")
    given = parser.parse_args()
    for path in given.pools:
        print(path.name)
        for name, halves in measure(path, given.rollouts).items():
            print(f"  {name}: {halves}")


if __name__ == "__main__":
    main()
