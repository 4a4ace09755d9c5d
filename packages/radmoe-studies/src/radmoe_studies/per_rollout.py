"""Arrays of a length that differs by rollout, such as a value for each token: read from the pool once, then cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.evaluation.problem import GradedProblem
from radmoe_studies.evidence import Panel, padded

Parts = tuple[NDArray[Any], ...]  # of a rollout: one array for each name, all as long


def per_rollout(
    panel: Panel, request: str, names: Sequence[str], measure: Callable[[GradedProblem], list[Parts]]
) -> Mapping[str, NDArray[Any]] | None:
    """`counts` [P, N], and under each name the arrays of all rollouts, one behind the other; None where there is no pool.

    `request` names it in the cache; `measure` gives the parts of each rollout of a problem.
    """
    if panel.pool is None:
        return None
    arrays = panel.load(request)
    if arrays is None:
        rows = list(panel.map(measure))
        counts = padded(panel, [[len(parts[0]) for parts in own] for own in rows], 0)
        flat = (np.concatenate(column) for column in zip(*(parts for own in rows for parts in own), strict=True))
        arrays = {"counts": counts} | dict(zip(names, flat, strict=True))
        panel.save(request, arrays, small=True)
    return arrays
