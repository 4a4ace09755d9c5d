"""What an answer looks like where nobody said: told from the markers that the rollouts carry.

`infer_kind` looks at one group, `settle_kinds` at a whole pool. Neither guesses: where no marker, or more than one, is in
most rollouts, the kind is asked for. And where the kind that was chosen has a marker that most rollouts lack, while
another kind's marker is in most of them, `settle_kinds` stops, because a selection would read the wrong place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from radmoe.anchors import locate, preset_for, spec_for
from radmoe.errors import InputError
from radmoe.readout import Readout
from radmoe.types import Kind, RolloutGroup, check_kind
from radmoe.vocab import Vocab

SURVEYED = (32, 8)  # problems, and rollouts of each, that a survey of a pool looks at
MOST = 0.5  # of the rollouts
SOME = 0.1  # of the rollouts: a marker in fewer of them says nothing

_INFERRED: tuple[Kind, ...] = ("math", "code")  # choice has the marker of math, and cannot be told from it


class Survey(NamedTuple):
    """The share of rollouts that carry each kind's own marker, and how many rollouts were looked at."""

    shares: dict[Kind, float]
    rollouts: int


class Problems(Protocol):
    """What is asked of a pool here: its problems, the kinds it records, and their rollouts."""

    @property
    def kinds(self) -> dict[str, Kind | None]:
        """The recorded kind of every problem, in the problems' order."""

    def group(self, problem_id: str) -> RolloutGroup:
        """The rollouts of one problem."""


class Settled(NamedTuple):
    """The kind of every problem, and a sentence on what was inferred (empty where everything was said)."""

    kinds: dict[str, Kind]
    note: str


def survey(groups: Iterable[RolloutGroup], *, most: int | None = None) -> Survey:
    """Look for every kind's marker in the rollouts of some groups, in the first `most` of each.

    A fallback does not count: gpt-oss's final channel opens an answer of any kind.
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
    return Survey(shares | {"choice": shares["math"]}, total)


def infer_kind(groups: Iterable[RolloutGroup], where: str) -> Kind | None:
    """The kind whose marker is in most rollouts; None where no marker is; an InputError where two kinds' are."""
    return _inferred(survey(groups), where)


def settle_kinds(
    pool: Problems,
    given: str | None = None,
    *,
    where: str,
    readout: str | None = None,
    problems: Sequence[str] | None = None,
) -> Settled:
    """The kind of every problem of a pool: as recorded, else as `given`, else as the markers tell.

    A `given` kind that contradicts the record is an error. So is a kind whose marker fewer than half of the rollouts
    have while another kind's is in most, unless the `readout` looks for something else.
    """
    recorded = pool.kinds if problems is None else {problem: pool.kinds[problem] for problem in problems}
    option = None if given is None else check_kind(given)
    for problem, kind in recorded.items():
        if option is not None and kind not in (None, option):
            raise InputError(
                f"{where} records that problem {problem!r} is of kind {kind}, --kind {option} contradicts it: "
                "leave --kind out, or replay the pool with it (radmoe capture --rollouts)"
            )
    unsaid = [problem for problem, kind in recorded.items() if kind is None]
    inferred, note = option, ""
    if unsaid and option is None:
        seen = _survey_pool(pool, unsaid)
        inferred = _inferred(seen, where)
        if inferred is None:
            raise InputError(
                f"{where} does not say what its answers look like, and no marker is in most of {seen.rollouts} "
                f"rollouts ({_listed(seen, pool.group(unsaid[0]).vocab)}): give --kind math, choice, code, text or agent"
            )
        note = (
            f"kind {inferred}: inferred from {_marker(inferred, pool.group(unsaid[0]).vocab)} in "
            f"{seen.shares[inferred]:.0%} of the rollouts; --kind says otherwise"
        )
    kinds: dict[str, Kind] = {}
    for problem, kind in recorded.items():
        settled = kind or inferred
        assert settled is not None
        kinds[problem] = settled
    if needs_marker(readout):
        for kind in dict.fromkeys(kinds.values()):
            _check_marker(pool, [problem for problem, own in kinds.items() if own == kind], kind, where)
    return Settled(kinds, note)


def needs_marker(readout: str | None) -> bool:
    """Whether a readout looks for the marker of a kind: the default does, and every delimiter without a name."""
    if readout is None:
        return True
    parsed = Readout.parse(readout)
    return parsed.family in ("delimiter", "pre-delim") and parsed.name is None


def _survey_pool(pool: Problems, problems: Sequence[str]) -> Survey:
    """Rollouts of problems spread evenly over a pool."""
    count, rollouts = SURVEYED
    step = max(1, len(problems) // count)
    return survey((pool.group(problem) for problem in problems[::step][:count]), most=rollouts)


def _inferred(seen: Survey, where: str) -> Kind | None:
    """The one answer marker in most rollouts, or in some where the other is in hardly any; else that of a final response."""
    for least in (MOST, SOME):
        likely = [kind for kind in _INFERRED if seen.shares[kind] >= least]
        if len(likely) > 1:
            both = " and ".join(likely)
            raise InputError(f"the rollouts of {where} carry the markers of {both} alike: say which kind they are")
        if likely:
            return likely[0]
    return "text" if seen.shares["text"] >= MOST else None


def _check_marker(pool: Problems, problems: Sequence[str], kind: Kind, where: str) -> None:
    seen = _survey_pool(pool, problems)
    if not seen.rollouts or seen.shares[kind] >= MOST:
        return
    others = [other for other in _INFERRED if seen.shares[other] >= MOST]
    if not others:
        return
    other, vocab = others[0], pool.group(problems[0]).vocab
    recorded = pool.kinds[problems[0]] is not None
    way_out = (
        f"replay it with radmoe capture --rollouts {where} --kind {other}, or name a marker with --readout"
        if recorded
        else f"give --kind {other}"
    )
    raise InputError(
        f"{where}: {_marker(kind, vocab)}, the marker of kind {kind}, is in {seen.shares[kind]:.0%} of the rollouts, and "
        f"{_marker(other, vocab)}, that of {other}, in {seen.shares[other]:.0%}: {way_out}"
    )


def _marker(kind: Kind, vocab: Vocab) -> str:
    """A kind's marker as people write it."""
    if kind == "code":
        return "```"
    if kind in ("math", "choice"):
        return "\\boxed{"
    preset = preset_for(vocab)
    return (preset.action if kind == "agent" else preset.boundary).pattern.decode()


def _listed(seen: Survey, vocab: Vocab) -> str:
    return ", ".join(f"{_marker(kind, vocab)} in {seen.shares[kind]:.0%}" for kind in (*_INFERRED, "text"))
