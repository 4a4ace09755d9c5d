"""Two methods on the same problems, as cells of a table: difference, interval and test, and what a family of tests shows.

A family is all comparisons that are printed together. Every p that a table or a sentence shows is corrected for its family by
Holm's method; the p before that is in CSV and JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from radmoe.evaluation.scores import Draws, Scores
from radmoe.evaluation.stats import holm
from radmoe.evaluation.table import Cell, Pair
from radmoe.evaluation.wording import SURE


def compare(scores: Scores, first: str, second: str, draws: Draws, *, on: NDArray[np.bool_] | None = None) -> Cell:
    """The first method minus the second on these problems (those `on`), with its interval and its test."""
    x, y = scores.hits(first), scores.hits(second)
    test = scores.test(x, y, on=on)
    pair = Pair(test.b, test.c, test.p, test=test.test)
    return Cell(test.gap, "points", n=test.n, pair=pair, **scores.bounds(x, draws, y, on=on))


def corrected(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of a family with Holm's correction over all of them that have a test."""
    pairs = {at: cell.pair for at, cell in enumerate(cells) if cell.pair is not None}
    adjusted = dict(zip(pairs, holm([pair.p for pair in pairs.values()]).tolist(), strict=True))
    return [
        cell if cell.pair is None else replace(cell, pair=replace(cell.pair, adjusted=adjusted[at]))
        for at, cell in enumerate(cells)
    ]


def differ(cell: Cell) -> bool:
    """Whether a tested difference is one: its corrected p is small."""
    return cell.pair is not None and cell.pair.adjusted is not None and cell.pair.adjusted < SURE


def words_of_test(cells: Iterable[Cell]) -> str:
    """The test behind the p-values of some cells; empty where there is none."""
    tests = {cell.pair.test for cell in cells if cell.pair is not None}
    flips = "exact sign flips of problems, each with all its configurations"
    if tests == {"mcnemar", "sign-flip"}:
        return f"exact McNemar where each problem occurs once, else {flips}"
    return {"mcnemar": "exact McNemar, each problem once", "sign-flip": flips}[tests.pop()] if tests else ""
