"""Rollouts in many orders of arrival: the pick after each arrival, when stopping rules stop, and the tokens spent by then.

An order of arrival is a random order in which the rollouts of a problem are begun, `lanes` of them side by side, a token
each at a time; whenever one finishes, the next begins. What was spent when a rollout arrives counts the rollouts under way,
which would then be cancelled. All orders share one matrix of similarities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.selection.kernels import levels
from radmoe.selection.kernels.jit import jit
from radmoe.selection.online import Stopping
from radmoe_studies.evidence import Bools, Floats, Ints
from radmoe_studies.subcohorts import SubcohortProblem, densest

Orders = NDArray[np.int64]


class Arrivals(NamedTuple):
    """Which rollout arrives as the m-th of each order, and the tokens spent by then [O, N each]."""

    rollouts: Orders
    spent: Ints


def orders(n: int, count: int, key: int, seed: int) -> Orders:
    """Random orders of n rollouts [count, n], which depend on the problem's key and the seed alone."""
    rng = np.random.default_rng([seed, key & 0xFFFFFFFF, key >> 32])
    return np.stack([rng.permutation(n) for _ in range(count)])


def arrive(begun: Orders, lengths: Ints, lanes: int) -> Arrivals:
    """The arrivals of rollouts that are begun in these orders [O, N]; lengths [N] are in tokens."""
    if lanes == 1:
        return Arrivals(begun, np.cumsum(lengths[begun], axis=1))
    rollouts, spent = np.empty_like(begun), np.empty(begun.shape, np.int64)
    _run_lanes(begun, np.asarray(lengths, np.int64), lanes, rollouts, spent)
    return Arrivals(rollouts, spent)


@jit
def _run_lanes(begun: Any, lengths: Any, lanes: int, rollouts: Any, spent: Any) -> None:
    count, n = begun.shape
    lanes = min(lanes, n)
    end, running = np.empty(lanes, np.int64), np.empty(lanes, np.int64)
    for o in range(count):
        for lane in range(lanes):
            running[lane] = begun[o, lane]
            end[lane] = lengths[running[lane]]
        following, finished = lanes, 0
        for m in range(n):
            first = -1
            for lane in range(lanes):
                if running[lane] >= 0 and (first < 0 or end[lane] < end[first]):
                    first = lane
            now = end[first]
            rollouts[o, m] = running[first]
            finished += lengths[running[first]]
            if following < n:
                running[first] = begun[o, following]
                end[first] = now + lengths[running[first]]
                following += 1
            else:
                running[first] = -1
            under_way = 0
            for lane in range(lanes):
                if running[lane] >= 0:
                    under_way += lengths[running[lane]] - (end[lane] - now)
            spent[o, m] = finished + under_way


def picks(
    problem: SubcohortProblem,
    place: Ints,
    begun: Orders,
    arrivals: Orders,
    k: int | Ints,
    confidence: Floats | None = None,
) -> Orders:
    """The pick among the first m arrivals of each order [O, N]; -1 where fewer than two are located.

    `place` [N] is a rollout's row in the problem, -1 where it is not located; picks are such rows. They are those that
    `OnlineSelector` makes of rollouts that are numbered in the order in which they were `begun` [O, N]: ties go to the
    first of these. `k` is one number, or one for each number of arrivals [N]. With the `confidence` of each row, the ranks of
    density and confidence are added (fusion "ranksum"); without, the densest is picked.
    """
    out = np.full(arrivals.shape, -1, np.int64)
    if len(problem.correct) >= 2:
        rows = place[begun]
        first = rows[rows >= 0].reshape(len(begun), -1)
        neighbours = np.ascontiguousarray(np.broadcast_to(k, arrivals.shape[1:]), np.int64)
        known = np.zeros(0) if confidence is None else np.asarray(confidence, np.float64)
        _pick(problem.ranked, problem.near, first, place[arrivals], neighbours, known, out)
    return out


@jit
def _pick(ranked: Any, near: Any, first: Any, rows: Any, k: Any, confidence: Any, out: Any) -> None:
    n = len(ranked)
    inside, density = np.zeros(n, np.bool_), np.zeros(n)
    for o in range(rows.shape[0]):
        inside[:] = False
        size = 0
        for m in range(rows.shape[1]):
            row = rows[o, m]
            if row >= 0:
                inside[row] = True
                size += 1
            if size >= 2:
                out[o, m] = densest(ranked, near, first[o], inside, size, k[m], density)
                if len(confidence):
                    out[o, m] = by_ranks(density, confidence, first[o], inside, size, k[m])


@jit
def by_ranks(density: Any, confidence: Any, order: Any, inside: Any, size: int, k: int) -> int:
    """The highest sum of the ranks of density and confidence; ties go to the higher confidence, then to the first in `order`."""
    members = np.empty(size, np.int64)
    count = 0
    for i in order:
        if inside[i]:
            members[count] = i
            count += 1
    dense = levels(density[members], k)
    best, most = -1, -1.0
    for i in range(size):
        total = 0.0
        for j in range(size):
            total += 2.0 * (dense[j] < dense[i]) + (dense[j] == dense[i])
            total += 2.0 * (confidence[members[j]] < confidence[members[i]]) + (
                confidence[members[j]] == confidence[members[i]]
            )
        if total > most or (total == most and confidence[members[i]] > confidence[members[best]]):
            best, most = i, total
    return int(members[best])


def settled(made: Orders, located: Bools, rule: Stopping) -> Ints:
    """After how many arrivals the rule of `radmoe.selection.online` stops in each order [O]: all N where it does not.

    `made` are the picks, `located` says whether the m-th arrival is [O, N each]. The other
    reason to stop, that all rollouts are the same, is not checked.
    """
    out = np.empty(len(made), np.int64)
    _settle(made, located, rule.min_n, rule.patience, out)
    return out


@jit
def _settle(made: Any, located: Any, min_n: int, patience: int, out: Any) -> None:
    count, n = made.shape
    for o in range(count):
        survived, out[o] = 0, n
        for m in range(n):
            if m > 0 and located[o, m] and made[o, m - 1] >= 0:
                survived = survived + 1 if made[o, m] == made[o, m - 1] else 0
            if m + 1 >= min_n and survived >= patience and made[o, m] >= 0:
                out[o] = m + 1
                break


class Votes(NamedTuple):
    """After each arrival: the votes of the leading answer and of the next one, and whether the leading one is right."""

    first: Ints
    second: Ints
    hit: Floats


def votes(answer: Ints, correct: Bools, arrivals: Orders) -> Votes:
    """Votes over answers [N], -1 for none, in each order [O, N each]. Of equal answers the one seen first leads."""
    shape = arrivals.shape
    out = Votes(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape))
    _vote(np.asarray(answer, np.int64), correct, arrivals, out.first, out.second, out.hit)
    return out


@jit
def _vote(answer: Any, correct: Any, arrivals: Any, first: Any, second: Any, hit: Any) -> None:
    counts = np.zeros(max(answer.max() + 1, 1), np.int64)
    right = np.zeros(len(counts), np.bool_)
    for o in range(arrivals.shape[0]):
        counts[:] = 0
        leader = -1
        for m in range(arrivals.shape[1]):
            own = answer[arrivals[o, m]]
            if own >= 0:
                if counts[own] == 0:
                    right[own] = correct[arrivals[o, m]]
                counts[own] += 1
                if leader < 0 or counts[own] > counts[leader]:
                    leader = own
            if leader >= 0:
                runner_up = 0
                for other in range(len(counts)):
                    if other != leader:
                        runner_up = max(runner_up, counts[other])
                first[o, m], second[o, m], hit[o, m] = counts[leader], runner_up, right[leader]


def consistent(cast: Votes, threshold: float) -> Ints:
    """After how many arrivals adaptive consistency stops in each order [O]: all N where it does not.

    It stops once the leading answer is the more frequent of the first two with this probability, under a uniform prior:
    1 - I_1/2(v1 + 1, v2 + 1) (Aggarwal et al. 2023, their Beta criterion).
    """
    from scipy.special import betainc

    sure = (cast.first > 0) & (1 - betainc(cast.first + 1.0, cast.second + 1.0, 0.5) >= threshold)
    stop: Ints = np.where(sure.any(axis=1), sure.argmax(axis=1) + 1, sure.shape[1])
    return stop
