"""The last column of `radmoe select`: the probability that each pick is right, or its rank by density, and notes on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from radmoe.errors import InputError

if TYPE_CHECKING:
    from radmoe.pool import Pool
    from radmoe.selection.calibration import Match
    from radmoe.selection.rule import Rule
    from radmoe.types import RolloutGroup, Selection

ABSENT = "--"


@dataclass(frozen=True)
class Judged:
    """A selection, with its rank by density if no probability was asked for."""

    selection: Selection
    rank: int | None = None

    def __str__(self) -> str:
        if self.rank is not None:
            return _ordinal(self.rank)
        if self.selection.probability is not None:
            return f"{self.selection.probability:.2f}{' dense' if self.selection.dense else ''}"
        return ABSENT if self.selection.index is not None else ""


@dataclass(frozen=True)
class Sureness:
    """The calibration for a pool, if there is one, and the rule to select by. `ranked` means that picks get ranks
    instead of probabilities.
    """

    match: Match
    rule: Rule
    ranked: bool = False
    warning: str = ""
    abstain_below: float | None = None

    @property
    def heading(self) -> str:
        """The heading of the column."""
        return "rank" if self.ranked else "sure"

    def judge(self, selection: Selection, group: RolloutGroup) -> Judged:
        """Add to a selection from this group its probability, or the reason why it has none."""
        return Judged(self.match.judge(selection, group, abstain_below=self.abstain_below))

    def column(self, judged: Sequence[Judged]) -> list[Judged]:
        """All judged selections of a pool, with ranks if no probabilities were asked for."""
        from radmoe.selection.calibration import density_ranks

        if not self.ranked:
            return list(judged)
        selections = [one.selection for one in judged]
        return [Judged(s, rank=rank) for s, rank in zip(selections, density_ranks(selections), strict=True)]

    def notes(self, selections: Sequence[Selection]) -> list[str]:
        """The sentences to print below the table, which explain the last column."""
        if self.ranked:
            return [
                "rank: the place of the pick by mean similarity among the picks of its kind in this pool. It is no probability: "
                f"{self.match.reason} (radmoe calibrate fits one on graded pools)."
            ]
        notes = []
        if any(s.probability is not None for s in selections):
            notes.append(f"sure: the probability that the pick is right, by {self.match.source}.")
        if self.warning:
            notes.append(f"Careful: {self.warning}.")
        for reason, count in Counter(s.probability_reason for s in selections if s.probability_reason).items():
            notes.append(f"{ABSENT}: no probability for {count} of {len(selections)} problems, {reason}.")
        calibration = self.match.calibration
        for kind, fit in {} if calibration is None else calibration.kinds.items():
            sizes = [len(s.located) for s in selections if s.kind == kind and s.probability is not None]
            if not sizes:
                continue
            if not fit.tells:
                notes.append(
                    f"Careful ({kind}): on other problems these probabilities were no better than the share of right picks in "
                    "each task, so they tell sure picks from others little or not at all."
                )
            notes.append(
                f"dense ({kind}): {fit.near(max(sizes)).dense}. Rollouts that share one error agree as rollouts do that are "
                "right, and routing cannot tell them apart."
            )
        return notes


def find_sureness(pool: Pool, file: Path | None, abstain_below: float | None, rule: Rule) -> Sureness:
    """Find the calibration to use: the given file, else the one that ships for such rollouts, if it fits the given
    `rule`.

    The rule of a calibration file takes the given one's place. Raises an InputError if the two disagree, or if picks
    below a probability shall be abstained from and no pick can have a probability.
    """
    from radmoe.selection.calibration import find_calibration, load_calibration
    from radmoe.selection.origin import origin_of

    if abstain_below is not None and not 0 <= abstain_below <= 1:
        raise InputError(f"--abstain-below is a probability from 0 to 1, got {abstain_below}")
    warning = ""
    if file is not None:
        calibration = load_calibration(file)
        fitted = calibration.rule.to_json()
        other = [name for name, value in rule.to_json().items() if name != "seed" and fitted.get(name) != value]
        if other:
            raise InputError(
                f"{file} was fitted for {calibration.rule}, --{other[0].replace('_', '-')} is another way to select: "
                "leave it out, or fit a calibration with it"
            )
        rule = calibration.rule
        match = find_calibration(pool, calibration, rule=rule, source=str(file))
        task = origin_of(pool).task
        if match.calibration is not None and task is not None and task not in calibration.tasks:
            warning = (
                f"it was fitted on {', '.join(calibration.tasks)}, and probabilities are too high on harder problems"
            )
    else:
        match = find_calibration(pool, rule=rule)
    if abstain_below is not None and match.calibration is None:
        raise InputError(
            f"--abstain-below needs probabilities, and there are none: {match.reason}; give --calibration FILE for such "
            "rollouts (radmoe calibrate fits one on graded pools)"
        )
    ranked = file is None and match.calibration is None
    return Sureness(match, rule, ranked, warning, abstain_below)


def _ordinal(place: int) -> str:
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{ending}"
