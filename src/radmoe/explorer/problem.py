"""Encodes one problem as a block with everything that a page shows of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.explorer.blocks import pack, smallest
from radmoe.explorer.texts import ANSWER, PROMPT, text_arrays
from radmoe.explorer.views import View, usual_settings, view_arrays, view_header, view_of
from radmoe.selection.confidence import likelihood
from radmoe.selection.kinds import infer_kind
from radmoe.selection.rule import Setting
from radmoe.types import Kind, RolloutGroup

UNKNOWN = 2  # in `correct`: a rollout without a label


class Verdicts(NamedTuple):
    """The labels of a problem's rollouts, in their order; None for a rollout without an answer or a label."""

    answers: tuple[str | None, ...]
    correct: tuple[bool | None, ...]


class EncodedProblem(NamedTuple):
    """The block of a problem, and its entry in the index."""

    entry: dict[str, Any]
    block: bytes


def encode_problem(
    group: RolloutGroup,
    *,
    settings: Sequence[Setting] | None = None,
    verdicts: Verdicts | None = None,
    picks: Mapping[str, int | None] | None = None,
    hits: Mapping[str, float] | None = None,
    prompt: str | None = None,
    finish: Sequence[str | None] | None = None,
    full_text: bool = False,
) -> EncodedProblem:
    """Select under every setting and encode what a page shows as a block.

    The kind is the group's own, or inferred from the markers. `settings` are those of `usual_settings`
    unless given; a setting whose routing was not kept is left out, and so is every one but the first that cannot
    compare two rollouts. `picks` and `hits` are the results of other methods by name, and `finish` says why each
    rollout ended. Cost: reading the windows of every readout from disk, and O(n^2) for each.
    """
    kind = group.kind or infer_kind([group], f"problem {group.problem_id!r}")
    views = _views(group, settings or usual_settings(kind))
    correct = None if verdicts is None else verdicts.correct
    arrays: dict[str, NDArray[Any]] = dict(text_arrays(group, _windows(group, views), full_text))
    columns = [rollout.sampled_logprobs for rollout in group.rollouts if rollout.sampled_logprobs is not None]
    if len(columns) == len(group):
        arrays["likelihood"] = np.array([likelihood(column) for column in columns], np.float32)
    header: dict[str, Any] = {
        "id": group.problem_id,
        "kind": kind,
        "shape": [group.shape.layers, group.shape.experts, group.shape.top_k],
        "rollouts": len(group),
        "numbers": list(group.rollout_indices or ()),
        "weights": all(rollout.has_weights for rollout in group.rollouts),
        "prompt": None if prompt is None else prompt if full_text else prompt[:PROMPT],
        "prompt_length": 0 if prompt is None else len(prompt),
        "finish": None if finish is None or not any(finish) else list(finish),
        "picks": dict(picks or {}),
        "hits": dict(hits or {}),
        "views": [view_header(group, view, correct) for view in views],
    }
    if verdicts is not None:
        answers = dict.fromkeys(answer for answer in verdicts.answers if answer is not None)
        number = {answer: i for i, answer in enumerate(answers)}
        header["answers"] = [answer if full_text else _cut(answer) for answer in answers]
        arrays["answer"] = smallest(
            np.array([len(number) if answer is None else number[answer] for answer in verdicts.answers])
        )
        arrays["correct"] = np.array([UNKNOWN if c is None else int(c) for c in verdicts.correct], np.uint8)
    for place, view in enumerate(views):
        arrays |= {f"{place}.{name}": array for name, array in view_arrays(group, view).items()}
    return EncodedProblem(_entry(group, kind, views, verdicts), pack(header, arrays))


def _views(group: RolloutGroup, settings: Sequence[Setting]) -> list[View]:
    views = [view for setting in settings if (view := view_of(group, setting)) is not None]
    return [view for place, view in enumerate(views) if place == 0 or not view.selection.abstained]


def _cut(answer: str) -> str:
    """Cut an answer, which may be a whole program or patch, to the length that a page shows."""
    return answer if len(answer) <= ANSWER else answer[:ANSWER] + "…"


def _windows(group: RolloutGroup, views: Sequence[View]) -> list[list[tuple[int, int]]]:
    return [[span for view in views for span in view.spans[i]] for i in range(len(group))]


def _entry(group: RolloutGroup, kind: Kind | None, views: Sequence[View], verdicts: Verdicts | None) -> dict[str, Any]:
    """The entry of a problem in the index: its size, the pick under every readout, and how far the pick's basin agrees
    on one answer.
    """
    picks = {view.setting.readout: view.selection for view in views}
    correct = None if verdicts is None else verdicts.correct
    return {
        "id": group.problem_id,
        "kind": kind,
        "rollouts": len(group),
        "right": None if correct is None else sum(bool(one) for one in correct),
        "picks": {
            readout: None
            if pick.index is None
            else [pick.rollout_index, len(pick.basin), _verdict(correct, pick.index)]
            for readout, pick in picks.items()
        },
        "pairs": None if verdicts is None or not views else _pairs(views[0].selection.basin, verdicts.answers),
    }


def _pairs(basin: Sequence[int], answers: Sequence[str | None]) -> list[int]:
    """Count the pairs of rollouts in a basin that have the same answer, and the pairs that have answers at all."""
    known = [answer for i in basin if (answer := answers[i]) is not None]
    return [sum(comb(count, 2) for count in Counter(known).values()), comb(len(known), 2)]


def _verdict(correct: Any, index: int) -> int:
    return UNKNOWN if correct is None or correct[index] is None else int(correct[index])
