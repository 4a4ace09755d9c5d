"""One graded problem: its rollouts, their answers, and what methods compute from them, each of it computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError, MethodUnavailable, RolloutError
from radmoe.selection.anchors import find_all, spec_for
from radmoe.selection.confidence import SCALARS, every_scalar, likelihood, token_confidence
from radmoe.selection.readout import Reading, same_anchors
from radmoe.selection.rule import Setting
from radmoe.selection.selector import choose, compared, select_settled, similarity
from radmoe.types import Kernel, RolloutGroup, Selection

T = TypeVar("T")

Floats = NDArray[np.float64]
Scalars = dict[str, Floats]
Similarity = tuple[NDArray[np.float32], Reading]


class Marks(NamedTuple):
    """The labels of a problem's rollouts, in their order: normalised answers, and whether each is right.

    `behaviours` is None where nobody ran the programs on the visible examples.
    """

    answers: tuple[str | None, ...]
    correct: tuple[bool, ...]
    behaviours: tuple[str | None, ...] | None = None

    def first(self, n: int) -> Marks:
        """The labels of the first n rollouts."""
        return Marks(self.answers[:n], self.correct[:n], None if self.behaviours is None else self.behaviours[:n])


@dataclass(frozen=True, eq=False)
class GradedProblem:
    """The N rollouts of a problem with their labels, read by `setting`.

    Everything below is computed when it is first asked for and then kept, so that methods share it. Hold on to a
    problem while its matrices are needed, and let it go afterwards: a similarity of 64 rollouts on a 48x128 router keeps
    about 1.6 MB.
    """

    group: RolloutGroup
    setting: Setting
    marks: Marks
    _similarities: dict[tuple[str, Kernel], Similarity] = field(default_factory=dict, repr=False)
    _results: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.group)

    @property
    def problem_id(self) -> str:
        return self.group.problem_id

    @property
    def answers(self) -> tuple[str | None, ...]:
        """The normalised answer of each rollout; None where none could be read."""
        return self.marks.answers

    @property
    def behaviours(self) -> tuple[str | None, ...]:
        """What each program does (`grading.behaviours`); MethodUnavailable where that is not known."""
        if self.marks.behaviours is None:
            code = self.setting.kind == "code"
            reason = "programs were not run on their prompt's examples: radmoe grade POOL --behaviours"
            raise MethodUnavailable(reason if code else f"answers of kind {self.setting.kind} are no programs")
        return self.marks.behaviours

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each rollout is right [N]."""
        return np.array(self.marks.correct, bool)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens each rollout has [N]."""
        return np.array([len(rollout) for rollout in self.group.rollouts], np.int64)

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """How many steps each rollout took [N]: turns of an agent (action boundaries where the pool has no steps), paragraph
        breaks of everyone else."""
        vocab, rollouts = self.group.vocab, self.group.rollouts
        if self.setting.kind != "agent":
            return np.array([vocab.decode_bytes(rollout.token_ids).count(b"\n\n") for rollout in rollouts], np.int64)
        spec = spec_for("boundary", "agent", vocab)
        return np.array([len(one.starts) or len(find_all(spec, one.token_ids, vocab)) for one in rollouts], np.int64)

    def similarity(
        self, readout: str | None = None, *, kernel: Kernel | None = None
    ) -> tuple[NDArray[np.float32], Reading]:
        """The consensus matrix S [n, n] of the located rollouts, and what was read.

        The readout and the kernel are the setting's unless given. A readout that differs from an earlier one in width
        alone does not search for its anchors again.
        """
        key = readout or self.setting.readout, kernel or self.setting.kernel
        if key not in self._similarities:
            known = (reading for (other, _), (_, reading) in self._similarities.items() if same_anchors(other, key[0]))
            earlier = next(known, None)
            anchors = None if earlier is None else earlier.anchors
            setting = replace(self.setting, readout=key[0], kernel=key[1], layers=None)
            self._similarities[key] = similarity(self.group, setting, anchors=anchors)
        return self._similarities[key]

    def selected(self, setting: Setting) -> Selection:
        """What `select` gives under a setting of this problem's kind.

        MethodUnavailable where a rollout lacks logprobs that it needs, or where the pool kept no rows for its readout.
        """
        confidence = None
        if setting.fusion is not None:
            scalar = {"cbw": "bottom-window", "tail": "tail"}.get(setting.confidence)
            values = self.likelihoods if scalar is None else self.confidence[scalar]
            confidence = values.__getitem__
        return self.once(
            ("selected", setting),
            lambda: select_settled(self.group, setting, similar=self._similar, confidence=confidence),
        )

    def compared(self, setting: Setting) -> tuple[NDArray[np.float32], Reading, NDArray[np.float32] | None]:
        """What a setting compares (`selector.compared`); routing is compared once for all settings with the same readout."""
        return compared(self.group, setting, self._similar)

    def _similar(self, group: RolloutGroup, setting: Setting) -> Similarity:
        try:
            return self.similarity(setting.readout, kernel=setting.kernel)
        except RolloutError as error:
            if all(rollout.positions is None for rollout in group.rollouts):
                raise
            raise MethodUnavailable(f"the pool keeps no rows for {setting.readout}") from error

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return what `compute` gives. It is called once for each `key`, so that methods can share the result."""
        if key not in self._results:
            self._results[key] = compute()
        result: T = self._results[key]
        return result

    @cached_property
    def selection(self) -> Selection:
        """RAD's selection under the setting, with its basin."""
        return choose(self.group, *self.similarity(), self.setting)

    @cached_property
    def confidence(self) -> Scalars:
        """Every DeepConf scalar of every rollout [N]; MethodUnavailable where a rollout lacks top-k logprobs."""
        scalars: dict[str, list[float]] = {name: [] for name in SCALARS}
        for i, rollout in enumerate(self.group.rollouts):
            if rollout.topk_logprobs is None:
                raise MethodUnavailable("no top-k logprobs")
            try:
                values = every_scalar(token_confidence(rollout.topk_logprobs), self.setting.confidence_window)
            except InputError as error:
                raise MethodUnavailable(f"rollout {i} of {self.problem_id}: {error}") from None
            for name, value in values.items():
                scalars[name].append(value)
        return {name: np.array(values, np.float64) for name, values in scalars.items()}

    @cached_property
    def likelihoods(self) -> Floats:
        """The mean log-probability of every rollout's tokens [N]; MethodUnavailable where they were not kept."""
        values = []
        for i, rollout in enumerate(self.group.rollouts):
            if rollout.sampled_logprobs is None:
                raise MethodUnavailable("no logprobs of the sampled tokens")
            values.append(likelihood(rollout.sampled_logprobs))
            if np.isnan(values[-1]):
                raise MethodUnavailable(
                    f"rollout {i} of {self.problem_id}: logprobs contain NaN: recapture this rollout"
                )
        return np.array(values, np.float64)
