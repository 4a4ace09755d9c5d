"""Sub-cohorts: m rollouts drawn from the located ones of a problem, and how often each selector is right in them.

A sub-cohort is drawn without replacement, from all rollouts or with exactly c right ones. Its random numbers follow from
the seed, the problem, m, c and the number of the sub-cohort alone, so that nothing depends on threads or on order.
Selectors see the sub-cohort as `radmoe.selection.selector` would see a group of m rollouts (App. "Composition control").
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.selection.kernels import tied
from radmoe.selection.kernels.jit import jit
from radmoe_studies.evidence import Bools, Floats, Ints, Panel, Request

METHODS = ("chance", "RAD", "DC", "RAD+DC", "majority", "oracle")
CHANCE, RAD, DC, FUSED, MAJORITY, ORACLE = range(len(METHODS))
ANY = -1  # right ones are not counted: they come as they are drawn


class SubcohortCell(NamedTuple):
    """Sub-cohorts of m rollouts, with exactly `right` right ones unless that is ANY."""

    m: int
    right: int = ANY

    def fits(self, right: int, wrong: int) -> bool:
        """Whether a problem with these numbers of right and wrong rollouts has such sub-cohorts."""
        if self.right == ANY:
            return self.m <= right + wrong
        return self.right <= right and self.m - self.right <= wrong


def hit_rates(
    panel: Panel,
    request: Request,
    cells: Sequence[SubcohortCell],
    *,
    problems: Bools | None = None,
    samples: int = 200,
    seed: int = 0,
    threads: int = 1,
) -> Floats:
    """How often each method is right in the sub-cohorts of each problem [P, cells, METHODS].

    NaN stands where a problem has no such sub-cohorts or is not among `problems` [P], for DC and RAD+DC where there are
    no confidences, and for the majority on code, where answers cannot be counted. Chance and the oracle are exact. A
    vote without voters is wrong. Cost: about samples * m * min(N, k N / m) steps per cell.
    """
    for cell in cells:
        if cell.m < 2 or cell.right > cell.m:
            raise InputError(f"a sub-cohort has 2 or more rollouts and at most all of them right, got {cell}")
    if samples < 1 or threads < 1:
        raise InputError(f"samples and threads must be at least 1, got {samples} and {threads}")
    read = panel.read(request)
    located = read.located & panel.here
    confidence = panel.scalars.get("cbw")
    votes = panel.domain in ("math", "science")
    out = np.full((len(panel), len(cells), len(METHODS)), np.nan)

    def one(row: int) -> None:
        inside = located[row]
        S = read.values[row][np.ix_(inside, inside)]
        problem = SubcohortProblem.of(
            S,
            panel.correct[row, inside],
            panel.answer[row, inside],
            None if confidence is None else confidence[row, inside],
        )
        key = problem_key(panel, row)
        for column, cell in enumerate(cells):
            if cell.fits(problem.right, len(problem.correct) - problem.right):
                out[row, column] = problem.rates(cell, panel.setting.k, samples, key, seed)
        if confidence is None:
            out[row, :, [DC, FUSED]] = np.nan
        if not votes:
            out[row, :, MAJORITY] = np.nan

    rows = [int(row) for row in (range(len(panel)) if problems is None else np.flatnonzero(problems))]
    if threads == 1:
        for row in rows:
            one(row)
    else:
        with ThreadPoolExecutor(threads) as workers:
            list(workers.map(one, rows))
    return out


class SubcohortProblem(NamedTuple):
    """The located rollouts of a problem, sorted once for all of its sub-cohorts.

    `near` [n, n] lists the others from the most similar down (its last column is the row itself), `ranked` [n, n] has
    their similarities, and `confident` [n] lists all from the most confident down. Ties go to the lowest index.
    """

    ranked: Floats
    near: Ints
    confident: Ints
    correct: Bools
    answer: Ints

    @classmethod
    def of(cls, S: NDArray[Any], correct: Bools, answer: Ints, confidence: Floats | None) -> SubcohortProblem:
        others = np.asarray(S, np.float64).copy()
        np.fill_diagonal(others, -np.inf)
        near = np.argsort(-others, axis=1, kind="stable")
        confident = np.arange(len(correct)) if confidence is None else np.argsort(-confidence, kind="stable")
        return cls(np.take_along_axis(others, near, axis=1), near, confident, correct, answer)

    @property
    def right(self) -> int:
        return int(self.correct.sum())

    def rates(self, cell: SubcohortCell, k: int, samples: int, key: int, seed: int) -> Floats:
        """The share of sub-cohorts in which each method is right [METHODS]. All n rollouts are one sub-cohort."""
        n = len(self.correct)
        if cell.m == n:
            samples = 1
        out = np.zeros(len(METHODS))
        state = _state(key, seed, cell)
        _count(
            self.ranked,
            self.near,
            self.confident,
            self.correct,
            self.answer,
            cell.m,
            cell.right,
            k,
            samples,
            state,
            out,
        )
        out /= samples
        out[CHANCE] = self.right / n if cell.right == ANY else cell.right / cell.m
        hopeless = comb(n - self.right, cell.m) / comb(n, cell.m)  # the share of draws without a right one
        out[ORACLE] = 1.0 - hopeless if cell.right == ANY else float(cell.right > 0)
        return out

    def members(self, cell: SubcohortCell, sample: int, key: int, seed: int) -> Ints:
        """The rollouts of one sub-cohort [m], in their order."""
        inside = np.zeros(len(self.correct), np.bool_)
        places = np.empty(len(inside), np.int64)
        _draw(self.correct, cell.m, cell.right, _state(key, seed, cell), sample, places, inside)
        return np.flatnonzero(inside)


def problem_key(panel: Panel, row: int) -> int:
    """A number for a problem of a configuration, made from its names alone."""
    name = "\0".join((panel.configuration, panel.dataset, panel.problem_ids[row]))
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _state(key: int, seed: int, cell: SubcohortCell) -> np.uint64:
    """The initial state of the random numbers for a problem's sub-cohorts of one sort."""
    text = f"{key} {seed} {cell.m} {cell.right}"
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


@jit
def _mixed(x: Any) -> Any:
    """The finaliser of SplitMix64 (Steele et al. 2014): every bit of the result depends on every bit of x."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@jit
def _shuffle(places: Any, first: int, end: int, count: int, state: Any, inside: Any) -> Any:
    """Put `count` of places[first:end] into the sub-cohort, each set of that size equally likely; returns the state."""
    for i in range(first, first + count):
        state = state + np.uint64(0x9E3779B97F4A7C15)
        high = _mixed(state) >> np.uint64(32)
        j = i + np.int64((high * np.uint64(end - i)) >> np.uint64(32))
        places[i], places[j] = places[j], places[i]
        inside[places[i]] = True
    return state


@jit
def _draw(correct: Any, m: int, right: int, state: Any, sample: int, places: Any, inside: Any) -> None:
    """Mark the members of one sub-cohort in `inside` [n]; `places` [n] is scratch space."""
    n = len(correct)
    inside[:] = False
    state = _mixed(state + np.uint64(sample) * np.uint64(0xD1B54A32D192ED03))
    if right < 0:
        for i in range(n):
            places[i] = i
        _shuffle(places, 0, n, m, state, inside)
        return
    first = 0  # right ones first, then wrong ones
    for i in range(n):
        if correct[i]:
            places[first] = i
            first += 1
    end = first
    for i in range(n):
        if not correct[i]:
            places[end] = i
            end += 1
    state = _shuffle(places, 0, first, right, state, inside)
    _shuffle(places, first, n, m - right, state, inside)


@jit
def densest(ranked: Any, near: Any, order: Any, inside: Any, size: int, k: int, density: Any) -> int:
    """The densest of the `size` rollouts that are `inside`; of equally dense ones, the first in `order`.

    Densities are those of `knn_density`, added from the most similar down, and ties those of `kernels.tied`.
    """
    n = len(order)
    wanted = min(k, size - 1)
    top = -1.0
    for i in range(n):
        if not inside[i]:
            continue
        total, taken, at = 0.0, 0, 0
        while taken < wanted:  # without a branch on who is inside, which no processor can foresee
            member = inside[near[i, at]]
            total += ranked[i, at] * member
            taken += member
            at += 1
        density[i] = total
        top = max(top, total)
    for i in order:
        if inside[i] and tied(top, density[i], k):
            return int(i)
    return -1


@jit
def _vote(answer: Any, correct: Any, inside: Any, votes: Any, right: Any) -> float:
    """The share of the most frequent answers that are right; 0 where nobody votes."""
    votes[:] = 0
    right[:] = False
    most = 0
    for i in range(len(answer)):
        if inside[i] and answer[i] >= 0:
            votes[answer[i]] += 1
            right[answer[i]] |= correct[i]
            most = max(most, votes[answer[i]])
    if most == 0:
        return 0.0
    tied, hits = 0, 0
    for a in range(len(votes)):
        if votes[a] == most:
            tied += 1
            hits += right[a]
    return hits / tied


@jit
def _count(
    ranked: Any,
    near: Any,
    confident: Any,
    correct: Any,
    answer: Any,
    m: int,
    right: int,
    k: int,
    samples: int,
    state: Any,
    out: Any,
) -> None:
    """Add to `out` [METHODS] in how many of the sub-cohorts each selector's pick is right."""
    n = len(correct)
    inside, half = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    places, natural = np.empty(n, np.int64), np.arange(n)
    density = np.zeros(n)
    answers = max(answer.max() + 1, 1)
    votes, rightness = np.zeros(answers, np.int64), np.zeros(answers, np.bool_)
    for sample in range(samples):
        _draw(correct, m, right, state, sample, places, inside)
        out[1] += correct[densest(ranked, near, natural, inside, m, k, density)]
        half[:] = False
        size = 0  # of the more confident half
        for i in confident:
            if inside[i]:
                if size == 0:
                    out[2] += correct[i]
                half[i] = True
                size += 1
                if size == (m + 1) // 2:
                    break
        out[3] += correct[densest(ranked, near, confident, half, size, k, density)]
        out[4] += _vote(answer, correct, inside, votes, rightness)
