"""One rollout as a file has it, and the checks that it has to pass before it is a rollout of a pool.

R(t) is the routing of the pass that predicts token t. All formats have one row per input position p, so that R(t) is row P-1+t,
P being the length of the prompt; in a trajectory of several turns, row p-1 for the generated token at position p. Each reader maps
its own rows to that. Two checks hold a file to it: the number of rows, and in a group the token at which two rollouts part. Up to
there they are one sequence, so R of that token, which the pass before it predicts, must be the same in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.checkpoint import RouterLayout
from radmoe.engines.http.answers import moe_layers, unrouted
from radmoe.errors import InputError
from radmoe.types import Rollout, Step
from radmoe_integrations.imports.pickled import plain
from radmoe_integrations.imports.tensors import FileTensor

Raw = NDArray[Any]  # [rows, layers, K], as a file has it


class Unusable(Exception):
    """Why one rollout is left out, while the others of its file are imported."""


@dataclass(frozen=True, eq=False)
class Found:
    """One rollout as a file has it.

    `problem` is the name of its group, or None where its prompt is all that tells. `tokens` are all that come behind the prompt,
    and `generated` says which of them the model sampled (None: all); the others it was given, as by a tool. `rows(start, stop)`
    are the raw rows that predict tokens [start, stop), and their weights if there are any.
    """

    where: str
    problem: str | None
    prompt: NDArray[np.int32]
    tokens: NDArray[np.int32]
    rows: Callable[[int, int], tuple[Raw, NDArray[np.float16] | None]]
    generated: NDArray[np.bool_] | None = None
    sampled: NDArray[np.float32] | None = None
    top: NDArray[np.float32] | None = None
    reward: float | None = None
    reason: str | None = None
    model: str | None = None

    @property
    def group(self) -> str:
        """The problem's id in the pool."""
        return self.problem if self.problem is not None else f"prompt-{self.prompt_digest[:12]}"

    @property
    def prompt_digest(self) -> str:
        return hashlib.sha256(self.prompt.tobytes()).hexdigest()

    def rollout(self, layout: RouterLayout, words: int, kernel: str, *, logprobs: bool = True) -> Rollout:
        """The rollout of a pool. Raises Unusable where rows are missing or hold no routing, and InputError for another model's."""
        every = np.arange(len(self.tokens)) if self.generated is None else np.flatnonzero(self.generated)
        if not len(every):
            raise Unusable("no token of theirs was generated")
        for part in (self.prompt, self.tokens):
            if part.size and not 0 <= int(part.min()) <= int(part.max()) < words:
                raise InputError(
                    f"{self.where} has token {int(part.max() if part.max() >= words else part.min())}, and the tokenizer of {layout.model} "
                    f"ends at {words - 1}: pass --model the checkpoint that sampled it"
                )
        raw, mass = self.rows(int(every[0]), int(every[-1]) + 1)
        kept = every - every[0]
        ids = self._checked(raw if len(kept) == len(raw) else raw[kept], layout, kernel)
        weights = None if mass is None else moe_layers(mass[kept], layout)
        sampled, top = (self.sampled, self.top) if logprobs else (None, None)
        sampled, top = (None if one is None else one[every] for one in (sampled, top))
        try:
            return Rollout(self.tokens[every], ids, weights, sampled, top, steps=self._steps(every))
        except InputError as error:
            raise InputError(f"{self.where}: {error}") from None

    def _checked(self, raw: Raw, layout: RouterLayout, kernel: str) -> NDArray[np.int16]:
        if layout.dense and raw.shape[1] == layout.layers:
            routed = raw[:, list(layout.dense)]
            if routed.size and not ((routed == 0).all() or (routed == -1).all()):
                raise InputError(
                    f"{self.where} routes in layer {layout.dense[0]}, which has no experts in {layout.model}: pass --model the "
                    "checkpoint that sampled it"
                )
        try:
            ids = moe_layers(raw, layout)
        except InputError as error:
            raise InputError(f"{self.where}: {error}") from None
        high = int(ids.max()) if ids.size else 0
        if high >= layout.shape.experts:
            raise InputError(
                f"{self.where} names expert {high}, and {layout.model} has {layout.shape.experts}: pass --model the checkpoint that "
                "sampled it; ids of replicas (--enable-eplb) cannot be told from experts"
            )
        unset = (ids < 0).any(-1) | unrouted(ids)
        if ids.shape[2] == 1:  # one expert alone cannot come twice: a layer of nothing but zeros is what tells
            unset |= (ids == 0).all((0, 2)) & (len(ids) > _CHANCE)
        if unset.any():
            raise Unusable(f"they have rows without routing ({kernel})")
        return ids.astype(np.int16)

    def _steps(self, every: NDArray[np.intp]) -> tuple[Step, ...]:
        """The turns of a trajectory; empty where the model generated everything in one."""
        if every[0] == 0 and len(every) == every[-1] + 1:
            return ()
        starts = np.flatnonzero(np.diff(every, prepend=-2) > 1)
        given = [self.tokens[(every[s - 1] + 1 if s else 0) : every[s]].tolist() for s in starts]
        given[0] = self.prompt.tolist() + given[0]
        return tuple(Step(tuple(tokens), int(start)) for tokens, start in zip(given, starts, strict=True))


_CHANCE = 16  # rows of one expert that nobody takes for chance


def numbers(value: Any, where: str, name: str, dtype: type[np.generic]) -> NDArray[Any]:
    """A list or tensor of numbers as an array [n] of a type, which must hold them."""
    value = plain(value)
    if isinstance(value, FileTensor) and len(value.shape) == 1:
        value = value.read()
    array = np.asarray(value) if isinstance(value, list | np.ndarray) else np.empty((0, 0))
    wanted = "f" if np.dtype(dtype).kind == "f" else "b"
    if array.ndim != 1 or array.dtype.kind not in "iu" + wanted:
        raise InputError(
            f"{where} has {name} that are no list of {'' if wanted == 'f' else 'whole '}numbers: it is damaged"
        )
    if (
        wanted == "b"
        and array.size
        and not np.iinfo(np.int32).min <= array.min() <= array.max() <= np.iinfo(np.int32).max
    ):
        raise InputError(f"{where} has {name} beyond 32 bits: it is damaged")
    with np.errstate(over="ignore"):  # infinities are for the checks of a rollout
        return array.astype(dtype)


class Parting(NamedTuple):
    """Layers in which the expert sets of two rollouts agree: at the token where they part, and at the one behind it."""

    at: int = 0
    of_at: int = 0
    behind: int = 0
    of_behind: int = 0


@dataclass
class Alignment:
    """How far rollouts of one prompt agree where they must, summed over pairs of them."""

    total: Parting = field(default_factory=Parting)
    _before: tuple[str, Rollout] | None = None

    def add(self, group: str, rollout: Rollout) -> None:
        """Compare a rollout with the one before it, if that is of the same group. Both begin with one prompt."""
        before, self._before = self._before, None if rollout.steps else (group, rollout)
        if before is None or before[0] != group or rollout.steps:
            return
        mine, other = rollout, before[1]
        shared = min(len(mine), len(other))
        apart = np.flatnonzero(mine.token_ids[:shared] != other.token_ids[:shared])
        if not len(apart):
            return
        place = int(apart[0])
        counts = list(self.total)
        for i, row in enumerate(range(place, min(place + 2, shared))):
            equal = (np.sort(mine.expert_ids[row]) == np.sort(other.expert_ids[row])).all(-1)
            counts[2 * i] += int(equal.sum())
            counts[2 * i + 1] += equal.size
        self.total = Parting(*counts)

    def check(self, where: str) -> None:
        """Refuse routing that does not follow the tokens."""
        at, of_at, behind, of_behind = self.total
        if of_at and at < _AGREES * of_at:
            raise InputError(
                f"{where}: where two rollouts of one prompt part, their routing agrees in {at / of_at:.0%} of the layers, and it must "
                "be the same: the rows are not those of the tokens, or the groups are not of one prompt"
            )
        if of_behind and behind > _SAME * of_behind and of_behind >= _ENOUGH:
            raise InputError(
                f"{where}: behind the token where two rollouts of one prompt part, their routing still agrees in "
                f"{behind / of_behind:.0%} of the layers: the rows are shifted against the tokens"
            )


_AGREES = 0.5  # the share of layers that agree at least: batches and dtypes change some sets
_SAME = 0.95  # and at most, behind the token: one can have little influence
_ENOUGH = 32  # layers, so that one pair of like tokens is no proof
