"""The turns of a trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from radmoe.errors import RolloutError


class Step(NamedTuple):
    """One turn of the model in a trajectory: a request of its own.

    The request begins with the first `kept` tokens of the request before it and of what was generated then; None keeps
    all of these, as a history does that only grows. `given` are the tokens that follow (in the first step: the whole
    prompt). `start` is the offset, among all tokens that the model generated, of the first one of this turn.
    """

    given: tuple[int, ...]
    start: int
    kept: int | None = None


def check_steps(steps: Sequence[Step], tokens: int) -> tuple[Step, ...]:
    """Check steps and return them as tuples of ints.

    Raises a RolloutError unless their offsets rise from 0 and stay below `tokens`, and no step keeps more tokens than
    the requests before it have.
    """
    copies = tuple(
        Step(tuple(int(token) for token in given), int(start), None if kept is None else int(kept))
        for given, start, kept in steps
    )
    check_starts([step.start for step in copies], tokens)
    if any(token < 0 for step in copies for token in step.given):
        raise RolloutError("the tokens a step was given must not be negative")
    length = 0  # of the request before, with what was generated then
    stops = [*(step.start for step in copies[1:]), tokens]
    for number, (step, stop) in enumerate(zip(copies, stops if copies else (), strict=True)):
        if step.kept is not None and not 0 <= step.kept <= length:
            raise RolloutError(f"step {number} keeps {step.kept} tokens of the one before it, which has {length}")
        length = (length if step.kept is None else step.kept) + len(step.given) + stop - step.start
    return copies


def check_starts(starts: Sequence[int], tokens: int) -> None:
    """Refuse offsets of steps, with a RolloutError, unless they rise from 0 and stay below `tokens`."""
    if len(starts) and (starts[0] != 0 or list(starts) != sorted(set(starts)) or starts[-1] >= tokens):
        raise RolloutError(f"steps must start at offsets rising from 0 and below {tokens} tokens, got {list(starts)}")
