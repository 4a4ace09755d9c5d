"""Weighted Jaccard as the paper writes it, in plain NumPy: for numbers that float32 does not hold, and to test the fast one against."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def reference_weighted_jaccard(Z: ArrayLike) -> NDArray[np.float32]:
    """Eq. 3 as it is written, in float64. Cost: 2 N passes over [N, D]."""
    Z = np.asarray(Z, np.float64)
    S = np.ones((len(Z), len(Z)), np.float32)
    for i, z in enumerate(Z):
        least, most = np.minimum(z, Z).sum(axis=1), np.maximum(z, Z).sum(axis=1)
        S[i, most > 0] = least[most > 0] / most[most > 0]
    return S
