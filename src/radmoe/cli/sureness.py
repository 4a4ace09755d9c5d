"""How sure picks are, for `radmoe select`: a calibration's probabilities, or else ranks, and what to say about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radmoe.errors import InputError

if TYPE_CHECKING:
    from radmoe.certainty import Calibration
    from radmoe.pool import Pool
    from radmoe.types import Selection


@dataclass(frozen=True)
class Judged:
    """A selection, and its rank among the picks of its kind where there is no calibration."""

    selection: Selection
    rank: float | None = None
    of: int = 0
    dense: bool | None = None

    def __str__(self) -> str:
        if self.selection.probability is not None:
            return f"{self.selection.probability:.2f}{' dense' if self.dense else ''}"
        return "" if self.rank is None else f"{self.rank:g} of {self.of}"

    def fields(self) -> dict[str, Any]:
        """What JSON says of it."""
        if self.dense is None:
            return {}
        return {"probability": self.selection.probability, "dense": self.dense}


@dataclass(frozen=True)
class Sureness:
    """A calibration or none, the options of `select` that it is for, and where it comes from."""

    calibration: Calibration | None
    options: dict[str, Any]
    source: str = ""
    warning: str = ""
    abstain_below: float | None = None

    def judge(self, selection: Selection) -> Judged:
        """A selection with its probability, if there is a calibration."""
        if self.calibration is None:
            return Judged(selection)
        known = self.calibration.judge(selection, abstain_below=self.abstain_below)
        return Judged(known, dense=self.calibration.dense(selection))

    def ranked(self, judged: Sequence[Judged]) -> list[Judged]:
        """All selections of a pool, with their ranks where there is no calibration."""
        from radmoe.certainty import sure_ranks

        if self.calibration is not None:
            return list(judged)
        selections = [one.selection for one in judged]
        picked = Counter(s.kind for s in selections if s.index is not None)
        ranks = sure_ranks(selections)
        return [Judged(s, rank, picked[s.kind]) for s, rank in zip(selections, ranks, strict=True)]

    def notes(self, selections: Sequence[Selection]) -> list[str]:
        """What a reader must know about the last column."""
        if self.calibration is None:
            return [
                "sure: the rank of a pick's density among the picks of its kind in this pool, 1 is the surest. It is no "
                "probability; radmoe calibrate fits one on graded pools of this model."
            ]
        notes = [f"sure: the probability that the pick is right, by {self.source}."]
        if self.warning:
            notes.append(f"Careful: {self.warning}.")
        for kind, fit in self.calibration.kinds.items():
            own = [s for s in selections if s.kind == kind and s.probability is not None]
            if not own:
                continue
            scored = [int((s.density == s.density).sum()) for s in own]
            low, high = fit.rollouts
            if min(scored) < low or max(scored) > high:
                notes.append(
                    f"Careful: {kind} was fitted on {low} to {high} scored rollouts per problem, here there are "
                    f"{min(scored)} to {max(scored)}."
                )
            notes.append(
                f"dense ({kind}): {fit.dense}. Rollouts that share one error agree as rollouts do that are right, and "
                "routing cannot tell them apart."
            )
        return notes


def find_sureness(
    pool: Pool, file: Path | None, abstain_below: float | None, given: dict[str, Any], *, special: bool
) -> Sureness:
    """The calibration to use: the file, else the one that ships for the pool's weights if it fits what was `given`.

    `given` are the options of `select`, None where nobody gave one; a calibration's own take their place. `special` says
    that layers or a budget were given, which no calibration is for.
    """
    from radmoe.certainty import load_calibration, shipped

    options = {name: value for name, value in given.items() if value is not None}
    if abstain_below is not None and not 0 <= abstain_below <= 1:
        raise InputError(f"--abstain-below is a probability from 0 to 1, got {abstain_below}")
    checkpoints = [where.get("checkpoint") for where in pool.provenance.values()]
    if file is not None:
        calibration = load_calibration(file)
        warning = calibration.check_model(pool.model, checkpoints)
        other = [name for name, value in options.items() if calibration.options.get(name) != value]
        if other or special:
            name = other[0] if other else "layers or --budget"
            raise InputError(
                f"{file} was fitted for {_described(calibration.options)}, --{name} is another way to select: "
                "leave it out, or fit a calibration with it"
            )
        return Sureness(calibration, calibration.options, str(file), warning, abstain_below)
    found = shipped(checkpoints[0]) if len(set(checkpoints)) == 1 else None
    if found is not None and not special and found.options == options:
        return Sureness(found, options, f"the calibration that ships for {found.model}", "", abstain_below)
    if abstain_below is not None:
        raise InputError(
            "--abstain-below needs probabilities, and there is no calibration for this model and way to select: give "
            "--calibration FILE (radmoe calibrate fits one on graded pools)"
        )
    return Sureness(None, options)


def _described(options: dict[str, Any]) -> str:
    return ", ".join(f"--{name} {value}" for name, value in options.items()) or "the defaults"
