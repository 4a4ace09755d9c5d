"""Adaptive capture: sampling of a problem stops when more rollouts would hardly change its pick.

Rollouts are judged in the order of their indices, never in the order in which they finish: short ones finish first, and a
pick among the first to finish would be one among the short ones. A problem is given as many rollouts at a time as its
rule needs at least before it can stop (`Decision.needed`), so that none is sampled in vain and none is cancelled, and what
is decided depends on the pool alone: a capture that was interrupted goes on as if it had not been.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from radmoe.capture.plan import Plan
from radmoe.pool import Pool
from radmoe.problems import Question
from radmoe.selection.online import Decision, OnlineSelector
from radmoe.selection.rule import Rule
from radmoe.types import Rollout, Trace


@dataclass
class Watch:
    """One problem under way: its selector, and the rollouts that arrived before one of a lower index."""

    selector: OnlineSelector
    decision: Decision | None = None
    early: dict[int, Trace] = field(default_factory=dict)

    @property
    def stopped(self) -> bool:
        return self.decision is not None and self.decision.stop

    def take(self, index: int, rollout: Trace) -> None:
        """Add a rollout. It is judged once all rollouts of lower index have been."""
        self.early[index] = rollout
        while not self.stopped and len(self.selector) in self.early:
            place = len(self.selector)
            self.decision = self.selector.add(self.early.pop(place), rollout_index=place)

    def wanted(self) -> list[int]:
        """The indices of the rollouts to sample next; empty once the problem has stopped."""
        if self.stopped:
            return []
        first = len(self.selector)
        needed = self.selector.needed if self.decision is None else self.decision.needed
        return [index for index in range(first, first + needed) if index not in self.early]


class Watches:
    """The problems of an adaptive plan, each with what the pool already holds of it."""

    def __init__(self, plan: Plan, pool: Pool) -> None:
        self._plan, self._shape, self._profile = plan, pool.shape, pool.profile
        self.each = {question.problem_id: self._watch(question, pool) for question in plan.problems}

    def _watch(self, question: Question, pool: Pool) -> Watch:
        assert question.kind is not None
        watch = Watch(
            OnlineSelector(
                self._shape,
                self._plan.engine.vocab,
                kind=question.kind,
                most=self._plan.n,
                stopping=self._plan.adaptive,
                rule=Rule(preset=self._plan.preset),
                problem_id=question.problem_id,
            )
        )
        if question.problem_id in pool.kinds:
            indices = pool.rollout_indices(question.problem_id)
            for index, rollout in zip(indices, pool.group(question.problem_id).rollouts, strict=True):
                watch.take(index, rollout)
        return watch

    def take(self, problem_id: str, index: int, rollout: Rollout) -> None:
        """Add a sampled rollout of a problem, with the rows that the pool keeps."""
        reduced = rollout.expert_ids.shape[1] != self._plan.engine.shape.layers
        ids, weights = self._profile.routing(rollout.expert_ids, rollout.weights, reduced=reduced)
        self.each[problem_id].take(index, replace(rollout, expert_ids=ids, weights=weights))

    def waves(self) -> Iterator[dict[str, list[int]]]:
        """What to sample next, problem by problem, until every problem has stopped."""
        while wave := {name: wanted for name, watch in self.each.items() if (wanted := watch.wanted())}:
            yield wave

    @property
    def left(self) -> int:
        """The largest number of rollouts that may still be sampled."""
        return sum(self._plan.n - len(watch.selector) for watch in self.each.values() if not watch.stopped)

    @property
    def stopped(self) -> int:
        return sum(watch.stopped for watch in self.each.values())

    def reasons(self) -> dict[str, int]:
        """The number of problems that stopped, by reason."""
        return dict(Counter(watch.decision.reason for watch in self.each.values() if watch.decision is not None))
