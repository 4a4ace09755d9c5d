"""The requests of an agent and what the model generated become one rollout with steps (design decision 12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import RolloutError
from radmoe.types import Rollout, Step


class Turn(NamedTuple):
    """One request: the token ids that the model was given, and what it generated, with routing."""

    prompt: tuple[int, ...]
    rollout: Rollout
    finish_reason: str


class Solved(NamedTuple):
    """What a harness hands over of a trajectory. `retokenised` counts the requests that did not go on from the one before.

    `failure` is an answer that could not be given, after which nothing is kept and the trajectory is tried again.
    """

    turns: Sequence[Turn]
    retokenised: int = 0
    failure: BaseException | None = None


def joined(turns: Sequence[Turn]) -> Rollout:
    """All turns as one rollout: generated tokens only, and for every step what its request kept and was given."""
    if not turns:
        raise RolloutError("a trajectory without a step has no routing: leave it out")
    rollouts = [turn.rollout for turn in turns]
    steps = steps_of([(turn.prompt, turn.rollout.token_ids.tolist()) for turn in turns])
    return Rollout(
        np.concatenate([one.token_ids for one in rollouts]),
        np.concatenate([one.expert_ids for one in rollouts]),
        _column([one.weights for one in rollouts]),
        _column([one.sampled_logprobs for one in rollouts]),
        _column([one.topk_logprobs for one in rollouts]),
        _positions(rollouts, steps),
        steps,
    )


def steps_of(requests: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[Step, ...]:
    """The steps of requests, each with its token ids and those that were generated."""
    steps: list[Step] = []
    start, before = 0, list[int]()
    for prompt, generated in requests:
        kept = _common(before, prompt)
        steps.append(Step(tuple(prompt[kept:]), start, None if kept == len(before) else kept))
        start += len(generated)
        before = [*prompt, *generated]
    return tuple(steps)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of tokens with which both begin."""
    length = min(len(one), len(other))
    differs = np.flatnonzero(np.asarray(one[:length]) != np.asarray(other[:length]))
    return int(differs[0]) if len(differs) else length


def _column(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    present = [part for part in parts if part is not None]
    if present and len(present) < len(parts):
        raise RolloutError(f"{len(present)} of {len(parts)} steps have a column that the others lack: they must agree")
    return np.concatenate(present) if present else None


def _positions(rollouts: Sequence[Rollout], steps: Sequence[Step]) -> NDArray[np.int32] | None:
    if all(one.positions is None for one in rollouts):
        return None
    own = (np.arange(len(one), dtype=np.int32) if one.positions is None else one.positions for one in rollouts)
    return np.concatenate([rows + step.start for rows, step in zip(own, steps, strict=True)]).astype(np.int32)
