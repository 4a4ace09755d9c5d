"""Sentences for a page: where a readout looks, and why a rollout was picked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from radmoe.selection.anchors import Marker, spec_for
from radmoe.selection.closing import CLOSING
from radmoe.selection.readout import ALL, STEP, Readout
from radmoe.types import Kind, RolloutGroup, Selection
from radmoe.vocab import Vocab

Correct = Sequence[bool | None]

# what a rollout of a kind is called
NOUNS: dict[Kind | None, tuple[str, str]] = {"agent": ("trajectory", "trajectories")}

_WIDTHS: dict[int | str, str] = {
    "marker": "on the tokens of that marker",
    "union": "on all of these markers together",
    "span": "on the whole answer",
    ALL: "on all their tokens",
}


def marker_words(readout: str, kind: Kind | None, vocab: Vocab) -> str:
    """Name the marker that a readout looks for, in words for somebody who does not know readouts."""
    parsed = Readout.parse(readout)
    if parsed.family == "trajectory":
        return f"the token “{parsed.name or 'so'}”"
    if parsed.name is not None:
        return f"the text “{parsed.name}”"
    if parsed.family in ("delimiter", "pre-delim"):
        return "the code fence that opens the answer" if kind == "code" else r"“\boxed{”, which opens the answer"
    if parsed.family == "boundary":
        purpose = "which opens an action" if kind == "agent" else "behind which the final response begins"
        return f"“{_boundary(kind, vocab)}”, {purpose}"
    if parsed.family == STEP:
        return f"“{_boundary(kind, vocab)}” or, in a step without it, the step's first token"
    if parsed.family == CLOSING:
        return "the end of the answer"
    if parsed.family == ALL:
        return "their end"
    return f"the place that {readout} names"


def window_words(readout: str) -> str:
    """Say how many tokens a readout reads at its marker."""
    parsed = Readout.parse(readout)
    at_marker = parsed.family in ("delimiter", "boundary", "trajectory", CLOSING)
    if parsed.width in _WIDTHS:
        return _WIDTHS[parsed.width]
    if at_marker and isinstance(parsed.width, int):
        if parsed.width < 0:
            return f"on the {-parsed.width} tokens before it"
        return f"on the {parsed.width} tokens from there" if parsed.width > 1 else "on its first token"
    if parsed.family == "pre-delim":
        return f"on the {parsed.width} tokens before it"
    return f"in the window of {readout}"


def _boundary(kind: Kind | None, vocab: Vocab) -> str:
    """The text that opens the final response, or an agent's action, in this vocabulary."""
    (finder,) = spec_for("boundary", kind, vocab).find
    assert isinstance(finder, Marker)
    return finder.pattern.decode()


def why(group: RolloutGroup, selection: Selection, correct: Correct | None = None) -> list[str]:
    """The sentences that say which rollout was picked, why, which rollout comes closest, and, if there are labels,
    whether the pick is right.

    If RAD abstains, they say why.
    """
    total, located = len(group), int(selection.located.sum())
    one, several = NOUNS.get(selection.kind, ("rollout", "rollouts"))
    marker = marker_words(selection.readout, selection.kind, group.vocab)
    if total == 1:
        return ["RAD abstains.", f"There is one {one}, so there is nothing to compare it with."]
    if selection.index is None:
        some = f"No {one} reaches" if located == 0 else f"{located} of {total} {several} reaches"
        return ["RAD abstains.", f"{some} {marker}, and it takes two to compare."]
    number = selection.rollout_index
    reach = f"All {total} {several} reach" if located == total else f"{located} of {total} {several} reach"
    like = "its nearest neighbour" if selection.k == 1 else f"its {selection.k} nearest neighbours"
    sentences = [
        f"RAD picked {one} {number}.",
        f"{reach} {marker}; {window_words(selection.readout)}, the experts that {one} {number} used agree most with "
        f"those of {like} (mean similarity {selection.density[selection.index]:.2f}).",
        _against(group, selection, one, several),
        _judged(selection, correct),
    ]
    return [sentence for sentence in sentences if sentence]


def rival(selection: Selection) -> int | None:
    """The densest rollout outside the pick's basin; None if there is none."""
    if selection.index is None or math.isnan(selection.margin):
        return None
    outside = selection.located.copy()
    outside[list(selection.basin)] = False
    return int(np.nanargmax(np.where(outside, selection.score, np.nan)))


def _against(group: RolloutGroup, selection: Selection, one: str, several: str) -> str:
    """Say how large the pick's basin is, and how close the best rollout of another basin comes."""
    basin = f"Its basin holds {len(selection.basin)} of the {int(selection.located.sum())} {several}"
    best = rival(selection)
    if best is None:
        return f"{basin}, so nothing stands against it."
    assert group.rollout_indices is not None
    return f"{basin}; the best outside it, {one} {group.rollout_indices[best]}, reaches {selection.density[best]:.2f}."


def _judged(selection: Selection, correct: Correct | None) -> str:
    if correct is None or selection.index is None or correct[selection.index] is None:
        return ""
    right = sum(bool(one) for one in correct)
    verdict = "right" if correct[selection.index] else "wrong"
    return f"The labels, which RAD never sees, say that it is {verdict}; {right} of all {len(correct)} are right."
