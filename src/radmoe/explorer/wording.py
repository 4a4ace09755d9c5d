"""What a page says in plain words: where a readout looks, and why a rollout was picked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from radmoe.anchors import preset_for
from radmoe.readout import Readout
from radmoe.types import Kind, RolloutGroup, Selection
from radmoe.vocab import Vocab

Correct = Sequence[bool | None]


def marker_words(readout: str, kind: Kind | None, vocab: Vocab) -> str:
    """The marker that a readout looks for, for somebody who does not know readouts."""
    parsed = Readout.parse(readout)
    preset = preset_for(vocab)
    if parsed.name is not None:
        return f"the text {parsed.name!r}" if parsed.family != "trajectory" else f"the token {parsed.name!r}"
    if parsed.family in ("delimiter", "pre-delim"):
        return "the code fence that opens the answer" if kind == "code" else r"\boxed{, which opens the answer"
    if parsed.family == "boundary":
        if kind == "agent":
            return f"{preset.action.pattern.decode()}, which opens an action"
        return f"{preset.boundary.pattern.decode()}, behind which the final response begins"
    if parsed.family.startswith("trajectory"):
        return "the token 'so'"
    return f"the place that {readout} names"


def window_words(readout: str) -> str:
    """How much is read at the marker."""
    parsed = Readout.parse(readout)
    if parsed.width == "marker":
        return "on the tokens of that marker"
    if parsed.width == "union":
        return "on all of these markers together"
    if parsed.family == "pre-delim":
        return f"on the {parsed.width} tokens before it"
    if parsed.family.startswith("rand"):
        return f"on {parsed.width} tokens at random"
    return f"on the {parsed.width} tokens from there" if parsed.width != 1 else "on its first token"


def why(group: RolloutGroup, selection: Selection, correct: Correct | None = None) -> str:
    """Which rollout was picked and why, or why none was; then, where labels are there, whether it is right."""
    total, located = len(group), int(selection.located.sum())
    marker = marker_words(selection.readout, selection.kind, group.vocab) if selection.readout else "a marker"
    if total == 1:
        return "RAD abstains: there is one rollout, so there is nothing to compare it with."
    if selection.index is None:
        some = "no rollout reaches" if located == 0 else f"{located} of {total} rollouts reaches"
        return f"RAD abstains: {some} {marker}, and it takes two to compare."
    mean = selection.density[selection.index] / max(selection.k, 1)
    reach = f"all {total} rollouts reach" if located == total else f"{located} of {total} rollouts reach"
    like = "its nearest neighbour" if selection.k == 1 else f"its {selection.k} nearest neighbours"
    sentence = (
        f"RAD picked rollout {selection.rollout_index}: {reach} {marker}, and {window_words(selection.readout)} the "
        f"experts that this one used agree most with those of {like} (mean similarity {mean:.2f})."
    )
    return " ".join(filter(None, (sentence, _rival(group, selection), _judged(selection, correct))))


def _rival(group: RolloutGroup, selection: Selection) -> str:
    """How large the pick's basin is, and how near the best rollout of another comes."""
    size, located = len(selection.basin), int(selection.located.sum())
    basin = f"Its basin holds {size} of the {located} rollouts"
    if math.isnan(selection.margin):
        return f"{basin}, so nothing stands against it."
    assert group.rollout_indices is not None and selection.index is not None
    outside = selection.located.copy()
    outside[list(selection.basin)] = False
    rival = int(np.nanargmax(np.where(outside, selection.score, np.nan)))
    mean = selection.density[rival] / max(selection.k, 1)
    return f"{basin}; the best outside it, rollout {group.rollout_indices[rival]}, reaches {mean:.2f}."


def _judged(selection: Selection, correct: Correct | None) -> str:
    if correct is None or selection.index is None or correct[selection.index] is None:
        return ""
    right = sum(bool(one) for one in correct)
    verdict = "right" if correct[selection.index] else "wrong"
    return f"The labels, which RAD never sees, say that it is {verdict}; {right} of {len(correct)} rollouts are right."
