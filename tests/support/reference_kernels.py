"""The kernels as the paper writes them, in plain NumPy: slow, short, and what the fast ones are tested against."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.selection.kernels.reference import reference_weighted_jaccard


def reference_binary_jaccard(B: ArrayLike) -> NDArray[np.float32]:
    """Weighted Jaccard of the indicator of B's non-zero entries."""
    return reference_weighted_jaccard(np.asarray(B) != 0)


def reference_knn_density(S: ArrayLike, k: int) -> NDArray[np.float64]:
    """Eq. 5 by sorting every row."""
    S = np.asarray(S, np.float64)
    others = [np.delete(row, i) for i, row in enumerate(S)]
    return np.array([np.sort(row)[::-1][:k].sum() for row in others])
