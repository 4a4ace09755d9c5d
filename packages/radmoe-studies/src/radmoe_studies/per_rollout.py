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
    """Measure every rollout of a panel's pool. Returns None if the panel has no pool.

    `measure` returns several arrays for each rollout of a problem, one for each of `names`. The result has under each name
    these arrays one after the other, and as `counts` [P, N] how long each was. `request` is the key of the result in the cache.
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
