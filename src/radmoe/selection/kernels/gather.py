"""Route vectors summed from rows of expert ids and weights (Eq. 4)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.selection.kernels.jit import jit
from radmoe.types import WEIGHT_SUM_TOLERANCE


@cache
def half_values() -> NDArray[np.float32]:
    """The value of every float16 as a float32, indexed by its bits, because numba knows no float16."""
    return np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)


@jit
def accumulate(Z: Any, owner: Any, scale: Any, ids: Any, mass: Any, values: Any, layers: Any, experts: int) -> bool:
    """Add weights * scale[owner] to Z[owner], row by row. Returns True if an id or a weight is impossible.

    `mass` holds the bits of float16 weights. Where it is empty, every expert weighs 1/K. Numbers that index an array have no sign
    here: numba looks at every signed one for a count from the end, which took a third of the time.
    """
    top_k = ids.shape[2]
    weighted = mass.size > 0
    weight = np.float32(1.0 / top_k)
    known = np.uint64(experts)
    for row in range(len(owner)):
        i = np.uint64(owner[row])
        share = np.float32(scale[i])
        for at in range(len(layers)):
            layer = np.uint64(layers[at])
            block = np.uint64(at) * known
            total = np.float32(0.0)
            for k in range(top_k):
                expert = np.uint64(np.int64(ids[row, layer, k]))  # a negative id becomes a large one
                if weighted:
                    weight = values[mass[row, layer, k]]
                if expert >= known or not weight >= 0:
                    return True
                total += weight
                Z[i, block + expert] += weight * share
            if not abs(total - np.float32(1.0)) <= WEIGHT_SUM_TOLERANCE:
                return True
    return False
