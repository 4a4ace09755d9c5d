"""The graded picks that a calibration is fitted on: of each problem among all its rollouts and among random subsets of them.

Each has the similarities that curves may take (`EVIDENCE`), and whether the pick is right.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import ReadoutError, RolloutError
from radmoe.evaluation.pools import GradedPool, dataset_of
from radmoe.evaluation.problem import GradedProblem
from radmoe.pool import Pool
from radmoe.selection.calibration import agreement
from radmoe.selection.rule import Rule
from radmoe.selection.selector import select, similarity
from radmoe.types import Kind, RolloutGroup

# The pick's density, or the readout at which all rollouts are compared (`Fit.evidence`).
EVIDENCE = ("", "pre-delim@32")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Matrix = NDArray[np.float32]


class Name(NamedTuple):
    """A problem, by its data set and its name there."""

    task: str
    problem_id: str


class Graded(NamedTuple):
    """Picks of one kind [n]: among how many rollouts, in which draw of that size, a similarity, and whether the pick is right."""

    sizes: Ints
    draws: Ints
    similarity: Floats
    right: Bools
    problems: tuple[Name, ...]

    def where(self, chosen: Bools) -> Graded:
        """The picks that are chosen by a mask [n]."""
        problems = tuple(name for name, here in zip(self.problems, chosen, strict=True) if here)
        return Graded(self.sizes[chosen], self.draws[chosen], self.similarity[chosen], self.right[chosen], problems)


class Pick(NamedTuple):
    size: int
    draw: int
    similarities: tuple[float, ...]  # by the candidates in EVIDENCE; NaN where the pool keeps no such rows
    right: bool
    problem: Name


@dataclass(eq=False)
class Picks:
    """The picks of graded pools by kind, the smallest share of located rollouts by kind, and notes."""

    kinds: dict[Kind, list[Pick]] = field(default_factory=dict)
    located: dict[Kind, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def graded(self, kind: Kind, evidence: str) -> Graded:
        sizes, draws, similarities, right, problems = zip(*self.kinds[kind], strict=True)
        own = np.array(similarities)[:, EVIDENCE.index(evidence)]
        return Graded(np.array(sizes), np.array(draws), own, np.array(right), problems)


def picked(
    pools: Sequence[GradedPool],
    rule: Rule,
    sizes: Sequence[int],
    draws: int,
    seed: int,
    progress: Callable[[int], None],
) -> Picks:
    """Select in every problem of graded pools, from all its rollouts and from random subsets."""
    picks, done, abstained = Picks(), 0, 0
    for graded in pools:
        assert graded.kind is not None
        for note in (f"{graded.path}: {note}" for note in (*graded.notes, graded.inferred) if note):
            if note not in picks.notes:  # kinds of one pool share what was inferred of them
                picks.notes.append(note)
        for problem in graded:
            name = Name(task_of(graded), problem.problem_id)
            own = [pick for size in sizes for pick in _draws(problem, graded.kind, name, size, draws, seed, rule)]
            done += len(problem)
            progress(done)
            if not own:
                abstained += 1
                continue
            picks.kinds.setdefault(graded.kind, []).extend(pick for pick, _ in own)
            picks.located[graded.kind] = min(picks.located.get(graded.kind, 1.0), *(located for _, located in own))
    if abstained:
        picks.notes.append(f"{abstained} of {sum(map(len, pools))} problems have no pick and are left out")
    return picks


def _draws(
    problem: GradedProblem, kind: Kind, name: Name, size: int, draws: int, seed: int, rule: Rule
) -> list[tuple[Pick, float]]:
    """Picks among random subsets of a problem's rollouts, with the share of them that is located."""
    group, made = problem.group, []
    if size > len(group):
        return []
    agreeing = problem.once("agreeing", lambda: _agreeing(problem, kind, rule))
    rng = np.random.default_rng([seed, size, zlib.crc32("\0".join(name).encode())])
    for draw in range(draws if size < len(group) else 1):
        chosen = np.sort(rng.permutation(len(group))[:size])
        subset = RolloutGroup(name.problem_id, [group.rollouts[i] for i in chosen], group.shape, group.vocab, kind)
        selection = select(subset, rule=rule)
        if selection.index is not None:
            right = bool(problem.correct[chosen[selection.index]])
            located = float(selection.located.mean())
            own = float(selection.density[selection.index]), *(agree(chosen) for agree in agreeing)
            made.append((Pick(size, draw, own, right, name), located))
    return made


def _agreeing(problem: GradedProblem, kind: Kind, rule: Rule) -> list[Callable[[Ints], float]]:
    """For each readout in EVIDENCE a function that says how much the chosen rollouts of a problem agree there."""
    made: list[Callable[[Ints], float]] = []
    for readout in EVIDENCE[1:]:
        setting = replace(rule.settle(kind, len(problem)), readout=readout, kernel="weighted")
        try:
            S, reading = similarity(problem.group, setting)
        except (RolloutError, ReadoutError):
            made.append(lambda chosen: math.nan)
            continue
        place = np.cumsum(reading.located) - 1

        def agree(chosen: Ints, S: Matrix = S, located: Bools = reading.located, place: Ints = place) -> float:
            own = place[chosen[located[chosen]]]
            return agreement(S[np.ix_(own, own)])

        made.append(agree)
    return made


def pool_of(graded: GradedPool) -> Pool:
    assert graded.pool is not None
    return graded.pool


def task_of(graded: GradedPool) -> str:
    """The task of a pool, whatever kinds it has."""
    return dataset_of(pool_of(graded))
