"""Neighbours, densities and purities of all problems of a panel at once, under any labels.

Densities are those of `radmoe.selection.kernels`. Purity asks whether rollouts that route alike give the same answer (Eq.
"knn-purity"): the share of the k nearest neighbours with the same label, corrected for chance, so that 0 is chance and 1 is
perfect. It reads answers, and no selector uses it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from radmoe.selection.kernels import tied
from radmoe_studies.evidence import Bools, Floats, Ints, Panel, padded

Chance = Literal["leave-one-out", "plug-in"]
Matrices = NDArray[np.float32]


def comparable(S: Matrices, inside: Bools) -> Matrices:
    """S [P, N, N] with -inf for every pair that is not compared: a rollout with itself, or one outside the mask."""
    pairs = inside[:, :, None] & inside[:, None, :] & ~np.eye(S.shape[1], dtype=bool)
    return np.where(pairs, S, np.float32(-np.inf))


def densities(S: Matrices, inside: Bools, k: int) -> Floats:
    """K-NN densities [P, N] of the rollouts in the mask; NaN outside, and where there are fewer than two."""
    near = comparable(S, inside)
    k = min(k, S.shape[1] - 1)
    if k < 1:
        return np.full(inside.shape, np.nan)
    best = -np.partition(-near, k - 1, axis=2)[:, :, :k].astype(np.float64)
    sums = np.where(np.isfinite(best), best, 0.0).sum(2)
    return np.where(inside & (inside.sum(1) >= 2)[:, None], sums, np.nan)


def densest(S: Matrices, inside: Bools, k: int) -> Ints:
    """RAD's pick of each problem [P]: the densest rollout, the lowest index of tied ones; -1 where there is none."""
    density = densities(S, inside, k)
    scored = np.isfinite(density)
    filled = np.where(scored, density, -np.inf)
    best = np.argmax(tied(filled.max(1, keepdims=True), filled, k), axis=1)
    return np.where(scored.any(1), best, -1)


def neighbours(S: Matrices, inside: Bools, k: int) -> Bools:
    """Whether rollout j is one of the k nearest of rollout i [P, N, N]; ties of similarities go to the lowest index."""
    return highest_in_row(comparable(S, inside), k)


def highest_in_row(near: Matrices, k: int) -> Bools:
    """Whether an entry is one of the k highest of its row [..., N, N]; ties go to the lowest index, -inf is no entry."""
    k = max(min(k, near.shape[-1] - 1), 1)
    last = near.max(-1) if k == 1 else -np.partition(-near, k - 1, axis=-1)[..., k - 1]  # the k-th highest
    closer = near > last[..., None]
    tied = (near == last[..., None]) & np.isfinite(near)
    places = k - closer.sum(-1, dtype=np.int16)
    chosen: Bools = closer | (tied & (np.cumsum(tied, axis=-1, dtype=np.int16) <= places[..., None]))
    return chosen


def purities(S: Matrices, inside: Bools, labels: Ints, k: int = 1, chance: Chance = "leave-one-out") -> Floats:
    """The purity of each problem [P] over the rollouts in the mask, by labels [P, N]; NaN where it is undefined."""
    return purities_of(neighbours(S, inside, k), inside, labels, chance)


def purities_of(near: Bools, inside: Bools, labels: Ints, chance: Chance = "leave-one-out") -> Floats:
    """Purities [P] of neighbours that are known already, as several labels share them.

    A purity is undefined where fewer than two rollouts are in the mask, or all of them have one label.
    """
    n = inside.sum(1).astype(np.float64)
    same = (labels[:, :, None] == labels[:, None, :]) & inside[:, :, None] & inside[:, None, :]
    pairs = same.sum((1, 2)).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (near & same).sum((1, 2)) / near.sum((1, 2))
        expected = (pairs - n) / (n * (n - 1)) if chance == "leave-one-out" else pairs / n**2
        purity = (share - expected) / (1 - expected)
    return np.where((n >= 2) & (pairs < n**2), purity, np.nan)


def majority_label(panel: Panel, inside: Bools) -> Ints:
    """1 where a rollout gives the most frequent answer of the rollouts in the mask (the first seen of tied ones)."""
    votes = ((panel.answer[:, :, None] == panel.answer[:, None, :]) & inside[:, None, :]).sum(2)
    leader = np.argmax(np.where(inside, votes, -1), axis=1)
    winner = panel.answer[np.arange(len(panel)), leader]
    label: Ints = (panel.answer == winner[:, None]).astype(np.int64)
    return label


def first_characters(panel: Panel) -> Ints:
    """The first character of each normalised answer [P, N], as a number; -1 where there is no answer."""
    return padded(
        panel,
        [
            [ord(text.lstrip()[:1] or "\0") if text is not None else -1 for text in marks.answers]
            for marks in panel.marks.values()
        ],
        -1,
    )
