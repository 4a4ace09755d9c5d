"""The kind of answer is inferred from the markers in the rollouts where it is neither recorded nor given.

`infer_kind` looks at the groups it is given, `settle_kinds` at every problem of a pool. Neither guesses: where no marker
is in most rollouts, or the markers of two kinds are, the user is asked for the kind. And where the marker of the chosen
kind is missing from most rollouts while another kind's marker is in most of them, `settle_kinds` stops, because a
selection would read the wrong place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from radmoe.errors import InputError
from radmoe.selection.anchors import locate, markers_for, spec_for
from radmoe.selection.closing import CLOSING
from radmoe.selection.readout import BEFORE, Readout
from radmoe.types import Kind, RolloutGroup, check_kind
from radmoe.vocab import Vocab

SURVEYED = (32, 8)  # problems, and rollouts of each, that a survey of a pool looks at
MOST = 0.5  # the share of rollouts from which a marker counts as being in most of them
SOME = 0.1  # a marker in a smaller share of the rollouts is no evidence of a kind

_INFERRED: tuple[Kind, ...] = ("math", "code")  # choice has the same marker as math, so it is never inferred


class MarkerSurvey(NamedTuple):
    """The share of rollouts that carry each kind's own marker, and how many rollouts were looked at."""

    shares: dict[Kind, float]
    rollouts: int


class Problems(Protocol):
    """What this module needs of a pool: its problems, the kinds it records, and their rollouts."""

    @property
    def kinds(self) -> dict[str, Kind | None]:
        """The recorded kind of every problem, in the problems' order."""

    def group(self, problem_id: str) -> RolloutGroup:
        """The rollouts of one problem."""


class Settled(NamedTuple):
    """The kind of every problem, and a sentence on what was inferred (empty if every kind was recorded or given)."""

    kinds: dict[str, Kind]
    note: str


def survey(groups: Iterable[RolloutGroup], *, most: int | None = None) -> MarkerSurvey:
    """Look for every kind's marker in the first `most` rollouts of each group (all of them by default).

    A fallback does not count, because gpt-oss's final channel opens an answer of any kind.
    """
    counts = dict.fromkeys((*_INFERRED, "text", "agent"), 0)
    total = 0
    for group in groups:
        for rollout in islice(group.rollouts, most):
            total += 1
            for kind in counts:
                spec = spec_for("delimiter" if kind in _INFERRED else "boundary", kind, group.vocab)
                anchor = locate(spec, rollout.token_ids, group.vocab)
                counts[kind] += anchor is not None and anchor.family == spec.family
    shares: dict[Kind, float] = {kind: count / max(total, 1) for kind, count in counts.items()}
    return MarkerSurvey(shares | {"choice": shares["math"]}, total)


def infer_kind(groups: Iterable[RolloutGroup], where: str) -> Kind | None:
    """The kind whose marker is in most rollouts, or None where no marker is.

    Raises an InputError, which names the rollouts by `where`, if the markers of two kinds are.
    """
    return _inferred(survey(groups), where)


def settle_kinds(
    pool: Problems,
    given: str | None = None,
    *,
    where: str,
    readout: str | None = None,
    problems: Sequence[str] | None = None,
) -> Settled:
    """The kind of every problem of a pool: as recorded, else as `given`, else as inferred from the markers.

    A problem whose own rollouts carry the marker of one kind alone is of that kind, so that a pool may mix math and
    code. All other problems are of the kind that the rollouts of all problems tell.

    Raises an InputError if the `given` kind contradicts the record, if nothing was given and the markers do not decide,
    or if fewer than half of the rollouts have the marker of a kind while another kind's marker is in most of them
    (unless the `readout` looks for something else). `problems` limits all this to some of the pool's problems, and
    `where` names the pool in messages.
    """
    recorded = pool.kinds if problems is None else {problem: pool.kinds[problem] for problem in problems}
    option = None if given is None else check_kind(given)
    for problem, kind in recorded.items():
        if option is not None and kind not in (None, option):
            raise InputError(
                f"{where} records that problem {problem!r} is of kind {kind}, --kind {option} contradicts it: "
                "leave --kind out, or replay the pool with it (radmoe replay)"
            )
    inferred: dict[str, Kind] = {}
    note = ""
    unlabelled = [problem for problem, kind in recorded.items() if kind is None]
    if unlabelled and option is None:
        inferred, note = _inferred_kinds(pool, unlabelled, where)
    kinds = {problem: kind or option or inferred[problem] for problem, kind in recorded.items()}
    if needs_marker(readout):
        for kind in dict.fromkeys(kinds.values()):
            _check_marker(pool, [problem for problem, own in kinds.items() if own == kind], kind, where)
    return Settled(kinds, note)


def needs_marker(readout: str | None) -> bool:
    """Whether a readout looks for the marker of a kind.

    The default (None) does, and so does every delimiter without a name, whatever is read before it, and what closes the
    answer.
    """
    if readout is None:
        return True
    parsed = Readout.parse(readout)
    return parsed.family == BEFORE or (parsed.family in ("delimiter", "pre-delim", CLOSING) and parsed.name is None)


def _survey_pool(pool: Problems, problems: Sequence[str]) -> MarkerSurvey:
    """A survey of some rollouts of problems that are spread evenly over those given (see SURVEYED)."""
    count, rollouts = SURVEYED
    step = max(1, len(problems) // count)
    return survey((pool.group(problem) for problem in problems[::step][:count]), most=rollouts)


def _inferred(markers: MarkerSurvey, where: str) -> Kind | None:
    """The kind whose delimiter is in most rollouts, or in some (SOME) while the other's is in hardly any.

    Where no delimiter decides, a final-response marker in most rollouts makes it "text".
    """
    for least in (MOST, SOME):
        likely = [kind for kind in _INFERRED if markers.shares[kind] >= least]
        if len(likely) > 1:
            both = " and ".join(likely)
            raise InputError(f"the rollouts of {where} carry the markers of {both} alike: say which kind they are")
        if likely:
            return likely[0]
    return "text" if markers.shares["text"] >= MOST else None


def _inferred_kinds(pool: Problems, problems: Sequence[str], where: str) -> tuple[dict[str, Kind], str]:
    """The kind of each problem by the markers in its rollouts, and a sentence that says so."""
    surveys = {problem: survey([pool.group(problem)], most=SURVEYED[1]) for problem in problems}
    kinds = {problem: _clear_kind(markers) for problem, markers in surveys.items()}
    vocab = pool.group(problems[0]).vocab
    rollouts = sum(markers.rollouts for markers in surveys.values())
    shares: dict[Kind, float] = {
        kind: sum(markers.shares[kind] * markers.rollouts for markers in surveys.values()) / max(rollouts, 1)
        for kind in surveys[problems[0]].shares
    }
    markers = MarkerSurvey(shares, rollouts)
    unclear = [problem for problem, kind in kinds.items() if kind is None]
    if unclear:
        named = where if len(unclear) == len(problems) else f"problem {unclear[0]!r} in {where}"
        common = _inferred(markers, named)
        if common is None:
            raise InputError(
                f"{where} does not say what its answers look like, and no marker is in most of {rollouts} "
                f"rollouts ({_listed(markers, vocab)}): give --kind math, choice, code, text or agent"
            )
        kinds |= dict.fromkeys(unclear, common)
    counts = Counter(kind for kind in kinds.values() if kind is not None)
    if len(counts) == 1:
        (kind,) = counts
        note = f"kind {kind}: inferred from {_marker(kind, vocab)} in {shares[kind]:.0%} of the rollouts; give --kind if it is another"
    else:
        each = ", ".join(f"{n:,} {kind} ({_marker(kind, vocab)})" for kind, n in counts.most_common())
        note = f"kinds inferred from the markers, problem by problem: {each}; give --kind if all are of one kind"
    return {problem: kind for problem, kind in kinds.items() if kind is not None}, note


def _clear_kind(markers: MarkerSurvey) -> Kind | None:
    """The kind whose delimiter is in most rollouts of a problem while the other's is in hardly any; None if there is none."""
    for kind in _INFERRED:
        if markers.shares[kind] >= MOST and all(markers.shares[other] < SOME for other in _INFERRED if other != kind):
            return kind
    return None


def _check_marker(pool: Problems, problems: Sequence[str], kind: Kind, where: str) -> None:
    """Raise an InputError if most rollouts lack the marker of their kind and have that of another."""
    markers = _survey_pool(pool, problems)
    if not markers.rollouts or markers.shares[kind] >= MOST:
        return
    others = [other for other in _INFERRED if markers.shares[other] >= MOST]
    if not others:
        return
    other, vocab = others[0], pool.group(problems[0]).vocab
    recorded = pool.kinds[problems[0]] is not None
    way_out = (
        f"replay it with radmoe replay {where} --kind {other}, or name a marker with --readout"
        if recorded
        else f"give --kind {other}"
    )
    raise InputError(
        f"{where}: {_marker(kind, vocab)}, the marker of kind {kind}, is in {markers.shares[kind]:.0%} of the rollouts, "
        f"and {_marker(other, vocab)}, that of {other}, in {markers.shares[other]:.0%}: {way_out}"
    )


def _marker(kind: Kind, vocab: Vocab) -> str:
    """A kind's marker as people write it."""
    if kind == "code":
        return "```"
    if kind in ("math", "choice"):
        return "\\boxed{"
    markers = markers_for(vocab)
    return (markers.action if kind == "agent" else markers.boundary).pattern.decode()


def _listed(markers: MarkerSurvey, vocab: Vocab) -> str:
    return ", ".join(f"{_marker(kind, vocab)} in {markers.shares[kind]:.0%}" for kind in (*_INFERRED, "text"))
