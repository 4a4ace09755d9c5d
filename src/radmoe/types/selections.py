"""The result of selection."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.types.html import html_table
from radmoe.types.names import Compare, Confidence, Fusion, Kernel, Kind, PresetName
from radmoe.types.rollouts import Trace
from radmoe.vocab import Vocab


@dataclass(frozen=True)
class Anchor:
    """The position of a marker: the first token that overlaps it, the number m of tokens that do, and its anchor
    family.
    """

    start: int
    length: int
    family: str


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """Which rollout was picked, and why.

    `index` is the pick's place in the group and `rollout_index` its number in the pool; both are None when RAD abstains
    (fewer than two rollouts scored). `density` is a rollout's mean similarity to its k nearest: q of Eq. 5, divided by k. `score`
    is what was maximised: the density, or the rank sum under fusion="ranksum". A rollout that was not scored has NaN.
    `roots[i]` is the mode that rollout i climbs to (its basin), -1 if unscored; `basin` lists the rollouts of the pick's basin;
    `margin` is the pick's score minus the best score in any other basin, NaN where there is none. `kind`, `readout`, `kernel`,
    `preset`, `fusion` (None: confidence did not count), `confidence` and `compare` say by which rule. `probability` is that of the
    pick's being right, where a calibration was applied (`radmoe.selection.calibration`); `probability_reason` says why one that was
    looked for gives none, and `dense` whether the pick is among the third of the graded ones with the highest similarity. `noise` is how far a second pass moves differences of densities, where that was measured (`with_noise`).
    `rollout` is the pick itself, and `text` what it says.
    """

    index: int | None
    rollout_index: int | None
    density: NDArray[np.float64]  # [N]
    located: NDArray[np.bool_]  # [N]
    anchors: tuple[Anchor | None, ...]  # [N]
    k: int
    basin: tuple[int, ...]
    margin: float
    neighbours: tuple[int, ...] = ()
    score: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    roots: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    kind: Kind | None = None
    readout: str = ""
    kernel: Kernel = "weighted"
    preset: PresetName = "paper"
    fusion: Fusion | None = None
    confidence: Confidence | None = None
    compare: Compare = "routing"
    probability: float | None = None
    probability_reason: str = ""
    dense: bool | None = None
    noise: float | None = None
    rollout: Trace | None = None
    vocab: Vocab | None = None

    @property
    def abstained(self) -> bool:
        return self.index is None

    @property
    def within_noise(self) -> bool | None:
        """Whether another rollout is nearer to the pick's density than the numeric noise, so that a second pass may pick it.

        The other is one of the pick's own basin where the margin is not below the noise, too. None where no noise was measured or
        nothing was picked, and where the score is one of ranks.
        """
        if self.noise is None or self.index is None or self.fusion == "ranksum" or self.compare != "routing":
            return None
        *_, second, first = [-np.inf, *np.sort(self.score[~np.isnan(self.score)])]
        return bool(first - second < self.noise)

    def with_noise(self, noise: float | None) -> Selection:
        """The selection with this measured noise (`radmoe doctor` measures it); None where nothing was measured."""
        return replace(self, noise=check_noise(noise))

    @property
    def text(self) -> str | None:
        """The pick's text without its end token; None where there is no pick, or its tokens are not at hand."""
        if self.index is None or self.rollout is None or self.vocab is None:
            return None
        ids = self.rollout.token_ids
        ids = ids[:-1] if int(ids[-1]) in self.vocab.controls.values() else ids
        return self.vocab.decode_bytes(ids).decode("utf-8", "replace")

    def to_dict(self) -> dict[str, Any]:
        """The selection for JSON, the same on the command line, over HTTP and for agents (docs/readouts.md lists the keys).

        NaN is None. `located` and `density` have one entry for each rollout.
        """
        lists = {
            "located": self.located.tolist(),
            "density": [None if np.isnan(value) else value for value in self.density.tolist()],
            "basin": list(self.basin),
            "margin": None if np.isnan(self.margin) else float(self.margin),
            "probability_reason": self.probability_reason or None,
        }
        return {name: lists.get(name, getattr(self, name)) for name in SELECTION_KEYS}

    def __repr__(self) -> str:
        setting = f"{self.kind or 'no kind'}, {self.readout}, k={self.k}"
        if self.index is None:
            return f"Selection(abstained: {int(self.located.sum())} of {len(self.located)} rollouts located; {setting})"
        return (
            f"Selection(rollout {self.rollout_index} of {len(self.located)}: density {self.density[self.index]:.3f}, "
            f"basin of {len(self.basin)}, margin {self.margin:.3f}{', within numeric noise' if self.within_noise else ''}; {setting})"
        )

    def _repr_html_(self) -> str:
        rows = [
            (i, "pick" if i == self.index else "", "" if np.isnan(density) else f"{density:.3f}", i in self.basin)
            for i, density in enumerate(self.density.tolist())
        ]
        return html_table(repr(self), ("rollout", "", "density", "in the pick's basin"), rows)


SELECTION_KEYS = (  # of `Selection.to_dict`
    *(
        "index",
        "rollout_index",
        "abstained",
        "kind",
        "readout",
        "k",
        "kernel",
        "preset",
        "fusion",
        "confidence",
        "compare",
    ),
    *("located", "density", "basin", "margin", "noise", "within_noise", "probability", "probability_reason"),
)


def check_noise(noise: float | None) -> float | None:
    """Return the noise. Raises an InputError unless it is a difference of densities, which lies between 0 and 1."""
    if noise is not None and not 0 <= noise <= 1:
        raise InputError(f"noise is a difference of densities from 0 to 1, as radmoe doctor measures it, got {noise}")
    return noise
