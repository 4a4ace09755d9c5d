"""What every rollout of a panel has many or few of, such as a value for each token: read from the pool once, then cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.evaluation.cohort import GradedProblem
from radmoe.evaluation.workers import map_problems
from radmoe_studies import store
from radmoe_studies.evidence import Evidence, Panel

Parts = tuple[NDArray[Any], ...]  # of a rollout: one array for each name, all as long


def ragged(
    evidence: Evidence,
    panel: Panel,
    request: str,
    names: Sequence[str],
    measure: Callable[[GradedProblem], list[Parts]],
) -> dict[str, NDArray[Any]] | None:
    """`counts` [P, N], and under each name the arrays of all rollouts, one behind the other; None where there is no pool.

    `request` names it in the cache; `measure` gives the parts of each rollout of a problem.
    """
    cohort = evidence.cohorts.get(panel.path)
    if cohort is None:
        return None
    arrays = store.load(panel.identity, request) if evidence.use_cache else None
    if arrays is None:
        rows = list(map_problems(cohort, measure, evidence.jobs, panel.problem_ids))
        counts = np.zeros(panel.here.shape, np.int64)
        for row, own in enumerate(rows):
            counts[row, : len(own)] = [len(parts[0]) for parts in own]
        flat = (np.concatenate(column) for column in zip(*(parts for own in rows for parts in own), strict=True))
        arrays = {"counts": counts} | dict(zip(names, flat, strict=True))
        if evidence.use_cache:
            store.save(panel.identity, request, arrays, small=True)
    return arrays
