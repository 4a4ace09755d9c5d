"""How sure is a pick: a probability from a calibration, or else a rank among the picks of a pool.

A calibration is fitted on graded pools (`radmoe calibrate`, in `radmoe.evaluation.calibrate`) and applied here, where no
label can be seen. It holds one small model per kind of answer: the logistic function of a weighted sum of FEATURES, with
no weight below zero, so that more of a feature never lowers the probability. Everything it reads of a selection is what
routing gave. It holds for the model and the way of selecting that it was fitted for, and it says so.

What a calibration cannot do: rollouts that share one error agree as rollouts do that are right. `Fit.dense` says how often
the densest picks of the graded pools were wrong; nothing here can tell which ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.selector import ranks, select
from radmoe.types import KINDS, Kind, RolloutGroup, Selection

FORMAT, VERSION = "radmoe-calibration", 1
FEATURES = ("density", "agreement", "margin", "share", "rollouts")
OPTIONS = (
    "preset",
    "readout",
    "k",
    "kernel",
    "confidence",
    "trust",
    "compare",
    "window",
)  # of `select`, that a calibration is fitted for

SHELF = Path(__file__).parent / "calibrations"  # where calibrations lie that ship with the package

Floats = NDArray[np.float64]


def features(selection: Selection) -> Floats:
    """What a probability is computed from [FEATURES]; the probability rises with each, or stays.

    density    the mean similarity of the pick to its k nearest neighbours
    agreement  the same, averaged over all scored rollouts
    margin     by how much the pick's density is above that of the densest rollout of another basin, per neighbour; the
               whole density where there is no other basin
    share      the share of the scored rollouts that lie in the pick's basin
    rollouts   the number of scored rollouts, as a logarithm to base 2
    """
    if selection.index is None:
        raise InputError("a selection that abstained has no pick to be sure of")
    scored = ~np.isnan(selection.density)
    similar = selection.density / max(selection.k, 1)
    pick = similar[selection.index]
    others = similar[scored & (selection.roots != selection.index)]
    return np.array(
        [
            pick,
            similar[scored].mean(),
            pick - others.max() if len(others) else pick,
            len(selection.basin) / scored.sum(),
            math.log2(scored.sum()),
        ],
        np.float64,
    )


@dataclass(frozen=True)
class Dense:
    """The densest third of the graded picks: from which mean similarity on, how many picks, and how many were wrong."""

    density: float
    picks: int
    wrong: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval of the share that was wrong."""
        z, n, share = 1.96, self.picks, self.wrong / self.picks
        middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"of the {self.picks} graded picks of mean similarity {self.density:.3f} or more, {self.wrong} were wrong "
            f"({self.wrong / self.picks:.0%} [{100 * low:.0f}, {100 * high:.0f}])"
        )


@dataclass(frozen=True)
class Fit:
    """The model of one kind: features are shifted by `means`, divided by `scales`, weighted and added to `intercept`.

    `picks` and `right` count what it was fitted on, `rollouts` is the smallest and the largest number of scored rollouts
    there, and `measured` has what cross-validation said of it.
    """

    intercept: float
    weights: tuple[float, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    picks: int
    right: int
    rollouts: tuple[int, int]
    dense: Dense
    measured: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("weights", "means", "scales"):
            values = getattr(self, name)
            if len(values) != len(FEATURES) or not all(map(math.isfinite, values)):
                raise InputError(f"{name} must be {len(FEATURES)} finite numbers, got {list(values)}")
        if not math.isfinite(self.intercept) or min(self.weights) < 0 or min(self.scales) <= 0:
            raise InputError("a fit needs a finite intercept, weights of 0 or more, and scales above 0")
        if self.dense.picks < 1 or not 0 <= self.dense.wrong <= self.dense.picks:
            raise InputError(f"{self.dense.wrong} wrong of {self.dense.picks} dense picks cannot be")

    def probability(self, values: Floats) -> float:
        """The probability that a pick with these features is right."""
        total = self.intercept + float(np.dot((values - self.means) / self.scales, self.weights))
        return 1.0 / (1.0 + math.exp(-max(-500.0, min(500.0, total))))


@dataclass(frozen=True)
class Calibration:
    """How sure a pick is, for the picks of one model selected in one way.

    `checkpoint` is the fingerprint of the model's weights (`engines.checkpoint.fingerprint`), None where the pools do not
    record it; `options` are those of `select`, and `pools` the checksums of the pools it was fitted on.
    """

    model: str
    checkpoint: str | None
    options: dict[str, Any]
    kinds: dict[Kind, Fit]
    pools: tuple[str, ...] = ()

    def fit_for(self, kind: Kind | None) -> Fit:
        if kind not in self.kinds:
            raise InputError(
                f"this calibration of {self.model} is for {', '.join(self.kinds)}, the pick is of kind {kind}: "
                "fit one on graded pools of that kind with radmoe calibrate"
            )
        return self.kinds[kind]

    def probability(self, selection: Selection) -> float | None:
        """The probability that the pick is right; None where there is no pick."""
        if selection.index is None:
            return None
        return self.fit_for(selection.kind).probability(features(selection))

    def dense(self, selection: Selection) -> bool:
        """Whether the pick is as dense as the densest third of the graded ones."""
        if selection.index is None:
            return False
        return bool(features(selection)[0] >= self.fit_for(selection.kind).dense.density)

    def judge(self, selection: Selection, *, abstain_below: float | None = None) -> Selection:
        """The selection with its probability; below `abstain_below` there is no pick, and `probability` says why."""
        if abstain_below is not None and not 0 <= abstain_below <= 1:
            raise InputError(f"abstain_below is a probability from 0 to 1, got {abstain_below}")
        sure = self.probability(selection)
        if sure is not None and abstain_below is not None and sure < abstain_below:
            return replace(selection, index=None, rollout_index=None, probability=sure)
        return replace(selection, probability=sure)

    def select(self, group: RolloutGroup, *, abstain_below: float | None = None) -> Selection:
        """Select in the way that this was fitted for, and say how sure the pick is."""
        return self.judge(select(group, **self.options), abstain_below=abstain_below)

    def check_model(self, model: str, checkpoints: Sequence[str | None]) -> str:
        """Raise an InputError if rollouts are of other weights; a note where nobody can tell, else an empty text."""
        known = {checkpoint for checkpoint in checkpoints if checkpoint is not None}
        if self.checkpoint is not None and known and known != {self.checkpoint}:
            other = min(known - {self.checkpoint})
            raise InputError(
                f"this calibration was fitted for {self.model} ({self.checkpoint[:12]}), the rollouts are of {model} "
                f"({other[:12]}): fit one for them with radmoe calibrate"
            )
        if self.checkpoint is None or not known or None in checkpoints:
            same = "has the same name" if model == self.model else f"is called {model}"
            return f"nobody recorded whether the weights are those of the calibration's {self.model}; the model {same}"
        return ""

    def to_json(self) -> dict[str, Any]:
        body = {"format": FORMAT, "version": VERSION, "features": list(FEATURES)}
        return body | asdict(self)

    @classmethod
    def from_json(cls, body: Any) -> Self:
        """The calibration that `to_json` wrote. Raises an InputError that names what is wrong with another document."""
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise InputError(f"this is no calibration: it lacks format {FORMAT!r}; radmoe calibrate writes one")
        if body.get("version") != VERSION or body.get("features") != list(FEATURES):
            raise InputError(
                f"this calibration is of version {body.get('version')!r} or has other features: fit it anew"
            )
        try:
            kinds = {kind: _fit(own) for kind, own in body["kinds"].items()}
            checkpoint, options = body["checkpoint"], dict(body["options"])
            whole = cls(str(body["model"]), checkpoint, options, kinds, tuple(map(str, body["pools"])))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this calibration cannot be read ({error}): fit it anew with radmoe calibrate") from None
        if not kinds or set(kinds) - set(KINDS) or set(options) - set(OPTIONS):
            raise InputError(
                "this calibration has unknown kinds or options, or none: fit it anew with radmoe calibrate"
            )
        if checkpoint is not None and not isinstance(checkpoint, str):
            raise InputError(f"the checkpoint of this calibration is {checkpoint!r}, it must be a text or null")
        return whole


def _fit(body: dict[str, Any]) -> Fit:
    numbers = {name: tuple(map(float, body[name])) for name in ("weights", "means", "scales")}
    low, high = map(int, body["rollouts"])
    own = body["dense"]
    dense = Dense(float(own["density"]), int(own["picks"]), int(own["wrong"]))
    measured = {str(name): float(value) for name, value in body["measured"].items()}
    return Fit(
        float(body["intercept"]),
        **numbers,
        picks=int(body["picks"]),
        right=int(body["right"]),
        rollouts=(low, high),
        dense=dense,
        measured=measured,
    )


def load_calibration(path: str | Path) -> Calibration:
    """Read a calibration file. Raises an InputError of one line for a file that is not there or is none."""
    try:
        body = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the calibration {path}: {error.strerror}: check the path") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}): radmoe calibrate writes a calibration") from None
    try:
        return Calibration.from_json(body)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def shipped(checkpoint: str | None) -> Calibration | None:
    """The calibration that ships for a checkpoint, by its fingerprint; None where there is none."""
    if checkpoint is None or not checkpoint.isalnum():
        return None
    file = SHELF / f"{checkpoint}.json"
    return load_calibration(file) if file.is_file() else None


def sure_ranks(selections: Sequence[Selection]) -> list[float | None]:
    """The rank of each pick among those of its kind, 1 for the surest; None where there is no pick.

    Picks are ranked by their density alone, the feature that said most on the lab's pools (docs/calibration.md). Equal
    densities share their mean rank. A rank compares picks of one pool; it is no probability.
    """
    places: dict[Kind | None, list[int]] = {}
    for i, selection in enumerate(selections):
        if selection.index is not None:
            places.setdefault(selection.kind, []).append(i)
    out: list[float | None] = [None] * len(selections)
    for own in places.values():
        for i, rank in zip(own, ranks(np.array([-features(selections[i])[0] for i in own])), strict=True):
            out[i] = float(rank)
    return out
