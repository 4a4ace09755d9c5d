"""Selection while rollouts arrive: the pick so far, and whether more rollouts are worth their tokens.

The rule. A rollout that arrives and is located challenges the pick: it changes densities and may be picked itself. Stop
once the pick has survived `patience` challenges in a row, and at least `min_n` rollouts have finished. By Laplace's rule
of succession the chance that the next rollout replaces such a pick is about 1 / (patience + 2). Two more reasons end the
wait: all scored rollouts are the same, so that there is nothing to choose between, or the most rollouts have finished.
A pick that is stable is not right for that: several rollouts may share one error.

The rule reads who was picked and nothing else, so it has no scale that would differ from model to model, and it holds for
every way to pick. docs/adaptive.md has the rules that it was compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.selection.kernels import binary_jaccard, levels, weighted_jaccard
from radmoe.selection.readout import CONTROLS, SHARED, Reading, Readout, read
from radmoe.selection.rule import Rule, Setting
from radmoe.selection.selector import choose, confidence_of
from radmoe.types import Anchor, Kind, RolloutGroup, RouterShape, Selection, Trace
from radmoe.vocab import Vocab

Reason = Literal["going on", "settled", "all the same", "at the limit"]

_FEWEST = 3  # scored rollouts that can be found to be all the same: two always have the same density
_READ = cast(Trace, None)  # stands for a rollout that was read; `choose` looks at its similarities alone


@dataclass(frozen=True)
class Stopping:
    """When to stop: after `min_n` rollouts at the earliest, once the pick has survived `patience` challenges in a row."""

    min_n: int = 8
    patience: int = 8

    def __post_init__(self) -> None:
        for name in ("min_n", "patience"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name} must be a whole number of rollouts from 1 up, got {value!r}")


@dataclass(frozen=True, eq=False)
class Decision:
    """What is known after a rollout has arrived.

    `selection` is the pick among the rollouts so far, in the order of their indices. `survived` counts the challenges
    that the pick has survived in a row, and `finished` the rollouts that have arrived. `needed` says how many more
    rollouts must arrive before the answer can be to stop; it is 0 where that is the answer now.
    """

    stop: bool
    reason: Reason
    selection: Selection
    finished: int
    survived: int
    needed: int

    def __str__(self) -> str:
        what = "no pick" if self.selection.index is None else f"rollout {self.selection.rollout_index}"
        return f"{self.reason} after {self.finished} rollouts: {what}, which survived {self.survived} in a row"


class OnlineSelector:
    """Takes the rollouts of one problem as they finish. Each is compared once with those before it, and then forgotten.

    `most` is the number of rollouts at which it stops in any case. `rule` is that of `select`, and once all
    rollouts have been added, in whatever order, the pick is that of `select`. Rules that need the whole
    group at once are refused: random controls, occurrences that all rollouts share, and comparison by answer texts.

    Cost of a rollout: one window, n comparisons of route vectors, and O(n^2) for the pick among n.
    """

    def __init__(
        self,
        shape: RouterShape,
        vocab: Vocab,
        *,
        kind: Kind,
        most: int,
        stopping: Stopping | None = None,
        problem_id: str = "",
        rule: Rule | None = None,
    ) -> None:
        if most < 2:
            raise InputError(f"the most rollouts must be 2 or more, or there is nothing to choose from, got {most}")
        self.stopping, self.most, self.problem_id = stopping or Stopping(), most, problem_id
        self._rule, self._kind = rule or Rule(), kind
        first = self._rule.settle(kind, 2)
        if first.compare != "routing":
            raise InputError(
                f"an online selector compares routing, and preset {first.preset} compares {first.compare}: use preset best"
            )
        readout = Readout.parse(first.readout)
        if readout.family in CONTROLS[1:] or readout.occurrence == SHARED:
            raise InputError(f"readout {readout} depends on the whole group: use one that each rollout has by itself")
        self._shape, self._vocab = shape, Vocab.of(vocab)
        self._indices: list[int] = []  # of the rollouts, in the order of their arrival, as the three lists below
        self._anchors: list[Anchor | None] = []
        self._confidences: list[float] = []
        self._places: list[int] = []  # the row of Z and S, -1 where a rollout is not located
        self._Z: NDArray[np.float32] = np.zeros((0, 0), np.float32)
        self._S: NDArray[np.float32] = np.ones((0, 0), np.float32)
        self._located = self._survived = 0
        self._picked: int | None = None

    def __len__(self) -> int:
        return len(self._indices)

    def add(self, rollout: Trace, *, rollout_index: int | None = None) -> Decision:
        """Take a finished rollout, and say who is picked now and whether to go on.

        `rollout_index` is its number in the pool (by default the next one); ties go to the lowest. More rollouts than
        `most` are taken, too.
        """
        index = max(self._indices, default=-1) + 1 if rollout_index is None else int(rollout_index)
        if index < 0 or index in self._indices:
            raise InputError(f"rollout_index {index} of problem {self.problem_id!r} is negative or was added before")
        one = RolloutGroup(self.problem_id, [rollout], self._shape, self._vocab, self._kind, (index,))
        setting = self._rule.settle(self._kind, len(self) + 1)
        binary = setting.kernel == "binary"
        reading = read(one, setting.readout, self._kind, layers=setting.layers, budget=setting.budget, binary=binary)
        located = bool(reading.located[0])
        confidence = confidence_of(one, 0, setting) if located and setting.fusion is not None else 0.0
        self._indices.append(index)
        self._anchors.append(reading.anchors[0])
        self._confidences.append(confidence)
        self._places.append(self._located if located else -1)
        if located:
            self._compare(reading.Z[0], binary)
        selection = self._choose(setting)
        if located and self._picked is not None:
            self._survived = self._survived + 1 if selection.rollout_index == self._picked else 0
        self._picked = selection.rollout_index
        return self._decide(selection)

    def _compare(self, z: NDArray[np.float32], binary: bool) -> None:
        """Put a route vector behind the others, and its similarities to them into a new row and column of S."""
        n = self._located
        if n == len(self._S):  # double the room
            room = max(8, 2 * n)
            Z, S = np.zeros((room, len(z)), np.float32), np.ones((room, room), np.float32)
            if n:
                Z[:n], S[:n, :n] = self._Z, self._S
            self._Z, self._S = Z, S
        if n:
            pairs = np.stack([self._Z[:n], np.broadcast_to(z, (n, len(z)))], axis=1)
            similar = (binary_jaccard if binary else weighted_jaccard)(pairs)[:, 0, 1]
            self._S[n, :n] = self._S[:n, n] = similar
        self._Z[n] = z
        self._located = n + 1

    def _choose(self, setting: Setting) -> Selection:
        """The pick among the rollouts so far, in the order of their indices."""
        order = np.argsort(self._indices)
        places = np.array(self._places)[order]
        rows = places[places >= 0]
        reading = Reading(self._Z[rows], places >= 0, tuple(self._anchors[i] for i in order))
        indices = tuple(self._indices[i] for i in order)
        group = RolloutGroup(self.problem_id, [_READ] * len(order), self._shape, self._vocab, self._kind, indices)
        confidence = np.array([self._confidences[i] for i in order if self._places[i] >= 0])
        S = np.ascontiguousarray(self._S[np.ix_(rows, rows)])
        return choose(group, S, reading, setting, confidence=confidence)

    def _decide(self, selection: Selection) -> Decision:
        finished, rule = len(self), self.stopping
        reason: Reason = "going on"
        if finished >= self.most:
            reason = "at the limit"
        elif finished >= rule.min_n and selection.index is not None:
            scores = selection.score[~np.isnan(selection.score)]
            if self._survived >= rule.patience:
                reason = "settled"
            elif len(scores) >= _FEWEST and levels(scores, 1).max() == 0:
                reason = "all the same"
        stop = reason != "going on"
        return Decision(stop, reason, selection, finished, self._survived, 0 if stop else self.needed)

    @property
    def needed(self) -> int:
        """How many more rollouts must arrive before the rule can stop, apart from their being all the same later on."""
        finished = len(self)
        if finished < self.stopping.min_n:
            return min(self.stopping.min_n, self.most) - finished
        first = max(2 - self._located, 0)  # rollouts until there is a pick to challenge
        return min(self.most - finished, first + self.stopping.patience - self._survived)
