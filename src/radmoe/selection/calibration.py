"""How sure is a pick: the probability that it is right, where a calibration was fitted for such picks, and else nothing.

A calibration is fitted on graded pools (`radmoe calibrate`, in `radmoe_studies.calibration.fit`) and applied here, where no
label can be seen. It is for one checkpoint in one style, sampled in one way and selected by one rule. For each kind of answer it
has a curve per number of rollouts N: a logistic function of the pick's density, or of how much all rollouts agree at a readout
before the answer, which never falls as that rises. Between two fitted N the curve is interpolated. Outside of what was fitted
there is no number but a reason.

What a calibration cannot do: rollouts that share one error agree as rollouts do that are right. `Curve.dense` says how often
the densest picks of the graded pools were wrong; nothing here can tell which ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError, RolloutError
from radmoe.selection.curves import Fit
from radmoe.selection.kernels import knn_density
from radmoe.selection.origin import Origin, Recorded, origin_of, shown, to_float
from radmoe.selection.readout import Readout
from radmoe.selection.rule import Rule
from radmoe.selection.selector import select, similarity
from radmoe.system.foreign import read_file
from radmoe.types import KINDS, Kind, RolloutGroup, Selection

FORMAT, VERSION = "radmoe-calibration", 4

NEAREST = 3  # of each rollout, whose similarity says how much all rollouts of a problem agree

SHELF = Path(__file__).parent / "calibrations"  # where calibrations lie that ship with the package


@dataclass(frozen=True)
class Calibration:
    """How sure a pick is, for rollouts of one origin, selected by one rule.

    `tasks` are the data sets it was fitted on and `pools` the checksums of their pools.
    """

    origin: Origin
    rule: Rule
    kinds: dict[Kind, Fit]
    tasks: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for readout in (self.rule.readout, *(fit.evidence or None for fit in self.kinds.values())):
            if readout is not None and Readout.parse(readout).is_regex:
                raise InputError(
                    f"a calibration is a file, and no file may choose the regular expression {readout!r:.60}"
                )

    def judge(self, selection: Selection, group: RolloutGroup, *, abstain_below: float | None = None) -> Selection:
        """The selection with its probability and whether it is `dense`, or `probability_reason` where it has none.

        `group` is what was selected from. With `abstain_below` there is no pick where its probability is smaller. Raises an
        InputError if the pick has none, for then nobody can say whether it is.
        """
        if abstain_below is not None and not 0 <= abstain_below <= 1:
            raise InputError(f"abstain_below is a probability from 0 to 1, got {abstain_below}")
        if selection.index is None or selection.kind is None:
            return selection
        fit = self.kinds.get(selection.kind)
        if fit is None:
            return self._unknown(
                selection, f"the kind is {selection.kind}, and it was fitted for {', '.join(self.kinds)}", abstain_below
            )
        n, located = len(selection.located), float(selection.located.mean())
        try:
            own = evidence(selection, group, self.rule, fit.evidence)
        except RolloutError:
            return self._unknown(selection, f"the routing that {fit.evidence} reads was not kept", abstain_below)
        if reason := fit.outside(n, located, own):
            return self._unknown(selection, reason, abstain_below)
        sure, dense = fit.probability(n, own), own >= fit.near(n).dense.density
        if abstain_below is not None and sure < abstain_below:
            return replace(selection, index=None, rollout_index=None, probability=sure, dense=dense)
        return replace(selection, probability=sure, dense=dense)

    def _unknown(self, selection: Selection, reason: str, abstain_below: float | None) -> Selection:
        reason = f"outside of what the calibration of {shown(self.origin.model)} was fitted for: {reason}"
        return unknown(selection, reason, abstain_below)

    def select(self, group: RolloutGroup, *, abstain_below: float | None = None) -> Selection:
        """Select in the way that this was fitted for, and say how sure the pick is.

        A group does not say which model it is of, in which style and how it was sampled: `find_calibration` asks its pool.
        """
        return self.judge(select(group, rule=self.rule), group, abstain_below=abstain_below)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION} | asdict(self) | {"rule": self.rule.to_json()}

    @classmethod
    def from_json(cls, body: Any) -> Self:
        """The calibration that `to_json` wrote. Raises an InputError that names what is wrong with another document."""
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise InputError(f"this is no calibration: it lacks format {FORMAT!r}; radmoe calibrate writes one")
        if body.get("version") != VERSION:
            raise InputError(f"this calibration is of version {body.get('version')!r}, {VERSION} is read: fit it anew")
        try:
            origin = _origin(body["origin"])
            kinds = {kind: Fit.from_json(own) for kind, own in body["kinds"].items()}
            rule, tasks, pools = Rule.from_json(body["rule"]), map(str, body["tasks"]), map(str, body["pools"])
            whole = cls(origin, rule, kinds, tuple(tasks), tuple(pools))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"this calibration cannot be read ({error}): fit it anew with radmoe calibrate") from None
        if not kinds or set(kinds) - set(KINDS):
            raise InputError("this calibration has unknown kinds, or none: fit it anew with radmoe calibrate")
        return whole


def _origin(body: dict[str, Any]) -> Origin:
    texts = {name: body[name] for name in ("model", "checkpoint", "style", "routing", "task")}
    if any(value is not None and not isinstance(value, str) for value in texts.values()) or body["model"] is None:
        raise ValueError("its origin must consist of texts or null")
    temperature, top_p = to_float(body["temperature"]), to_float(body["top_p"])
    return Origin(**texts, temperature=temperature, top_p=top_p, adaptive=bool(body["adaptive"]))


def evidence(selection: Selection, group: RolloutGroup, rule: Rule, readout: str) -> float:
    """The similarity that a curve takes: the pick's density, or how much the rollouts of its problem agree at a readout.

    That is the mean similarity of all located rollouts to their nearest three, NaN where fewer than two are located.
    """
    assert selection.index is not None
    if not readout:
        return float(selection.density[selection.index])
    setting = replace(rule.settle(selection.kind, len(group)), readout=readout, kernel="weighted")
    return agreement(similarity(group, setting)[0])


def agreement(S: NDArray[np.float32]) -> float:
    """The mean similarity of n rollouts to their nearest three, from their similarities [n, n]; NaN where n is below 2."""
    k = min(NEAREST, len(S) - 1)
    return float(knn_density(S, k).mean()) / k if k > 0 else math.nan


def unknown(selection: Selection, reason: str, abstain_below: float | None) -> Selection:
    """A selection that has no probability, for a reason; an InputError where one is needed to know whether to abstain."""
    if abstain_below is not None and selection.index is not None:
        raise InputError(
            f"abstaining below {abstain_below:g} needs a probability, and there is none: {reason}; leave it out, or fit a "
            "calibration for such picks with radmoe calibrate"
        )
    return replace(selection, probability_reason=reason)


def load_calibration(path: str | Path) -> Calibration:
    """Read a calibration file. Raises an InputError of one line for a file that is not there or is none."""
    content = read_file(path, "a calibration, which radmoe calibrate writes")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}): radmoe calibrate writes a calibration") from None
    try:
        return Calibration.from_json(body)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def shelf_name(origin: Origin) -> str:
    """The name of the file of a calibration that ships, by what tells it from the others."""
    parts = (f"{origin.checkpoint}"[:16], origin.style, f"t{shown(origin.temperature)}", f"p{shown(origin.top_p)}")
    return "-".join(part for part in parts if part) + ".json"


def shipped(checkpoint: str | None) -> list[Calibration]:
    """The calibrations that ship for a checkpoint: one for each style and way of sampling."""
    if checkpoint is None or not checkpoint.isalnum():
        return []
    found = [load_calibration(file) for file in sorted(SHELF.glob(f"{checkpoint[:16]}-*.json"))]
    return [calibration for calibration in found if calibration.origin.checkpoint == checkpoint]


@dataclass(frozen=True)
class Match:
    """The calibration that fits some rollouts and its `source`; where none fits, `calibration` is None and `reason` says why."""

    calibration: Calibration | None
    source: str = ""
    reason: str = ""

    def judge(self, selection: Selection, group: RolloutGroup, *, abstain_below: float | None = None) -> Selection:
        """The selection from this group with its probability, or with the reason why it has none."""
        if self.calibration is None:
            return unknown(selection, self.reason, abstain_below)
        return self.calibration.judge(selection, group, abstain_below=abstain_below)


def find_calibration(
    pool: Recorded | Origin,
    calibration: Calibration | None = None,
    *,
    rule: Rule | None = None,
    source: str = "the calibration that was given",
) -> Match:
    """The calibration for picks of a pool (or of rollouts of an origin) that are made by this rule.

    That is the given one, or else the one that ships for the pool's checkpoint, style and sampling, if it is for this way to
    select and for the pool's task. The command line, the server and Python ask here.
    """
    origin = pool if isinstance(pool, Origin) else origin_of(pool)
    rule = rule or Rule()
    if calibration is not None:
        reason = calibration.origin.difference(origin) or _other_way(calibration, rule)
        return Match(None, reason=f"{source} is for other rollouts: {reason}") if reason else Match(calibration, source)
    known = shipped(origin.checkpoint)
    if not known:
        return Match(None, reason=f"no calibration ships for the weights of {shown(origin.model)}")
    same = [own for own in known if not own.origin.difference(origin)]
    if not same:
        there = "; ".join(dict.fromkeys(str(own.origin) for own in known))
        return Match(None, reason=f"calibrations ship for {there}; these rollouts are of {origin}")
    for own in same:
        if origin.task is not None and origin.task not in own.tasks:
            return Match(
                None,
                reason=f"the calibration that ships was fitted on {', '.join(own.tasks)}, not {shown(origin.task)}",
            )
        if not _other_way(own, rule):
            return Match(own, f"the calibration that ships for {own.origin}")
    return Match(None, reason=f"the calibration that ships is for another way to select ({same[0].rule})")


def _other_way(calibration: Calibration, rule: Rule) -> str:
    """Why a rule makes other picks than those that a calibration is for; empty where it makes the same."""
    for kind in calibration.kinds:
        fitted, other = (replace(one, seed=0).settle(kind, 64) for one in (calibration.rule, rule))
        if fitted != other:
            return f"it was fitted for {calibration.rule}, and the way to select is {rule}"
    return ""


def density_ranks(selections: Sequence[Selection]) -> list[int | None]:
    """The place of each pick among those of its kind by falling density, 1 for the densest; None where there is no pick.

    Equal densities share their place. A rank compares picks of one pool; it is no probability.
    """
    densities = [None if s.index is None else float(s.density[s.index]) for s in selections]
    own: dict[Kind | None, list[float]] = {}
    for selection, density in zip(selections, densities, strict=True):
        if density is not None:
            own.setdefault(selection.kind, []).append(density)
    return [
        None if density is None else 1 + sum(other > density for other in own[selection.kind])
        for selection, density in zip(selections, densities, strict=True)
    ]
