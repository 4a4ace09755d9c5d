"""The kernels as the paper writes them, in plain NumPy. They are slow and short; the fast ones are tested against them."""

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


def reference_binary_jaccard(B: ArrayLike) -> NDArray[np.float32]:
    """Weighted Jaccard of the indicator of B's non-zero entries."""
    return reference_weighted_jaccard(np.asarray(B) != 0)


def reference_knn_density(S: ArrayLike, k: int) -> NDArray[np.float64]:
    """Eq. 5 by sorting every row."""
    S = np.asarray(S, np.float64)
    others = [np.delete(row, i) for i, row in enumerate(S)]
    return np.array([np.sort(row)[::-1][:k].sum() for row in others])
