"""The layout of one problem: the order of its rollouts in a matrix and their positions on a map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from radmoe.types import Selection

DENSE = 200  # of a larger matrix only the largest eigenvalues are sought: all of 1,000 take a second
_BLOCK, _POWERS = 8, 12


def by_basin(selection: Selection, runs: NDArray[np.intp]) -> NDArray[np.intp]:
    """Order `runs` by basin: the pick's basin first, the others by size, and each basin begins at its mode."""
    roots = selection.roots[runs]
    sizes = np.bincount(roots)[roots]
    order: NDArray[np.intp] = np.lexsort((-selection.score[runs], roots, -sizes, roots != selection.index))
    return order


def plane(S: NDArray[np.float32]) -> NDArray[np.float64]:
    """Place the rollouts in two dimensions [n, 2] so that distances approximate 1 - S (classical scaling). The signs
    are fixed, so that equal input gives the same picture.
    """
    squared = (1.0 - S.astype(np.float64)) ** 2
    centred = squared - squared.mean(0) - squared.mean(1)[:, None] + squared.mean()
    values, vectors = _largest(-centred / 2) if len(S) > DENSE else np.linalg.eigh(-centred / 2)
    top = vectors[:, -2:][:, ::-1] * np.sqrt(np.clip(values[-2:][::-1], 0, None))
    if top.shape[1] < 2:
        top = np.pad(top, ((0, 0), (0, 2 - top.shape[1])))
    heaviest = np.abs(top).argmax(0)
    return np.asarray(top * np.where(top[heaviest, range(2)] < 0, -1.0, 1.0))


def _largest(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the largest eigenvalues of a symmetric matrix [n, n], ascending, and their vectors, by block Krylov
    iteration.
    """
    block = np.random.default_rng(0).standard_normal((len(matrix), _BLOCK))
    powers = []
    for _ in range(_POWERS):
        block, _ = np.linalg.qr(matrix @ block)
        powers.append(block)
    basis, _ = np.linalg.qr(np.concatenate(powers, axis=1))
    values, vectors = np.linalg.eigh(basis.T @ matrix @ basis)
    return values, basis @ vectors
