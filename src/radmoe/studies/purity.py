"""Basin purity: do rollouts that route alike give the same answer? (Eq. "knn-purity", Fig. 2 left.)

A diagnostic that reads answers; no selector sees it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.grading.labels import Label
from radmoe.kernels import knn
from radmoe.pool import Pool
from radmoe.selector import similarity


def knn_purity(S: NDArray[np.float32], answers: Sequence[str], k: int = 1) -> float | None:
    """Chance-corrected share of k nearest neighbours with the same answer: 0 is chance, 1 perfect.

    Chance is leave-one-out: sum_a n_a (n_a - 1) / (N (N - 1)). None where it is 1 (one answer only) or where
    there are fewer than two rollouts: such a problem says nothing.
    """
    n = len(answers)
    if S.shape != (n, n):
        raise InputError(f"{n} answers need a similarity matrix {n}x{n}, got {S.shape}")
    if n < 2:
        return None
    chance = sum(count * (count - 1) for count in Counter(answers).values()) / (n * (n - 1))
    if chance == 1:
        return None
    given = np.asarray(answers, dtype=object)
    same = given[knn(S, min(k, n - 1))] == given[:, None]
    return float((same.mean() - chance) / (1 - chance))


def pool_purity(
    pool: Pool, labels: dict[str, dict[int, Label]], readout: str = "delimiter@16", *, k: int = 1, task: str = "math"
) -> dict[str, float]:
    """Purity of every problem that has two answers, over its located rollouts with an answer."""
    found = {}
    for group in pool.groups():
        graded = labels.get(group.problem_id, {})
        answers = [graded[i].answer if i in graded else None for i in pool.rollout_indices(group.problem_id)]
        S, reading = similarity(group, readout=readout, task=task)
        runs = np.flatnonzero(reading.located)
        kept = np.array([answers[i] is not None for i in runs], bool)
        purity = knn_purity(S[np.ix_(kept, kept)], [str(answers[i]) for i in runs[kept]], k)
        if purity is not None:
            found[group.problem_id] = purity
    return found
