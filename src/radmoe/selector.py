"""Routing Agreement Decoding: which of N rollouts to return. Reads routing, never an answer.

RAD takes the rollout in the densest K-NN neighbourhood of route space (Eq. 5). RAD+DC first asks each
rollout's own confidence. The agentic form compares sets of fired experts over every action boundary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.confidence import rollout_confidence
from radmoe.errors import InputError
from radmoe.kernels import binary_jaccard, knn, knn_density, weighted_jaccard
from radmoe.readout import Anchors, Layers, Reading, Readout, read
from radmoe.types import RolloutGroup, Selection

KERNELS = ("weighted", "binary")
FUSIONS = ("conf50", "ranksum")
TIE = 2.5e-7  # a similarity is a float32 of 6e-8; densities closer than this per neighbour are equal

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def select(
    group: RolloutGroup,
    *,
    readout: str | Readout = "delimiter@16",
    task: str = "math",
    k: int = 10,
    kernel: str = "weighted",
    confidence: str | None = None,
    layers: Layers = None,
    budget: int | None = None,
    seed: int = 0,
) -> Selection:
    """Pick one rollout, or abstain when fewer than two are located.

    confidence=None is RAD. "conf50" keeps the more confident half (cBW) and takes the densest in it; its
    ties go to the more confident. "ranksum" adds the ranks of density and confidence. Plain ties go to
    the lowest index; densities that float32 similarities cannot tell apart are ties. Cost: one window per rollout from disk, then O(n^2 s) for n located rollouts of
    support s.
    """
    _check(k, confidence)
    S, reading = similarity(group, readout=readout, task=task, kernel=kernel, layers=layers, budget=budget, seed=seed)
    members = np.flatnonzero(reading.located)
    trust = None if confidence is None or len(members) < 2 else _trust(group, members)
    return choose(S, reading, k=k, confidence=confidence, trust=trust)


def choose(
    S: NDArray[np.float32],
    reading: Reading,
    *,
    k: int = 10,
    confidence: str | None = None,
    trust: Floats | None = None,
) -> Selection:
    """`select` from a consensus matrix at hand, so that several rules can share one.

    `trust` holds the confidence of each located rollout [n]; a rule that asks for confidence needs it.
    """
    _check(k, confidence)
    members = np.flatnonzero(reading.located)
    if len(members) < 2:
        return _abstain(reading)
    if confidence is None:
        trust = np.zeros(len(members))
    elif trust is None or len(trust) != len(members):
        raise InputError(f"confidence {confidence!r} needs the trust of each of the {len(members)} located rollouts")
    scored = np.arange(len(members))
    if confidence == "conf50":
        scored = np.sort(np.lexsort((members, -trust))[: (len(members) + 1) // 2])
    among = S[np.ix_(scored, scored)]
    density = knn_density(among, k)
    score = density
    if confidence == "ranksum":
        score = _ranks(_levels(density, k)) + _ranks(trust)
    return _selection(reading, members[scored], among, k, density, score, trust[scored])


def select_agent(group: RolloutGroup, *, k: int = 4, layers: Layers = None) -> Selection:
    """Agentic RAD (App. "Agentic best-of-N"): binary Jaccard of the experts fired at any action boundary."""
    return select(group, readout="boundary@union", task="agent", k=k, kernel="binary", layers=layers)


def medoid(group: RolloutGroup, **options: Any) -> Selection:
    """The rollout most similar to all others: a density whose neighbourhood is everyone. A control."""
    return select(group, k=max(1, len(group)), **options)


def select_many(groups: Iterable[RolloutGroup], *, threads: int = 1, **options: Any) -> Iterator[Selection]:
    """`select` over many problems, in order; no result depends on the number of threads."""
    if threads < 1:
        raise InputError(f"threads must be at least 1, got {threads}")
    choose = partial(select, **options)
    if threads == 1:
        yield from map(choose, groups)
        return
    source = iter(groups)
    with ThreadPoolExecutor(threads) as workers:
        while batch := list(islice(source, 4 * threads)):  # bounds what is open at once
            yield from workers.map(choose, batch)


def similarity(
    group: RolloutGroup,
    *,
    readout: str | Readout = "delimiter@16",
    task: str = "math",
    kernel: str = "weighted",
    layers: Layers = None,
    budget: int | None = None,
    seed: int = 0,
    anchors: Anchors | None = None,
) -> tuple[NDArray[np.float32], Reading]:
    """The consensus matrix S [n, n] of the located rollouts, and what was read. `anchors`: as `read` takes them."""
    if kernel not in KERNELS:
        raise InputError(f"unknown kernel {kernel!r}: use one of {', '.join(KERNELS)}")
    binary = kernel == "binary"
    reading = read(group, readout, task, layers=layers, budget=budget, seed=seed, binary=binary, anchors=anchors)
    return (binary_jaccard if binary else weighted_jaccard)(reading.Z), reading


def _check(k: int, confidence: str | None) -> None:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k must be a whole number of neighbours from 1 up, got {k!r}")
    if confidence is not None and confidence not in FUSIONS:
        raise InputError(f"unknown confidence {confidence!r}: use one of {', '.join(FUSIONS)}, or none for plain RAD")


def _selection(
    reading: Reading, runs: Ints, S: NDArray[np.float32], k: int, density: Floats, score: Floats, trust: Floats
) -> Selection:
    """Put the pick and its reasons together; arrays are over the scored rollouts `runs`."""
    best_first = np.lexsort((runs, -trust, -_levels(score, k)))
    rank = np.empty(len(runs), np.int64)
    rank[best_first] = np.arange(len(runs))
    root = _climb(S, k, rank)
    pick = int(best_first[0])
    others = score[root != pick]
    near = knn(S, k)
    total = len(reading.located)
    return Selection(
        index=int(runs[pick]),
        density=_spread(density, runs, total, np.nan),
        located=reading.located,
        anchors=reading.anchors,
        k=near.shape[1],
        basin=tuple(int(i) for i in runs[root == pick]),
        margin=float(score[pick] - others.max()) if len(others) else float("nan"),
        neighbours=tuple(int(i) for i in runs[near[pick]]),
        score=_spread(score, runs, total, np.nan),
        roots=_spread(runs[root], runs, total, -1),
    )


def _climb(S: NDArray[np.float32], k: int, rank: Ints) -> Ints:
    """The mode each rollout climbs to: step to the most similar mutual neighbour that ranks higher, until none does.

    Mode seeking. A chain of plain nearest neighbours ends in some pair that are each other's nearest,
    rarely at the pick; climbing in rank ends at a local maximum, and the pick, the global one, is the root
    of its own basin. Neighbours must be mutual, and be at most a quarter of all, or a basin of fewer than
    k would reach into the next (docs/log.md has the comparison).
    """
    if len(rank) < 2:
        return np.arange(len(rank))
    near = knn(S, max(1, min(k, len(rank) // 4)))
    reach = S[np.arange(len(rank)), near[:, -1]]  # similarity to the last neighbour: ties with it count as near
    steps = (np.maximum(reach, reach[:, None]) <= S) & (rank < rank[:, None])
    toward = np.where(steps, S, -1.0).argmax(axis=1)
    root = np.arange(len(rank))
    for i in np.argsort(rank):  # best first: whoever i steps to already knows its root
        if steps[i, toward[i]]:
            root[i] = root[toward[i]]
    return root


def _levels(score: Floats, k: int) -> Ints:
    """Scores as ranks in which those that float32 similarities cannot tell apart are equal."""
    order = np.argsort(score)
    levels = np.empty(len(score), np.int64)
    levels[order] = np.concatenate(([0], np.cumsum(np.diff(score[order]) > TIE * k)))
    return levels


def _trust(group: RolloutGroup, members: Ints) -> Floats:
    trust = np.empty(len(members))
    for at, i in enumerate(members):
        logprobs = group.rollouts[i].topk_logprobs
        if logprobs is None:
            raise InputError(
                f"rollout {i} of problem {group.problem_id!r} has no top-k logprobs, which RAD+DC needs: "
                "capture them, or select without confidence"
            )
        trust[at] = rollout_confidence(logprobs)
    return trust


def _ranks(values: NDArray[Any]) -> Floats:
    """Ascending ranks from 1, ties sharing their mean rank."""
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1) / 2.0


def _spread(values: NDArray[Any], runs: Ints, total: int, blank: float) -> NDArray[Any]:
    out = np.full(total, blank, values.dtype)
    out[runs] = values
    return out


def _abstain(reading: Reading) -> Selection:
    total = len(reading.located)
    blank = np.full(total, np.nan)
    return Selection(
        None, blank, reading.located, reading.anchors, 0, (), float("nan"), (), blank, np.full(total, -1, np.int64)
    )
