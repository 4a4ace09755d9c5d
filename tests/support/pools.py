"""Graded pools on disk, and records made by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from planted_pools import graded_pool, labels
from radmoe.evaluation import Records
from radmoe.evaluation.cohort import METHODS
from radmoe.evaluation.cohort.families import family_of
from radmoe.evaluation.records import COUNTS
from radmoe.selection.selector import setting_for
from radmoe.types import Kind

__all__ = ["graded_pool", "labels", "records", "registry_restored"]


@contextmanager
def registry_restored() -> Iterator[None]:
    """Forget the methods that a test registers."""
    before = dict(METHODS)
    try:
        yield
    finally:
        METHODS.clear()
        METHODS.update(before)


def records(
    hits: dict[str, Sequence[int]],
    *,
    right: Sequence[int],
    located: Sequence[int] | None = None,
    located_right: Sequence[int] | None = None,
    rollouts: int = 8,
    kind: Kind = "math",
    **names: Any,
) -> Records:
    """Records of a pool whose every other method did as RAD did; six of eight rollouts agree on an answer."""
    n = len(right)
    counts = dict.fromkeys(COUNTS, np.full(n, rollouts)) | {"distinct": np.full(n, 2), "plurality": np.full(n, 6)}
    counts["right"] = np.array(right)
    counts["located"] = np.array(located if located is not None else [rollouts] * n)
    counts["located_right"] = np.array(located_right if located_right is not None else right)
    counts["basin"] = np.array(names.pop("basin", [rollouts // 4] * n))
    every = {method: np.array(hits.get(method, hits["rad"]), np.float64) for method in METHODS}
    every["average"] = np.array(right) / rollouts
    for method in names.get("missing", {}):
        every.pop(method)
    return Records(
        pool="made/",
        setting=setting_for(kind),
        problem_ids=tuple(f"p{i}" for i in range(n)),
        counts=counts,
        picks={method: np.zeros(n, np.int64) for method in every if METHODS[method].form != "draw"},
        hits=every,
        **{"model": "m", "family": family_of(names.get("model", "m")), "dataset": "d"} | names,
    )
