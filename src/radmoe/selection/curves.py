"""The probability that a pick is right, as a function of one similarity and the number of rollouts: what `radmoe calibrate` fits.

The similarity is the pick's density, or how much all rollouts of the problem agree at some readout (`Fit.evidence`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from radmoe.errors import InputError

MOST = 2**31  # of anything that a calibration counts or measures
LOCATED = 0.9  # this share of located rollouts is enough for a number, whatever more the fitted problems had
GAIN = 0.001  # by which the Brier score must be below that of the base rate, or probabilities tell nothing more


def closeness(similarity: float) -> float:
    """A mean similarity as curves take it: minus the logarithm of its distance from 1, which counts from 0.001 up."""
    return -math.log(max(1 - similarity, 0.001))


@dataclass(frozen=True)
class Dense:
    """The third of the graded picks with the highest similarity: from which similarity on, how many, and how many were wrong."""

    density: float
    picks: int
    wrong: int

    def __post_init__(self) -> None:
        if self.picks < 1 or not 0 <= self.wrong <= self.picks:
            raise InputError(f"{self.wrong} wrong of {self.picks} dense picks cannot be")

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
class Curve:
    """The probability among so many `rollouts`: the logistic function of intercept + slope (closeness - mean) / scale.

    `low` and `high` are the smallest and the largest closeness (of a similarity) that it was fitted on.
    """

    rollouts: int
    intercept: float
    slope: float
    mean: float
    scale: float
    low: float
    high: float
    dense: Dense

    def __post_init__(self) -> None:
        numbers = (self.intercept, self.slope, self.mean, self.scale, self.low, self.high)
        if not all(map(math.isfinite, numbers)) or self.slope < 0 or self.scale <= 0 or self.low > self.high:
            raise InputError("a curve needs finite numbers, a slope of 0 or more, a scale above 0, and low up to high")


@dataclass(frozen=True)
class Fit:
    """The curves of one kind, by rising number of rollouts.

    `evidence` is the readout at which the rollouts of a problem are compared, and the similarity then is the mean of all of them to
    their nearest three; empty, it is the pick's density. It was fitted on the picks of so many `problems`, of which at least the
    share `located` of the rollouts was located, and `measured` has what cross-validation said of it. No probability is nearer to 0 or 1 than Laplace's rule of succession allows
    after so many problems.
    """

    curves: tuple[Curve, ...]
    problems: int
    located: float
    measured: dict[str, float] = field(default_factory=dict)
    evidence: str = ""

    def __post_init__(self) -> None:
        sizes = [curve.rollouts for curve in self.curves]
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 2:
            raise InputError(f"the curves of a fit must be of rising numbers of rollouts from 2 up, got {sizes}")
        if self.problems < 1 or not 0 <= self.located <= 1:
            raise InputError("a fit needs problems, and a share of located rollouts from 0 to 1")

    @property
    def rollouts(self) -> tuple[int, int]:
        """The smallest and the largest number of rollouts it was fitted on."""
        return self.curves[0].rollouts, self.curves[-1].rollouts

    @property
    def tells(self) -> bool:
        """Whether the probabilities beat a constant per task, the share of its picks that are right, in cross-validation."""
        return self.measured.get("brier", 1.0) <= self.measured.get("brier_base", 0.0) - GAIN

    def near(self, rollouts: int) -> Curve:
        """The curve that was fitted on the number of rollouts nearest to this one."""
        return min(self.curves, key=lambda curve: abs(math.log2(curve.rollouts / rollouts)))

    def _at(self, rollouts: int, name: str) -> float:
        """A number of the curves, interpolated between those of fewer and more rollouts."""
        sizes = np.log2([curve.rollouts for curve in self.curves])
        return float(np.interp(math.log2(rollouts), sizes, [getattr(curve, name) for curve in self.curves]))

    @property
    def what(self) -> str:
        """The similarity that the curves take, in words."""
        return f"mean similarity of all rollouts at {self.evidence}" if self.evidence else "pick's mean similarity"

    def outside(self, rollouts: int, located: float, similarity: float) -> str:
        """Why there is no number for such a pick; empty where there is one."""
        low, high = self.rollouts
        if not low <= rollouts <= high:
            span = f"{low} to {high}" if low < high else f"{low}"
            return f"there are {rollouts} rollouts, and it was fitted for {span}"
        least = min(self.located, LOCATED)
        if located < least:
            return f"{located:.0%} of the rollouts are located, and it was fitted for {least:.0%} or more"
        if math.isnan(similarity):
            return f"fewer than two rollouts can be compared at {self.evidence}"
        lowest, highest = self._at(rollouts, "low"), self._at(rollouts, "high")
        if not lowest <= closeness(similarity) <= highest:
            span = f"{1 - math.exp(-lowest):.3f} to {1 - math.exp(-highest):.3f}"
            return f"the {self.what} is {similarity:.3f}, and it was fitted for {span}"
        return ""

    def probability(self, rollouts: int, similarity: float) -> float:
        """The probability that a pick is right, among so many rollouts and at this similarity."""
        intercept, slope, mean, scale = (self._at(rollouts, name) for name in ("intercept", "slope", "mean", "scale"))
        total = intercept + slope * (closeness(similarity) - mean) / scale
        edge = 1 / (self.problems + 2)
        return min(max(1 / (1 + math.exp(-max(-500.0, min(500.0, total)))), edge), 1 - edge)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        """The fit of a calibration's file. Raises KeyError, TypeError or ValueError for what cannot be one."""
        curves = []
        for own in body["curves"]:
            dense = Dense(
                _number(own["dense"]["density"]), _count(own["dense"]["picks"]), _count(own["dense"]["wrong"])
            )
            names = [one.name for one in fields(Curve) if one.name not in ("rollouts", "dense")]
            curves.append(Curve(_count(own["rollouts"]), **{name: _number(own[name]) for name in names}, dense=dense))
        measured = {str(name): float(value) for name, value in body["measured"].items()}
        evidence = body["evidence"]
        if not isinstance(evidence, str):
            raise ValueError(f"{evidence!r:.60} is no readout")
        return cls(tuple(curves), _count(body["problems"]), _number(body["located"]), measured, evidence)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < MOST:
        raise ValueError(f"{value!r:.60} is no number of things")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MOST:
        raise ValueError(f"{value!r:.60} is not a finite number")
    return float(value)
