"""Basin purity: do rollouts that route alike give the same answer? (Eq. "knn-purity", Fig. 2 left.)

The definition for one problem, which `radmoe_studies.basins.purities` is tested against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.selection.kernels import knn


def knn_purity(S: NDArray[np.float32], answers: Sequence[str], k: int = 1) -> float | None:
    """The share of the k nearest neighbours that give the same answer, corrected for chance: 0 is chance, 1 is perfect.

    Chance is leave-one-out: sum_a n_a (n_a - 1) / (N (N - 1)). The result is None where chance is 1, because all
    answers are the same, and where there are fewer than two rollouts: such a problem says nothing.
    """
    n = len(answers)
    if S.shape != (n, n):
        raise InputError(f"{n} answers need a similarity matrix {n}x{n}, got {S.shape}")
    if n < 2:
        return None
    chance = sum(count * (count - 1) for count in Counter(answers).values()) / (n * (n - 1))
    if chance == 1:
        return None
    strings = np.asarray(answers, dtype=object)
    same = strings[knn(S, min(k, n - 1))] == strings[:, None]
    return float((same.mean() - chance) / (1 - chance))
