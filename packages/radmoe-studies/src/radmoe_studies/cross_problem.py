"""Rollouts of several problems, and of several pools, compared with each other at one readout.

`Evidence` compares the rollouts of a problem; whether problems can be told apart needs all of them in one matrix. Only a few
problems are read, so the result is not cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from radmoe.selection.kernels import weighted_jaccard
from radmoe.selection.readout import read
from radmoe_studies.basins import highest_in_row
from radmoe_studies.evidence import Bools, Floats, Ints, Panel

PERPLEXITY = 30.0
_ENDS = ("<|im_end|>", "<|return|>")  # the tokens that end a completion, Qwen's and gpt-oss's


@dataclass(frozen=True, eq=False)
class Crowd:
    """The located rollouts of several problems of several panels: M rows.

    S [M, M] compares all of them; `panel`, `problem` and `lengths` [M] say which panel and which problem each is of, by
    its place among those asked for, and how many tokens it has.
    """

    S: NDArray[np.float32]
    panel: Ints
    problem: Ints
    lengths: Ints

    def __len__(self) -> int:
        return len(self.S)


def end_token(panel: Panel) -> str | None:
    """The readout at the token that ends a completion; None where the vocabulary has none that is known, or
    there is no pool."""
    if panel.pool is None:
        return None
    vocab = panel.pool.vocab
    return next((f"boundary:{end}@marker" for end in _ENDS if end in vocab.added), None)


def compare(panels: Sequence[Panel], problems: Sequence[str], readout: str, limit: int) -> Crowd:
    """Read the first `limit` rollouts of each problem in each panel, and compare all that are located."""
    rows: list[NDArray[np.float32]] = []
    marks: list[Ints] = []
    for p, panel in enumerate(panels):
        for q, problem_id in enumerate(problems):
            problem = panel.problem(problem_id)
            reading = read(problem.group, readout, problem.setting.kind)
            places = np.flatnonzero(reading.located)
            keep = places < limit
            rows.append(reading.Z[keep])
            own = problem.lengths[places[keep]]
            marks.append(np.column_stack([np.full_like(own, p), np.full_like(own, q), own]))
    panel_number, problem_number, lengths = np.concatenate(marks).T
    return Crowd(weighted_jaccard(np.concatenate(rows)), panel_number, problem_number, lengths)


def leakage(crowd: Crowd, labels: Ints, k: int, allowed: Bools | None = None) -> tuple[Floats, Floats]:
    """The share of each rollout's k nearest neighbours with another label [M], and that share among all allowed neighbours.

    `allowed` [M, M] says which rollouts may be neighbours. A rollout whose allowed neighbours all have its own label, or all
    have another, has NaN in both.
    """
    pairs = ~np.eye(len(crowd), dtype=bool) if allowed is None else allowed & ~np.eye(len(crowd), dtype=bool)
    other = labels[:, None] != labels[None, :]
    near = highest_in_row(np.where(pairs, crowd.S, np.float32(-np.inf)), k)
    total, strangers = pairs.sum(1), (pairs & other).sum(1)
    told = (strangers > 0) & (strangers < total)
    leaked = (near & other).sum(1) / np.maximum(near.sum(1), 1)
    return np.where(told, leaked, np.nan), np.where(told, strangers / np.maximum(total, 1), np.nan)


def of_like_length(crowd: Crowd, tolerance: float) -> Bools:
    """Pairs of rollouts whose lengths differ by at most this share of the shorter one [M, M]."""
    one, other = crowd.lengths[:, None], crowd.lengths[None, :]
    alike: Bools = np.abs(one - other) <= tolerance * np.minimum(one, other)
    return alike


def embed(S: NDArray[np.float32], seed: int) -> Floats:
    """A map of the rollouts [M, 2] by t-SNE of 1 - S."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    distance = np.clip(1.0 - (S + S.T) / 2, 0.0, None).astype(np.float32)
    np.fill_diagonal(distance, 0.0)
    perplexity = min(PERPLEXITY, (len(S) - 1) / 3)
    method = TSNE(metric="precomputed", init="random", perplexity=perplexity, random_state=seed)
    with threadpool_limits(1):  # its threads wait for each other actively, which costs minutes on a machine in use
        return np.asarray(method.fit_transform(distance), np.float64)
