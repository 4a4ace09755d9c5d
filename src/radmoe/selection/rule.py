"""The rule by which one rollout is chosen: the one object that `select`, calibration, command line and server share.

A `Rule` says what somebody asked for; a part that is None is decided by the preset. `Rule.settle` gives the `Setting` of one kind of
answer and one number of rollouts, in which nothing is open. To change what `best` stands for, change PRESETS here: `select`, the
command line and the methods of `radmoe evaluate` follow (docs/readouts.md, "Presets").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from typing import Any, Literal, Self, get_args

import numpy as np

from radmoe.errors import InputError
from radmoe.selection.confidence import WINDOW
from radmoe.selection.layers import Layers
from radmoe.selection.readout import Readout
from radmoe.types import KINDS, Compare, Confidence, Fusion, Kernel, Kind, PresetName, check_kind

Reads = Literal["routing", "logprobs", "answers"]

_NAMES: dict[str, tuple[str, ...]] = {
    "preset": get_args(PresetName),
    "kernel": get_args(Kernel),
    "fusion": (*get_args(Fusion), "none"),
    "confidence": get_args(Confidence),
    "compare": get_args(Compare),
}
_NUMBERS = ("k", "budget", "confidence_window", "seed")
_MOST = 2**31  # of anything that a rule in a file may count


@dataclass(frozen=True)
class Rule:
    """How one rollout is chosen. A part that is None is the preset's, and the preset is "paper" unless given.

    readout            anchor and window, such as "delimiter@16" (docs/readouts.md)
    k                  neighbours in the density; in a preset it may be a share of the rollouts there are
    kernel             "weighted" or "binary" Jaccard
    fusion             how confidence joins density: "none" (RAD), "conf50" or "ranksum" (RAD+DC)
    confidence         the scalar of a rollout: "cbw" or "tail" of DeepConf, or "likelihood"
    compare            what makes two rollouts alike: "routing", "text" (what their answers say) or "routing+text"
    layers             a subset of the layers, such as "s0", "0-3,7" or [0, 1]
    budget             read only so many tokens of each rollout
    confidence_window  tokens of a window of cbw and tail, 2,048 unless given
    seed               of the random control readouts
    """

    preset: PresetName | None = None
    readout: str | None = None
    k: int | Fraction | None = None
    kernel: Kernel | None = None
    fusion: Fusion | Literal["none"] | None = None
    confidence: Confidence | None = None
    compare: Compare | None = None
    layers: Layers = None
    budget: int | None = None
    confidence_window: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in _NAMES.items():
            if (value := getattr(self, name)) is not None and value not in known:
                word = "comparison" if name == "compare" else name
                raise InputError(f"unknown {word} {value!r:.60}: use one of {', '.join(known)}")
        k, window = self.k, self.confidence_window
        if isinstance(k, bool) or not isinstance(k, int | np.integer | Fraction | None) or (k is not None and k <= 0):
            raise InputError(f"k must be a whole number of neighbours from 1 up, got {k!r}")
        if window is not None and window < 1:
            raise InputError(f"the confidence window must be at least 1 token, got {window}")
        if self.readout is not None:
            Readout.parse(self.readout)
        if self.layers is not None and not isinstance(self.layers, str):
            object.__setattr__(self, "layers", tuple(self.layers))

    def but(self, **given: Any) -> Self:
        """This rule with the parts that are given; None leaves a part as it is."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    def settle(self, kind: Kind | None, rollouts: int | None = None) -> Setting:
        """What the rule means for a group of so many rollouts of a kind.

        Where no kind is known, it is that of an answer in a box. `rollouts` is needed where k is a share of them.
        """
        preset = PRESETS[self.preset or "paper"]
        base = preset.rules["math" if kind is None else check_kind(kind)]
        parts = asdict(base) | self.to_json() | {"preset": preset.name, "layers": self.layers}
        if isinstance(parts["k"], Fraction):
            if rollouts is None:
                raise InputError(f"k is a share of the rollouts in preset {preset.name}: say how many there are")
            parts["k"] = max(1, int(parts["k"] * rollouts))
        parts["fusion"] = None if parts["fusion"] == "none" else parts["fusion"]
        return Setting(kind, **parts)

    def to_json(self) -> dict[str, Any]:
        """The parts that were given, by their names."""
        parts = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in parts.items() if value is not None and (name, value) != ("seed", 0)}

    @classmethod
    def from_json(cls, body: Any) -> Self:
        """The rule that `to_json` wrote. Raises an InputError that names what is wrong with another document."""
        if not isinstance(body, dict) or set(body) - {one.name for one in fields(cls)}:
            raise InputError(f"a rule has the parts {', '.join(one.name for one in fields(cls))}, got {body!r:.60}")
        for name, value in body.items():
            sound = type(value) is int and 0 <= value < _MOST if name in _NUMBERS else isinstance(value, str)
            if name == "layers" and isinstance(value, list):
                sound = all(type(layer) is int and 0 <= layer < _MOST for layer in value)
            if not sound:
                raise InputError(f"a rule cannot have {name} {value!r:.60}")
        return cls(**body)

    def __str__(self) -> str:
        """The parts that were given, as they are typed on the command line."""
        typed = {name.replace("_", "-"): value for name, value in self.to_json().items()}
        typed |= {"layers": ",".join(map(str, self.layers))} if isinstance(self.layers, tuple) else {}
        return " ".join(f"--{name} {value}" for name, value in typed.items()) or "the defaults"


@dataclass(frozen=True)
class Setting:
    """What a rule means for one kind of answer and one number of rollouts (`Rule.settle`): nothing is open in it.

    `kind` is None where no marker of a kind is read, and `fusion` None for plain RAD. `preset` names the preset it began with.
    """

    kind: Kind | None
    readout: str
    k: int
    kernel: Kernel
    fusion: Fusion | None = None
    confidence: Confidence = "cbw"
    compare: Compare = "routing"
    preset: PresetName = "paper"
    layers: Layers = None
    budget: int | None = None
    confidence_window: int = WINDOW
    seed: int = 0

    @property
    def strict(self) -> str | None:
        """The marker-only readout of the same anchor; None where there is none."""
        readout = Readout.parse(self.readout)
        if readout.width in ("marker", "union") or readout.family not in ("delimiter", "boundary", "trajectory"):
            return None
        return str(Readout(readout.family, "marker", readout.name, readout.occurrence))

    def __str__(self) -> str:
        """In a few words, such as "math: delimiter@16, weighted kernel, k=10, conf50 by cbw"."""
        fusion = "" if self.fusion is None else f", {self.fusion} by {self.confidence}"
        if self.compare == "text":
            return f"{self.kind}: text of the answers, k={self.k}{fusion}"
        text = " and text of the answers" if self.compare == "routing+text" else ""
        return f"{self.kind}: {self.readout}{text}, {self.kernel} kernel, k={self.k}{fusion}"


@dataclass(frozen=True)
class Preset:
    """A complete rule for every kind of answer, under a name. `reads` says what it looks at beside token ids."""

    name: PresetName
    reads: tuple[Reads, ...]
    rules: Mapping[Kind, Rule]


def _preset(name: PresetName, reads: tuple[Reads, ...], own: dict[Kind, dict[str, Any]], **parts: Any) -> Preset:
    """A preset: `parts` are the same for every kind, and choice and code are as math unless `own` says otherwise."""
    base = {"kernel": "weighted", "fusion": "none", "confidence": "cbw", "compare": "routing"} | parts
    base |= {"confidence_window": WINDOW}
    return Preset(name, reads, {kind: Rule(**(base | own.get(kind, own["math"]))) for kind in KINDS})


_AGENT = {"readout": "boundary@union", "k": 4, "kernel": "binary"}
_PLAIN_AGENT = _AGENT | {"fusion": "none", "confidence": "cbw", "compare": "routing"}  # not measured: as in the paper
_SHARE = Fraction(20, 64)  # of the rollouts: the k that did best at N = 64, and not worse at 8, 16 and 32

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        _preset(  # RAD as in the paper
            "paper",
            ("routing",),
            {"math": {"readout": "delimiter@16"}, "text": {"readout": "boundary@16"}, "agent": _AGENT},
            k=10,
        ),
        _preset(  # RAD+DC as in the paper: RAD among the more confident half, by cBW
            "paper+dc",
            ("routing", "logprobs"),
            {"math": {"readout": "delimiter@16"}, "text": {"readout": "boundary@16"}, "agent": _AGENT},
            k=10,
            fusion="conf50",
        ),
        _preset(  # RAD over the marker's own tokens, which are conditioned on no word of the answer
            "strict",
            ("routing",),
            {"math": {"readout": "delimiter@marker"}, "text": {"readout": "boundary@marker"}, "agent": _AGENT},
            k=10,
        ),
        _preset(  # routing of the whole answer, with likelihood; reads no text
            "best",
            ("routing", "logprobs"),
            {"math": {"readout": "delimiter@span"}, "text": {"readout": "all"}, "agent": _PLAIN_AGENT},
            k=_SHARE,
            fusion="ranksum",
            confidence="likelihood",
        ),
        _preset(  # what the answers say and, but for code, routing, with likelihood
            "best+text",
            ("routing", "logprobs", "answers"),
            {
                "math": {"readout": "delimiter@16"},
                "code": {"readout": "delimiter@span", "compare": "text"},  # routing added nothing to it
                "text": {"readout": "all"},
                "agent": _PLAIN_AGENT,  # a trajectory has no answer whose text could be compared
            },
            k=_SHARE,
            fusion="ranksum",
            confidence="likelihood",
            compare="routing+text",
        ),
    )
}
