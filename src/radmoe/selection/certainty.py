"""How sure is a pick: the probability that it is right, where a calibration was fitted for such picks, and else nothing.

A calibration is fitted on graded pools (`radmoe calibrate`, in `radmoe.evaluation.calibrate`) and applied here, where no
label can be seen. It is for one checkpoint in one style, sampled in one way and selected in one way. For each kind of answer it
has a curve per number of rollouts N: a logistic function of the pick's density, which never falls as the density rises.
Between two fitted N the curve is interpolated. Outside of what was fitted there is no number but a reason.

What a calibration cannot do: rollouts that share one error agree as rollouts do that are right. `Curve.dense` says how often
the densest picks of the graded pools were wrong; nothing here can tell which ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from radmoe.errors import InputError
from radmoe.selection.confidence import WINDOW
from radmoe.selection.readout import Readout
from radmoe.selection.selector import rule_for, select
from radmoe.system.foreign import read_file
from radmoe.system.printing import shortened
from radmoe.types import KINDS, Kind, RolloutGroup, Selection

FORMAT, VERSION = "radmoe-calibration", 2
RULE_OPTIONS = ("preset", "readout", "k", "kernel", "fusion", "confidence", "compare")
OPTIONS = (*RULE_OPTIONS, "confidence_window")  # of `select`, that a calibration is fitted for
_NUMBERS = ("k", "confidence_window")  # those that are numbers; the others are names
_MOST = 2**31  # of anything that a calibration counts or measures
LOCATED = 0.9  # this share of located rollouts is enough for a number, whatever more the fitted problems had
GAIN = 0.001  # by which the Brier score must be below that of the base rate, or probabilities tell nothing more

SHELF = Path(__file__).parent / "calibrations"  # where calibrations lie that ship with the package


class Recorded(Protocol):
    """What `origin_of` reads of a pool."""

    model: str
    style: str | None
    task: str | None
    sampling: dict[str, Any]
    meta: dict[str, Any]

    @property
    def provenance(self) -> dict[str, dict[str, Any]]: ...


@dataclass(frozen=True)
class Origin:
    """How rollouts came about, as far as it was recorded; None where it was not.

    `checkpoint` is the fingerprint of the weights (`engines.checkpoint.fingerprint`), `routing` says which part of the router's
    output is there, and `adaptive` rollouts were sampled until their pick was settled. `task` is the data set, which no calibration is refused for but a shipped one.
    """

    model: str
    checkpoint: str | None = None
    style: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    routing: str = "all layers"
    adaptive: bool = False
    task: str | None = field(default=None, compare=False)

    def difference(self, other: Origin) -> str:
        """The first thing in which rollouts of another origin differ from these, as a sentence; empty where none does."""
        if self.checkpoint is None and other.checkpoint is None:
            if self.model != other.model:
                return f"it was fitted for {_shown(self.model)}, these rollouts are of {_shown(other.model)}"
        elif self.checkpoint != other.checkpoint:
            return (
                f"it was fitted for {_shown(self.model)} ({_weights(self.checkpoint)}), these rollouts are of "
                f"{_shown(other.model)} ({_weights(other.checkpoint)})"
            )
        for name in ("style", "temperature", "top_p", "routing"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                word = name.replace("_", "-")
                return f"it was fitted for {word} {_shown(mine)}, these rollouts have {word} {_shown(theirs)}"
        if self.adaptive != other.adaptive:
            one, two = ("sampled until the pick was settled", "of a fixed number")
            mine, theirs = (one, two) if self.adaptive else (two, one)
            return f"it was fitted for rollouts {mine}, these are {theirs}"
        return ""

    def __str__(self) -> str:
        said = [("style", self.style), ("temperature", self.temperature), ("top-p", self.top_p)]
        special = [] if self.routing == "all layers" else [self.routing]
        special += ["sampled until the pick was settled"] if self.adaptive else []
        return ", ".join([_shown(self.model), *(f"{name} {_shown(value)}" for name, value in said), *special])


def _shown(value: object) -> str:
    if value is None:
        return "not recorded"
    return f"{value:g}" if isinstance(value, float) else shortened(str(value), 60)


def _weights(checkpoint: str | None) -> str:
    return "weights not recorded" if checkpoint is None else shortened(checkpoint[:12])


def origin_of(pool: Recorded) -> Origin:
    """How the rollouts of a pool came about, by its run record."""
    checkpoints = {_text(where.get("checkpoint")) for where in pool.provenance.values()}
    settings = pool.sampling.get("sampled")  # those of the sampling, where a pool was replayed
    settings = settings if isinstance(settings, dict) else pool.sampling
    layers = (pool.meta["run"].get("profile") or {}).get("layers")
    return Origin(
        pool.model,
        " and ".join(sorted(c or "unknown" for c in checkpoints))
        if len(checkpoints) > 1
        else next(iter(checkpoints), None),
        pool.style,
        _float(settings.get("temperature")),
        _float(settings.get("top_p")),
        routing_kept(layers, weights="moe_topk_expert_weights" in pool.meta.get("columns", ())),
        pool.sampling.get("adaptive") is not None,
        pool.task,
    )


def routing_kept(layers: Sequence[int] | None, *, weights: bool) -> str:
    """Which part of the router's output is there, in words: None stands for all layers."""
    kept = "all layers" if layers is None else f"layers {','.join(map(str, layers))}"
    return kept if weights else f"{kept} without weights"


def _float(value: Any) -> float | None:
    """A number of a file that anybody may have written; None where it is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def mean_similarity(selection: Selection) -> float:
    """The mean similarity of the pick to its k nearest neighbours: its density, per neighbour."""
    if selection.index is None:
        raise InputError("a selection that abstained has no pick to be sure of")
    return float(selection.density[selection.index]) / max(selection.k, 1)


def closeness(similarity: float) -> float:
    """A mean similarity as curves take it: minus the logarithm of its distance from 1, which counts from 0.001 up."""
    return -math.log(max(1 - similarity, 0.001))


@dataclass(frozen=True)
class Dense:
    """The densest third of the graded picks: from which mean similarity on, how many picks, and how many were wrong."""

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

    `low` and `high` are the smallest and the largest closeness (of the pick's mean similarity) that it was fitted on.
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

    It was fitted on the picks of so many `problems`, of which at least the share `located` of the rollouts was located, and
    `measured` has what cross-validation said of it. No probability is nearer to 0 or 1 than Laplace's rule of succession allows
    after so many problems.
    """

    curves: tuple[Curve, ...]
    problems: int
    located: float
    measured: dict[str, float] = field(default_factory=dict)

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
        """Whether cross-validation found the probabilities better than the share of right picks in each task."""
        return self.measured.get("brier", 1.0) <= self.measured.get("brier_base", 0.0) - GAIN

    def near(self, rollouts: int) -> Curve:
        """The curve of the nearest number of rollouts."""
        return min(self.curves, key=lambda curve: abs(math.log2(curve.rollouts / rollouts)))

    def _at(self, rollouts: int, name: str) -> float:
        """A number of the curves, interpolated between those of fewer and more rollouts."""
        sizes = np.log2([curve.rollouts for curve in self.curves])
        return float(np.interp(math.log2(rollouts), sizes, [getattr(curve, name) for curve in self.curves]))

    def outside(self, rollouts: int, located: float, density: float) -> str:
        """Why there is no number for such a pick; empty where there is one."""
        low, high = self.rollouts
        if not low <= rollouts <= high:
            span = f"{low} to {high}" if low < high else f"{low}"
            return f"there are {rollouts} rollouts, and it was fitted for {span}"
        least = min(self.located, LOCATED)
        if located < least:
            return f"{located:.0%} of the rollouts are located, and it was fitted for {least:.0%} or more"
        scale, own = self._at(rollouts, "scale"), closeness(density)
        lowest, highest = self._at(rollouts, "low"), self._at(rollouts, "high")
        if not lowest - scale <= own <= highest + scale:
            span = f"{1 - math.exp(-lowest):.3f} to {1 - math.exp(-highest):.3f}"
            return f"the pick's mean similarity is {density:.3f}, and it was fitted for {span}"
        return ""

    def probability(self, rollouts: int, density: float) -> float:
        """The probability that a pick of this density among so many rollouts is right."""
        intercept, slope, mean, scale = (self._at(rollouts, name) for name in ("intercept", "slope", "mean", "scale"))
        total = intercept + slope * (closeness(density) - mean) / scale
        edge = 1 / (self.problems + 2)
        return min(max(1 / (1 + math.exp(-max(-500.0, min(500.0, total)))), edge), 1 - edge)


@dataclass(frozen=True)
class Calibration:
    """How sure a pick is, for rollouts of one origin, selected in one way.

    `options` are those of `select`, `tasks` the data sets it was fitted on and `pools` the checksums of their pools.
    """

    origin: Origin
    options: dict[str, Any]
    kinds: dict[Kind, Fit]
    tasks: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        readout = self.options.get("readout")
        if isinstance(readout, str) and Readout.parse(readout).is_regex:
            raise InputError(f"a calibration is a file, and no file may choose the regular expression {readout!r:.60}")

    def outside(self, selection: Selection) -> str:
        """Why the pick has no probability; empty where it has one, and where there is no pick."""
        if selection.index is None:
            return ""
        if selection.kind not in self.kinds:
            return f"the kind is {selection.kind}, and it was fitted for {', '.join(self.kinds)}"
        located = float(selection.located.mean())
        return self.kinds[selection.kind].outside(len(selection.located), located, mean_similarity(selection))

    def probability(self, selection: Selection) -> float | None:
        """The probability that the pick is right; None where there is no pick, and outside of what was fitted."""
        if selection.index is None or selection.kind is None or self.outside(selection):
            return None
        return self.kinds[selection.kind].probability(len(selection.located), mean_similarity(selection))

    def dense(self, selection: Selection) -> bool | None:
        """Whether the pick is as dense as the densest third of the graded ones; None where it has no probability."""
        if selection.index is None or selection.kind is None or self.outside(selection):
            return None
        curve = self.kinds[selection.kind].near(len(selection.located))
        return mean_similarity(selection) >= curve.dense.density

    def judge(self, selection: Selection, *, abstain_below: float | None = None) -> Selection:
        """The selection with its probability, or `probability_reason` where it has none.

        With `abstain_below` there is no pick where its probability is smaller. Raises an InputError if the pick has none, for
        then nobody can say whether it is.
        """
        if abstain_below is not None and not 0 <= abstain_below <= 1:
            raise InputError(f"abstain_below is a probability from 0 to 1, got {abstain_below}")
        if reason := self.outside(selection):
            reason = f"outside of what the calibration of {_shown(self.origin.model)} was fitted for: {reason}"
            return unknown(selection, reason, abstain_below)
        sure = self.probability(selection)
        if sure is not None and abstain_below is not None and sure < abstain_below:
            return replace(selection, index=None, rollout_index=None, probability=sure)
        return replace(selection, probability=sure)

    def select(self, group: RolloutGroup, *, abstain_below: float | None = None) -> Selection:
        """Select in the way that this was fitted for, and say how sure the pick is.

        A group does not say which model it is of, in which style and how it was sampled: `find_calibration` asks its pool.
        """
        return self.judge(select(group, **self.options), abstain_below=abstain_below)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION} | asdict(self)

    @classmethod
    def from_json(cls, body: Any) -> Self:
        """The calibration that `to_json` wrote. Raises an InputError that names what is wrong with another document."""
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise InputError(f"this is no calibration: it lacks format {FORMAT!r}; radmoe calibrate writes one")
        if body.get("version") != VERSION:
            raise InputError(f"this calibration is of version {body.get('version')!r}, {VERSION} is read: fit it anew")
        try:
            origin = _origin(body["origin"])
            kinds = {kind: _fit(own) for kind, own in body["kinds"].items()}
            options = dict(body["options"])
            whole = cls(origin, options, kinds, tuple(map(str, body["tasks"])), tuple(map(str, body["pools"])))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"this calibration cannot be read ({error}): fit it anew with radmoe calibrate") from None
        if not kinds or set(kinds) - set(KINDS) or set(options) - set(OPTIONS):
            raise InputError(
                "this calibration has unknown kinds or options, or none: fit it anew with radmoe calibrate"
            )
        _check_options(options, kinds)
        return whole


def _origin(body: dict[str, Any]) -> Origin:
    texts = {name: body[name] for name in ("model", "checkpoint", "style", "routing", "task")}
    if any(value is not None and not isinstance(value, str) for value in texts.values()) or body["model"] is None:
        raise ValueError("its origin must consist of texts or null")
    temperature, top_p = _float(body["temperature"]), _float(body["top_p"])
    return Origin(**texts, temperature=temperature, top_p=top_p, adaptive=bool(body["adaptive"]))


def _check_options(options: dict[str, Any], kinds: Iterable[Kind]) -> None:
    """Refuse options of a file that are none of `select`."""
    for name, value in options.items():
        sound = type(value) is int and 0 < value < _MOST if name in _NUMBERS else isinstance(value, str)
        if not sound:
            raise InputError(f"this calibration is for {name} {value!r:.60}, which cannot be: fit it anew")
    for kind in kinds:
        rule_for(kind, 64, **{name: value for name, value in options.items() if name in RULE_OPTIONS})


def _fit(body: dict[str, Any]) -> Fit:
    curves = []
    for own in body["curves"]:
        dense = Dense(_number(own["dense"]["density"]), _count(own["dense"]["picks"]), _count(own["dense"]["wrong"]))
        names = [one.name for one in fields(Curve) if one.name not in ("rollouts", "dense")]
        curves.append(Curve(_count(own["rollouts"]), **{name: _number(own[name]) for name in names}, dense=dense))
    measured = {str(name): float(value) for name, value in body["measured"].items()}
    return Fit(tuple(curves), _count(body["problems"]), _number(body["located"]), measured)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError(f"{value!r:.60} is no number of things")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST:
        raise ValueError(f"{value!r:.60} is not a finite number")
    return float(value)


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
    parts = (f"{origin.checkpoint}"[:16], origin.style, f"t{_shown(origin.temperature)}", f"p{_shown(origin.top_p)}")
    return "-".join(part for part in parts if part) + ".json"


def shipped(checkpoint: str | None) -> list[Calibration]:
    """The calibrations that ship for a checkpoint: one for each style and way of sampling."""
    if checkpoint is None or not checkpoint.isalnum():
        return []
    found = [load_calibration(file) for file in sorted(SHELF.glob(f"{checkpoint[:16]}-*.json"))]
    return [calibration for calibration in found if calibration.origin.checkpoint == checkpoint]


@dataclass(frozen=True)
class Match:
    """The calibration for rollouts, and where it comes from; or None, and the reason why none is."""

    calibration: Calibration | None
    source: str = ""
    reason: str = ""

    def judge(self, selection: Selection, *, abstain_below: float | None = None) -> Selection:
        """The selection with its probability, or with the reason why it has none."""
        if self.calibration is None:
            return unknown(selection, self.reason, abstain_below)
        return self.calibration.judge(selection, abstain_below=abstain_below)


def find_calibration(
    pool: Recorded | Origin,
    calibration: Calibration | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    source: str = "the calibration that was given",
) -> Match:
    """The calibration for picks of a pool (or of rollouts of an origin) that are made with these options of `select`.

    That is the given one, or else the one that ships for the pool's checkpoint, style and sampling, if it is for this way to
    select and for the pool's task. The command line, the server and Python ask here.
    """
    origin = pool if isinstance(pool, Origin) else origin_of(pool)
    given = {name: value for name, value in (options or {}).items() if value is not None}
    if calibration is not None:
        reason = calibration.origin.difference(origin) or _other_way(calibration, given)
        return Match(None, reason=f"{source} is for other rollouts: {reason}") if reason else Match(calibration, source)
    known = shipped(origin.checkpoint)
    if not known:
        return Match(None, reason=f"no calibration ships for the weights of {_shown(origin.model)}")
    same = [own for own in known if not own.origin.difference(origin)]
    if not same:
        there = "; ".join(dict.fromkeys(str(own.origin) for own in known))
        return Match(None, reason=f"calibrations ship for {there}; these rollouts are of {origin}")
    for own in same:
        if origin.task is not None and origin.task not in own.tasks:
            return Match(
                None,
                reason=f"the calibration that ships was fitted on {', '.join(own.tasks)}, not {_shown(origin.task)}",
            )
        if not _other_way(own, given):
            return Match(own, f"the calibration that ships for {own.origin}")
    return Match(None, reason=f"the calibration that ships is for another way to select ({described(same[0].options)})")


def _other_way(calibration: Calibration, given: Mapping[str, Any]) -> str:
    """Why options of `select` make other picks than those that a calibration is for; empty where they make the same."""
    both: Sequence[Mapping[str, Any]] = (calibration.options, given)
    for kind in calibration.kinds:
        rules = [rule_for(kind, 64, **{n: v for n, v in one.items() if n in RULE_OPTIONS}) for one in both]
        windows = [one.get("confidence_window") or WINDOW for one in both]
        if rules[0] != rules[1] or windows[0] != windows[1] or set(given) - set(OPTIONS):
            return f"it was fitted for {described(calibration.options)}, and the way to select is {described(given)}"
    return ""


def described(options: Mapping[str, Any]) -> str:
    """Options of `select` as they are typed."""
    return ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items()) or "the defaults"


def density_ranks(selections: Sequence[Selection]) -> list[int | None]:
    """The place of each pick among those of its kind by falling density, 1 for the densest; None where there is no pick.

    Equal densities share their place. A rank compares picks of one pool; it is no probability.
    """
    densities = [None if s.index is None else mean_similarity(s) for s in selections]
    own: dict[Kind | None, list[float]] = {}
    for selection, density in zip(selections, densities, strict=True):
        if density is not None:
            own.setdefault(selection.kind, []).append(density)
    return [
        None if density is None else 1 + sum(other > density for other in own[selection.kind])
        for selection, density in zip(selections, densities, strict=True)
    ]
