"""Nearest neighbours under a similarity, the density they give (Eq. 5), which densities are tied, and basins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import KernelError
from radmoe.selection.kernels.jit import jit

TIE = 2.5e-7  # float32 similarities are exact to 6e-8, so densities closer than this per neighbour count as equal


def knn_density(S: ArrayLike, k: int) -> NDArray[np.float64]:
    """q of Eq. 5 [N]: the sum of S_ij over the k rows j != i most similar to i; it is 0 where N is 1.

    `Selection.density` is the mean over these rows, q / k, which can be compared across k.

    k is cut to N - 1. Addition runs from the most similar down, so equal neighbour values give
    equal bits. Cost: N^2 comparisons, and up to k moves for every row that enters a list of neighbours.
    """
    return _neighbours(S, k)[1]


def knn(S: ArrayLike, k: int) -> NDArray[np.int64]:
    """The min(k, N - 1) rows most similar to each row, without the row itself; ties go to the lowest index."""
    return _neighbours(S, k)[0]


@jit
def tied(high: Any, low: Any, k: Any) -> Any:
    """Whether a density over k neighbours is equal to a higher one but for rounding: the one rule of ties everywhere.

    Every density is compared with the highest of its level, and never with the next one. So a row of densities, each of
    which is close to the next, does not become one tie whose ends lie further apart than rounding can move them.
    Numbers or arrays, which broadcast; the answer has their shape.
    """
    return high - low <= TIE * k


@jit
def levels(score: Any, k: int) -> Any:
    """Scores [N] as levels [N] from 0 up, in which scores that float32 similarities cannot tell apart are equal.

    The highest score and all that are `tied` with it are the highest level; the highest of the others begins the next.
    """
    below = np.zeros(len(score), np.int64)
    high, count = np.inf, -1
    for i in np.argsort(-score):
        if not tied(high, score[i], k):
            high, count = score[i], count + 1
        below[i] = count
    return count - below


def ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Ascending ranks from 1. Equal values share the mean of their ranks."""
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1) / 2.0


def density_scores(S: NDArray[np.float32], scored: NDArray[np.bool_], k: int) -> NDArray[np.float64]:
    """K-NN densities (Eq. 5) of the rollouts that are `scored` [N], as levels: the densest has the highest.

    S [n, n] compares the scored ones in their order. Densities that float32 similarities cannot tell apart share a
    level. A rollout that is not scored has NaN, and with fewer than two nobody is.
    """
    scores = np.full(len(scored), np.nan)
    if len(S) >= 2:
        scores[scored] = levels(knn_density(S, k), k)
    return scores


def rank_sum(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of the ranks that several scores [m, N] give, over the rollouts that all of them score (others have NaN).

    Ranks rise with the score and ties share their mean rank. Equal sums go to the higher score of the last row.
    """
    scored = ~np.isnan(scores).any(axis=0)
    among = [ranks(row[scored]) for row in scores]
    totals = np.full(scores.shape[1], np.nan)
    # Ranks are multiples of a half: less than a quarter more decides between equal sums, and between no others.
    totals[scored] = np.sum(among, axis=0) + among[-1] / (4 * scores.shape[1] + 4)
    return totals


def climb(S: NDArray[np.float32], k: int, rank: NDArray[np.int64]) -> NDArray[np.int64]:
    """The mode that each rollout climbs to [N], found by mode seeking; `rank` [N] is 0 for the best.

    A rollout steps to the most similar mutual neighbour that ranks higher, until there is none. A chain of plain
    nearest neighbours would end in some pair that are each other's nearest, rarely at the pick; climbing in rank ends
    at a local maximum, and the pick, the global one, is the root of its own basin. Neighbours must be mutual and number
    at most a quarter of all rollouts, or a basin of fewer than k would reach into the next (docs/log.md has the
    comparison).
    """
    if len(rank) < 2:
        return np.arange(len(rank))
    near = knn(S, max(1, min(k, len(rank) // 4)))
    reach = S[np.arange(len(rank)), near[:, -1]]  # similarity to the last neighbour: ties with it count as near
    steps = (np.maximum(reach, reach[:, None]) <= S) & (rank < rank[:, None])
    toward = np.where(steps, S, -1.0).argmax(axis=1)
    root = np.arange(len(rank))
    for i in np.argsort(rank):  # best first: the root of the rollout that i steps to is already known
        if steps[i, toward[i]]:
            root[i] = root[toward[i]]
    return root


def _neighbours(S: ArrayLike, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    array = np.asarray(S)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise KernelError(f"a similarity matrix is square, got shape {array.shape}")
    if k < 1:
        raise KernelError(f"k is {k}: a density needs at least one neighbour")
    array = np.ascontiguousarray(array, np.float64)
    if np.isnan(array).any():
        raise KernelError(
            f"a similarity is a number: NaN at [row, column] = {np.argwhere(np.isnan(array))[0].tolist()}"
        )
    nearest = np.empty((len(array), max(0, min(k, len(array) - 1))), np.int64)
    density = np.zeros(len(array))
    _nearest(array, nearest, density)
    return nearest, density


@jit
def _nearest(S: Any, nearest: Any, density: Any) -> None:
    """Insert each row's columns into a list kept in order: most similar first, the lower index first on ties."""
    rows, k = nearest.shape
    for i in range(rows):
        listed = 0  # how many neighbours the list of row i has so far
        for j in range(rows):
            if j == i or (listed == k and (k == 0 or S[i, j] <= S[i, nearest[i, k - 1]])):
                continue
            place = min(listed, k - 1)
            while place > 0 and S[i, nearest[i, place - 1]] < S[i, j]:
                nearest[i, place] = nearest[i, place - 1]
                place -= 1
            nearest[i, place] = j
            listed = min(listed + 1, k)
        for place in range(k):
            density[i] += S[i, nearest[i, place]]
