"""Sampling that stops, problem by problem, when more rollouts would hardly change the pick.

Rollouts are judged in the order of their indices, never in the order in which they finish: short ones finish first, and a
pick among the first to finish would be one among the short ones. A problem is given as many rollouts at a time as its
rule needs at least before it can stop (`Decision.needed`), so that none is sampled in vain and none is cancelled, and what
is decided depends on the pool alone: a capture that was interrupted goes on as if it had not been.

In a race (`radmoe.racing`) rollouts that fall behind are given up; the pool keeps what there is of them, so that their
tokens are counted and none is sampled again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from radmoe.capture.plan import Plan
from radmoe.online import Decision, OnlineSelector, Reason, Stopping
from radmoe.pool import Pool
from radmoe.problems import Question
from radmoe.racing import Bar, Racing
from radmoe.types import Rollout, Trace


@dataclass
class Watch:
    """One problem under way: its selector, and the rollouts that arrived before one of a lower index."""

    selector: OnlineSelector
    decision: Decision | None = None
    early: dict[int, Trace | None] = field(default_factory=dict)  # None: it was given up
    judged: int = 0  # how many rollouts have been looked at, given up ones included

    @property
    def stopped(self) -> bool:
        return self.reason != "going on"

    @property
    def reason(self) -> Reason:
        return "going on" if self.decision is None else self.decision.reason

    @property
    def bar(self) -> Bar | None:
        """What the next rollouts must not fall below."""
        return None

    def take(self, index: int, rollout: Trace | None) -> None:
        """Take a rollout, or None for one that was given up; it is judged once all of lower index have been."""
        self.early[index] = rollout
        while not self.stopped and self.judged in self.early:
            self.judge(self.early.pop(self.judged))
            self.judged += 1

    def judge(self, rollout: Trace | None) -> None:
        """Look at the next rollout."""
        assert rollout is not None
        self.decision = self.selector.add(rollout, rollout_index=self.judged)

    def wanted(self) -> list[int]:
        """The rollouts that must be sampled next; none where it has stopped."""
        if self.stopped:
            return []
        last = min(self.judged + self.needed, self.selector.most)
        return [index for index in range(self.judged, last) if index not in self.early]

    @property
    def needed(self) -> int:
        """How many rollouts must be judged at least before the rule can stop."""
        return self.selector.needed if self.decision is None else self.decision.needed


@dataclass
class Race(Watch):
    """A problem whose rollouts race: the first ones set a bar, and what falls below it is given up."""

    rule: Racing = field(default_factory=Racing)
    warm_up: list[NDArray[np.float32]] = field(default_factory=list)  # the log-probabilities of the first ones

    @property
    def reason(self) -> Reason:
        if self.judged < min(self.rule.warm_up, self.selector.most):
            return "going on"
        over = self.judged >= self.selector.most
        return "at the limit" if over and super().reason == "going on" else super().reason

    @property
    def bar(self) -> Bar | None:
        return self.rule.bar(self.warm_up) if len(self.warm_up) == self.rule.warm_up else None

    def judge(self, rollout: Trace | None) -> None:
        if rollout is not None:
            super().judge(rollout)
        if len(self.warm_up) < self.rule.warm_up:
            assert rollout is not None
            assert rollout.sampled_logprobs is not None
            self.warm_up.append(rollout.sampled_logprobs)
            if len(self.warm_up) == self.rule.warm_up:
                self.selector.unsettle()
                self.decision = None

    @property
    def needed(self) -> int:
        if self.judged < self.rule.warm_up:
            return self.rule.warm_up - self.judged
        return self.rule.patience - (0 if self.decision is None else self.decision.survived)


class Watches:
    """The problems of an adaptive plan, each with what the pool already holds of it."""

    def __init__(self, plan: Plan, pool: Pool) -> None:
        self._plan, self._shape, self._profile = plan, pool.shape, pool.profile
        self.each = {question.problem_id: self._watch(question, pool) for question in plan.problems}

    def _watch(self, question: Question, pool: Pool) -> Watch:
        assert question.kind is not None
        rule = self._plan.adaptive
        selector = OnlineSelector(
            self._shape,
            self._plan.engine.vocab,
            kind=question.kind,
            most=self._plan.n,
            stopping=Stopping(rule.warm_up, rule.patience) if isinstance(rule, Racing) else rule,
            preset=self._plan.preset,
            problem_id=question.problem_id,
        )
        watch = Race(selector, rule=rule) if isinstance(rule, Racing) else Watch(selector)
        if question.problem_id in pool.kinds:
            for index in pool.given_up(question.problem_id):
                watch.take(index, None)
            indices = pool.rollout_indices(question.problem_id)
            for index, rollout in zip(indices, pool.group(question.problem_id).rollouts, strict=True):
                watch.take(index, rollout)
        return watch

    def take(self, problem_id: str, index: int, rollout: Rollout | None) -> None:
        """Take a rollout that was sampled, as the pool keeps it; None for one that was given up."""
        if rollout is None:
            self.each[problem_id].take(index, None)
            return
        reduced = rollout.expert_ids.shape[1] != self._plan.engine.shape.layers
        ids, weights = self._profile.routing(rollout.expert_ids, rollout.weights, reduced=reduced)
        self.each[problem_id].take(index, replace(rollout, expert_ids=ids, weights=weights))

    def waves(self) -> Iterator[dict[str, list[int]]]:
        """What to sample next, problem by problem, until every problem has stopped."""
        while wave := {name: wanted for name, watch in self.each.items() if (wanted := watch.wanted())}:
            yield wave

    @property
    def left(self) -> int:
        """How many more rollouts there may be, at most."""
        return sum(self._plan.n - watch.judged for watch in self.each.values() if not watch.stopped)

    @property
    def stopped(self) -> int:
        return sum(watch.stopped for watch in self.each.values())

    def reasons(self) -> dict[str, int]:
        """How many problems stopped for which reason."""
        return dict(Counter(watch.reason for watch in self.each.values()))
