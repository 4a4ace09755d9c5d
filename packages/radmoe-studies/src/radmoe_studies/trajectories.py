"""The trajectories of one problem, scored by every selector that study 28 compares.

A score is a number per trajectory, of which the highest is picked, ties going to the lowest index; NaN is not scored.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import MethodUnavailable
from radmoe.evaluation.methods.overlap import text_overlap
from radmoe.evaluation.problem import Floats, GradedProblem
from radmoe.selection.anchors import find_all, spec_for
from radmoe.selection.kernels import binary_jaccard, density_scores, knn_density, levels, ranks
from radmoe.selection.rule import Rule
from radmoe.selection.selector import similarity
from radmoe.selection.steps import count_steps
from radmoe.types import RolloutGroup

NEIGHBOURS = (1, 2, 3, 4, 5, 6, 7, 8)
SIZES = (4, 8, 16)
SAMPLES = 64  # sub-cohorts of each size
TRAJECTORY = ("so", "now", "wait", ".\n\n")  # the anchors that "every anchor" adds to the boundaries
BOUNDARIES_ALONE = "the pool keeps the rows of boundaries alone"

Tokens = list[NDArray[np.int64]]


class MeasuredIssue(NamedTuple):
    """What was measured on one problem of N trajectories.

    `scores` and `facts` are by their names, [N] each; `missing` says why a score is not there. `rates` is the share of
    sub-cohorts of each size in which RAD's pick is right.
    """

    scores: dict[str, Floats]
    facts: dict[str, Floats]
    missing: dict[str, str]
    rates: dict[int, float]


def measure(problem: GradedProblem) -> MeasuredIssue:
    """Score the trajectories of a problem in every way."""
    group, k = problem.group, problem.setting.k
    rng = np.random.default_rng([0, zlib.crc32(problem.problem_id.encode())])
    S, reading = similarity(group, Rule(k=k).settle("agent"))
    located = reading.located
    scores = {"rad": density_scores(S, located, k)}
    scores |= {f"k={number}": density_scores(S, located, number) for number in NEIGHBOURS}
    scores["medoid"] = density_scores(S, located, max(len(S) - 1, 1))
    for name, readout in (("last", "boundary@marker"), ("first", "boundary#1@marker")):
        own, read = similarity(group, Rule(readout=readout, k=k).settle("agent"))
        scores[name] = density_scores(own, read.located, k)
    missing: dict[str, str] = {}
    boundaries = _boundaries(group)
    scores["matched"] = _sets(group, _as_many(boundaries, rng), k)
    if all(rollout.has_weights for rollout in group.rollouts):
        own, read = similarity(group, Rule(k=k, kernel="weighted").settle("agent"))
        scores["weighted"] = density_scores(own, read.located, k)
    else:
        missing["weighted"] = "the pool has no weights"
    if any(rollout.positions is not None for rollout in group.rollouts):
        missing |= dict.fromkeys(("random", "all", "anchors"), BOUNDARIES_ALONE)
    else:
        lengths = [len(rollout) for rollout in group.rollouts]
        chosen = [
            np.sort(rng.choice(length, min(length, len(own)), replace=False))
            for length, own in zip(lengths, boundaries, strict=True)
        ]
        scores["random"] = _sets(group, chosen, k)
        scores["all"] = _sets(group, [np.arange(length) for length in lengths], k)
        scores["anchors"] = _sets(group, _every_anchor(group, boundaries), k)
    scores["transcript"] = density_scores(_bigrams(group), np.ones(len(group), bool), k)
    scores["patch"] = text_overlap(problem)
    left = np.array([answer is not None for answer in problem.answers])  # a patch, which is what an answer is here
    kept = left[located]
    scores["rad, patch"] = density_scores(np.ascontiguousarray(S[np.ix_(kept, kept)]), located & left, k)
    for name in ("likelihood", "cbw"):
        try:
            scores[name] = problem.likelihoods if name == "likelihood" else problem.confidence["bottom-window"]
        except MethodUnavailable as error:
            missing[name] = str(error)
    if "likelihood" in scores:
        scores["likelihood, patch"] = np.where(left, scores["likelihood"], np.nan)
    else:
        missing["likelihood, patch"] = missing["likelihood"]
    counts = np.array([count_steps(rollout, group.vocab) for rollout in group.rollouts], float)
    fired = np.full(len(group), np.nan)
    fired[located] = np.count_nonzero(reading.Z, axis=1)
    facts = {"fired": fired, "tokens": problem.lengths.astype(float)}
    facts |= dict(zip(("steps", "boundaries", "without"), counts.T, strict=True))
    scores |= {"shortest": -facts["tokens"], "longest": facts["tokens"]}
    scores |= {"fewest-steps": -facts["steps"], "most-steps": facts["steps"]}
    for name in ("fewest-steps", "most-steps"):
        scores[f"{name}, patch"] = np.where(left, scores[name], np.nan)
    scores["random, patch"] = np.where(left, 0.0, np.nan)
    for other in ("likelihood", "cbw", "patch", "transcript"):
        name = f"rad+{other}"
        if other in scores:
            scores[name] = rank_sum(scores["rad"], scores[other])
        else:
            missing[name] = missing[other]
    rates = {size: _subcohorts(S, problem.correct[located], k, size, rng) for size in SIZES}
    return MeasuredIssue(scores, facts, missing, rates)


def hit(scores: Floats, correct: NDArray[np.bool_]) -> float:
    """1 where the pick is right, and 0 where it is wrong or there is none."""
    scored = np.isfinite(scores)
    return float(scored.any() and correct[int(np.argmax(np.where(scored, scores, -np.inf)))])


def share(scores: Floats, correct: NDArray[np.bool_]) -> float:
    """How often one of the scored trajectories is right, if it is drawn at random; 0 where none is scored."""
    scored = np.isfinite(scores)
    return float(correct[scored].mean()) if scored.any() else 0.0


def rank_sum(one: Floats, other: Floats) -> Floats:
    """The sum of two scores' ranks, among what both score."""
    both = np.isfinite(one) & np.isfinite(other)
    out = np.full(len(one), np.nan)
    if both.any():
        out[both] = ranks(one[both]) + ranks(other[both])
    return out


def _boundaries(group: RolloutGroup) -> Tokens:
    """The tokens of every boundary of each trajectory."""
    spec = spec_for("boundary", "agent", group.vocab)
    return [
        np.array(
            [at for a in find_all(spec, rollout.token_ids, group.vocab) for at in range(a.start, a.start + a.length)],
            np.int64,
        )
        for rollout in group.rollouts
    ]


def _as_many(boundaries: Tokens, rng: np.random.Generator) -> Tokens:
    """As many boundaries of each trajectory, drawn at random, as the one with fewest has."""
    fewest = min((len(own) for own in boundaries if len(own)), default=0)
    return [np.sort(rng.choice(own, fewest, replace=False)) if len(own) else own for own in boundaries]


def _every_anchor(group: RolloutGroup, boundaries: Tokens) -> Tokens:
    """The boundaries, and the trajectory anchors of the paper."""
    specs = [spec_for("trajectory", None, group.vocab, name=name) for name in TRAJECTORY]
    return [
        np.union1d(own, [a.start for spec in specs for a in find_all(spec, rollout.token_ids, group.vocab)]).astype(int)
        for rollout, own in zip(group.rollouts, boundaries, strict=True)
    ]


def _sets(group: RolloutGroup, tokens: Sequence[NDArray[np.int64]], k: int) -> Floats:
    """Densities of the sets of experts that fired at some tokens of each trajectory."""
    located = np.array([len(own) > 0 for own in tokens], bool)
    sets = np.zeros((int(located.sum()), group.shape.layers, group.shape.experts), np.float32)
    layers = np.arange(group.shape.layers)[None, :, None]
    members = (one for one in zip(group.rollouts, tokens, strict=True) if len(one[1]))
    for row, (rollout, own) in zip(sets, members, strict=True):
        ids, _ = rollout.rows_of(own, weights=False)
        row[np.broadcast_to(layers, ids.shape), ids] = 1.0
    return density_scores(binary_jaccard(sets.reshape(len(sets), -1)), located, k)


def _bigrams(group: RolloutGroup) -> NDArray[np.float32]:
    """Jaccard similarity between the sets of pairs of neighbouring tokens of whole transcripts [N, N]."""
    words = len(group.vocab)
    pairs = [
        np.unique(rollout.token_ids[:-1].astype(np.int64) * words + rollout.token_ids[1:]) for rollout in group.rollouts
    ]
    features, columns = np.unique(np.concatenate(pairs), return_inverse=True)
    sets = np.zeros((len(pairs), len(features)), bool)
    sets[np.repeat(np.arange(len(pairs)), [len(own) for own in pairs]), columns] = True
    return binary_jaccard(sets)


def _subcohorts(
    S: NDArray[np.float32], correct: NDArray[np.bool_], k: int, size: int, rng: np.random.Generator
) -> float:
    """How often RAD is right in random sub-cohorts of so many located trajectories; NaN where there are too few."""
    if len(S) < size:
        return float("nan")
    draws = 1 if len(S) == size else SAMPLES
    right = 0
    for _ in range(draws):
        chosen = np.sort(rng.choice(len(S), size, replace=False))
        own = np.ascontiguousarray(S[np.ix_(chosen, chosen)])
        right += bool(correct[chosen[int(np.argmax(levels(knn_density(own, k), k)))]])
    return right / draws
