"""Presets: one word for a documented combination of readout, neighbours, kernel, fusion and what is compared.

A preset has a recipe for every kind of answer. To change what `best` stands for, change its recipes here: `select`, the command
line and the methods of `radmoe evaluate` follow (docs/readouts.md, "Presets").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from radmoe.errors import InputError
from radmoe.types import Kind, check_kind

Reads = Literal["routing", "logprobs", "answers"]


@dataclass(frozen=True)
class Recipe:
    """How the rollouts of one kind are read, compared, and how confidence counts.

    `k` is a number of neighbours, or a share of the rollouts there are. `fusion` is "none", "conf50" or "ranksum";
    `confidence` is the scalar that it joins with density. `compare` says what makes two rollouts alike: "routing", "text" (what their answers
    say) or "routing+text".
    """

    readout: str
    k: int | Fraction
    kernel: str = "weighted"
    fusion: str = "none"
    confidence: str = "cbw"
    compare: str = "routing"

    def neighbours(self, rollouts: int) -> int:
        """k for a group of so many rollouts: a share is rounded down, and there is always one."""
        return self.k if isinstance(self.k, int) else max(1, int(self.k * rollouts))


@dataclass(frozen=True)
class Preset:
    """A recipe for every kind, under a name. `reads` says what it looks at beside token ids."""

    name: str
    summary: str
    reads: tuple[Reads, ...]
    recipes: Mapping[Kind, Recipe]

    def recipe(self, kind: Kind | None) -> Recipe:
        """The recipe of a kind; where no kind is known, that of an answer in a box."""
        return self.recipes["math" if kind is None else check_kind(kind)]


_WINDOW = Recipe("delimiter@16", 10)
_AGENT = Recipe("boundary@union", 4, "binary")
_SHARE = Fraction(20, 64)  # of the rollouts: the k that did best at N = 64, and not worse at 8, 16 and 32
_SURE = {"fusion": "ranksum", "confidence": "likelihood"}

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "paper",
            "RAD as in the paper",
            ("routing",),
            {
                "math": _WINDOW,
                "choice": _WINDOW,
                "code": _WINDOW,
                "text": Recipe("boundary@16", 10),
                "agent": _AGENT,
            },
        ),
        Preset(
            "paper+dc",
            "RAD+DC as in the paper: RAD among the more confident half, by cBW",
            ("routing", "logprobs"),
            {
                "math": Recipe("delimiter@16", 10, fusion="conf50"),
                "choice": Recipe("delimiter@16", 10, fusion="conf50"),
                "code": Recipe("delimiter@16", 10, fusion="conf50"),
                "text": Recipe("boundary@16", 10, fusion="conf50"),
                "agent": Recipe("boundary@union", 4, "binary", fusion="conf50"),
            },
        ),
        Preset(
            "strict",
            "RAD over the marker's own tokens, which are conditioned on no word of the answer",
            ("routing",),
            {
                "math": Recipe("delimiter@marker", 10),
                "choice": Recipe("delimiter@marker", 10),
                "code": Recipe("delimiter@marker", 10),
                "text": Recipe("boundary@marker", 10),
                "agent": _AGENT,
            },
        ),
        Preset(
            "best",
            "routing of the whole answer, with likelihood; reads no text",
            ("routing", "logprobs"),
            {
                "math": Recipe("delimiter@span", _SHARE, **_SURE),
                "choice": Recipe("delimiter@span", _SHARE, **_SURE),
                "code": Recipe("delimiter@span", _SHARE, **_SURE),
                "text": Recipe("all", _SHARE, **_SURE),
                "agent": _AGENT,  # not measured: as in the paper
            },
        ),
        Preset(
            "best+text",
            "what the answers say and, but for code, routing, with likelihood",
            ("routing", "logprobs", "answers"),
            {
                "math": Recipe("delimiter@16", _SHARE, compare="routing+text", **_SURE),
                "choice": Recipe("delimiter@16", _SHARE, compare="routing+text", **_SURE),
                "code": Recipe("delimiter@span", _SHARE, compare="text", **_SURE),  # routing added nothing to it
                "text": Recipe("all", _SHARE, compare="routing+text", **_SURE),
                "agent": _AGENT,  # a trajectory has no answer whose text could be compared
            },
        ),
    )
}


def preset_named(name: str) -> Preset:
    """The preset of this name. Raises an InputError that lists the known ones."""
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}: use one of {', '.join(PRESETS)}")
    return PRESETS[name]
