"""The plan of a capture: problems, engine, sampling settings, and what is kept of each rollout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from radmoe.engines.base import Engine, Sampling
from radmoe.engines.kept_rows import check_profile, profile_for
from radmoe.errors import InputError
from radmoe.pool import Profile
from radmoe.problems import Question
from radmoe.selection.online import Stopping
from radmoe.selection.rule import Rule
from radmoe.types import PresetName


@dataclass(frozen=True)
class Plan:
    """A capture: n rollouts of every problem, sampled by an engine.

    `task` (the data set) and `style` (thinking or instruct; low, medium or high) go into the pool's run record, and so
    do `sampling`, `raw` (prompts without the chat template) and `profile`; a capture that goes on must agree with them.
    `profile` says which rows and layers are kept (by default all that the engine captures), and `weights` whether
    weights are kept beside expert ids.
    `n` may be raised later. `places` are the problems' places in their data set (by default 0, 1, ...): pools list
    problems in this order, also when parts of a plan were captured apart and merged. With `adaptive`, a problem has at
    most n rollouts, and fewer where its pick by `preset` is settled before; rule and preset go into the run record.
    """

    problems: Sequence[Question]
    engine: Engine
    sampling: Sampling
    profile: Profile | None = None
    n: int = 64
    task: str | None = None
    style: str | None = None
    raw: bool = False
    weights: bool = True
    batch_size: int = 256
    places: Sequence[int] | None = None
    adaptive: Stopping | None = None
    preset: PresetName = "paper"

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InputError(f"a plan needs at least 1 rollout per problem, got n = {self.n}")
        if self.batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {self.batch_size}")
        if not self.problems:
            raise InputError("a plan needs at least one problem, got none")
        if self.raw and self.style is not None:
            raise InputError(
                f"style {self.style!r} is told to the chat template, which raw leaves out: give one of the two"
            )
        twice = [name for name, count in Counter(p.problem_id for p in self.problems).items() if count > 1]
        if twice:
            raise InputError(f"the plan has problem {twice[0]!r} more than once: ids must be distinct")
        places = tuple(range(len(self.problems))) if self.places is None else tuple(self.places)
        if len(places) != len(self.problems):
            raise InputError(f"{len(self.problems)} problems but {len(places)} places: give one for each")
        object.__setattr__(self, "problems", tuple(self.problems))
        object.__setattr__(self, "places", places)
        profile = self.profile or profile_for(self.engine, weights=self.weights)
        check_profile(profile, self.engine.layers, self.engine.vocab, [question.kind for question in self.problems])
        object.__setattr__(self, "profile", profile)
        if self.adaptive is not None:
            self._check_adaptive()

    def _check_adaptive(self) -> None:
        """Raise InputError for a plan whose rollouts an adaptive capture could not select from."""
        if self.n < 2:
            raise InputError(f"an adaptive capture chooses among rollouts: n must be 2 or more, got {self.n}")
        for question in self.problems:
            if question.kind is None:
                raise InputError(
                    f"an adaptive capture must know what an answer to {question.problem_id!r} looks like: give its kind"
                )
            setting = Rule(preset=self.preset).settle(question.kind, self.n)
            if setting.fusion is not None and not self.sampling.topk_logprobs:
                raise InputError(f"preset {self.preset} reads log-probabilities, and none would be kept: keep them")
            readout = setting.readout
            kept = None if self.profile is None else self.profile.readouts
            if kept is not None and readout not in kept:
                raise InputError(
                    f"an adaptive capture reads {readout} of {question.kind}, and only {', '.join(kept)} "
                    f"would be kept: keep {readout} too"
                )

    def part(self, number: int, parts: int) -> Plan:
        """Every `parts`-th problem from the `number`-th on, counted from 1: one worker's share of the plan."""
        if not 1 <= number <= parts:
            raise InputError(f"part {number} of {parts} does not exist: use 1 to {parts}")
        assert self.places is not None
        problems, places = self.problems[number - 1 :: parts], self.places[number - 1 :: parts]
        if not problems:
            raise InputError(f"part {number} of {parts} has no problem: there are only {len(self.problems)}")
        return replace(self, problems=problems, places=places)
