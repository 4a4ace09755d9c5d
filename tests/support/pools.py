"""Graded pools on disk, and evaluated ones made by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from planted_pools import graded_pool, labels
from radmoe.evaluation.methods import METHODS
from radmoe.evaluation.pools import GradedPool, Outcomes
from radmoe.evaluation.problem import Marks
from radmoe.selection.rule import Rule
from radmoe.types import Kind

COUNTS = ("rollouts", "right", "answered", "plurality", "located", "located_right", "basin")

__all__ = ["evaluated", "graded_pool", "labels", "registry_restored"]


@contextmanager
def registry_restored() -> Iterator[None]:
    """Forget the methods that a test registers."""
    before = dict(METHODS)
    try:
        yield
    finally:
        METHODS.clear()
        METHODS.update(before)


def evaluated(
    hits: dict[str, Sequence[int]],
    *,
    right: Sequence[int],
    located: Sequence[int] | None = None,
    located_right: Sequence[int] | None = None,
    rollouts: int = 8,
    kind: Kind = "math",
    **names: Any,
) -> GradedPool:
    """An evaluated pool whose every other method did as RAD did; six of eight rollouts agree on an answer."""
    n = len(right)
    counts = dict.fromkeys(COUNTS, np.full(n, rollouts)) | {"plurality": np.full(n, 6)}
    counts["right"] = np.array(right)
    counts["located"] = np.array(located if located is not None else [rollouts] * n)
    counts["located_right"] = np.array(located_right if located_right is not None else right)
    counts["basin"] = np.array(names.pop("basin", [rollouts // 4] * n))
    every = {method: np.array(hits.get(method, hits["rad"]), np.float64) for method in METHODS}
    every["average"] = np.array(right) / rollouts
    missing = names.pop("missing", {})
    for method in missing:
        every.pop(method)
    picks = {method: np.zeros(n, np.int64) for method in every if METHODS[method].form != "draw"}
    marks = {f"p{i}": Marks((None,) * rollouts, (False,) * rollouts) for i in range(n)}
    return GradedPool(
        Path("made/"),
        Rule().settle(kind),
        names.pop("marks", marks),
        known={"outcomes": Outcomes(counts, picks, every, missing)},
        **{"model": "m", "dataset": "d"} | names,
    )
