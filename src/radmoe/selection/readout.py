"""A readout's name says where to read routing and how much of it; here it becomes route vectors.

    readout  = family [":" name] [occurrence] "@" width  |  "all"  (every generated token)
    family   = delimiter | boundary | step | trajectory | trajectory-before | closing | pre-delim | rand | rand-one-loc
    name     = a set of trajectory tokens, or the text of a marker of one's own
    occurrence = "#" r  (the r-th)  |  "*"  (the latest that fits the budget)
               | "#shared"  (the r-th, for the largest r that all located rollouts of a group reach)
    width    = tokens | "marker"  (all tokens of the marker)  |  "union"  (every marker, as one set)
             | "span"  (delimiter only: the whole answer)  |  "-" tokens  (closing only: those before it)

`delimiter@16` is RAD's headline, `delimiter@marker` the strict one, `closing@-16` the last tokens of the answer,
`delimiter@span` all of it, `trajectory:now*@16` the latest in-budget "now", `boundary@union` the agentic fingerprint,
`step@union` the same with the first row of every turn that has no boundary.
`trajectory-before` are trajectory anchors whose window ends before the delimiter. The last three families are the controls
of Fig. 2: the window that ends where the delimiter begins, W positions drawn at random, and one window at a random place.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError, ReadoutError
from radmoe.selection.anchors import AnchorSpec, find_all, is_regex, locate, locate_extent, spec_for
from radmoe.selection.closing import CLOSING
from radmoe.selection.layers import Layers, layer_subset
from radmoe.selection.routes import RouteSum, pieces
from radmoe.system.plugins import import_modules
from radmoe.types import Anchor, Kind, RolloutGroup
from radmoe.vocab import Vocab

CONTROLS = ("pre-delim", "rand", "rand-one-loc")
BEFORE = "trajectory-before"
ALL = "all"
STEP = "step"
SHARED = "shared"  # an occurrence that depends on the whole group

Span = tuple[int, int]
_NO_TOKENS = np.empty(0, np.int32)
Anchors = Sequence[Anchor | None]

_READOUT = re.compile(
    r"(?P<family>[a-z-]+)(?::(?P<name>.+?))?(?P<occurrence>\*|#\d{1,9}|#shared)?@(?P<width>[^@]+)", re.DOTALL
)
_TOKENS = re.compile(r"\d{1,9}")
_FORM = (
    "use family@width, such as delimiter@16, delimiter@marker, delimiter@span, closing@-16, boundary@16, "
    "trajectory:now@16 or boundary@union; or all"
)


@dataclass(frozen=True)
class Readout:
    """An anchor and how much routing to read at it (Sec. "Anchor and window notation")."""

    family: str
    width: int | str
    name: str | None = None
    occurrence: str | int | None = None

    @classmethod
    def parse(cls, text: str | Readout) -> Readout:
        if isinstance(text, Readout):
            return text
        if text == ALL:
            return cls(ALL, ALL)
        match = _READOUT.fullmatch(str(text))
        if match is None or match["family"] == ALL:
            raise ReadoutError(f"unknown readout {text!r}: {_FORM}")
        width: int | str = match["width"]
        if _TOKENS.fullmatch(match["width"].removeprefix("-" if match["family"] == CLOSING else "")):
            width = int(match["width"])
        mark = match["occurrence"]
        occurrence: str | int | None = None
        if mark is not None:
            occurrence = "latest" if mark == "*" else SHARED if mark == "#shared" else int(mark[1:])
        return cls(match["family"], width, match["name"], occurrence)

    def __post_init__(self) -> None:
        if self.family not in READERS:
            import_modules("readouts")
        if self.family not in READERS:
            raise ReadoutError(f"unknown readout family {self.family!r}: use one of {', '.join(READERS)}")
        if isinstance(self.width, int):
            if self.width < 1 and (self.family != CLOSING or self.width == 0):
                raise ReadoutError(
                    f"readout width {self.width} in {str(self)!r} reads nothing: use 1 or more, or marker"
                )
        elif self.width not in ("marker", "union", "span", ALL) or (self.width == ALL) != (self.family == ALL):
            raise ReadoutError(
                f"readout width {self.width!r} is unknown: use a number of tokens, marker, union or span"
            )
        elif self.family in CONTROLS:
            raise ReadoutError(f"{self.family} has no marker: give its width in tokens, such as {self.family}@16")
        elif self.width == "span" and self.family != "delimiter":
            raise ReadoutError(f"{self.family} has no span: only delimiter@span reads a whole answer")
        elif self.width == "union" and self.family == CLOSING:
            raise ReadoutError("an answer closes once: use closing@-16, closing@16 or closing@marker")
        bare = self.family in (*CONTROLS, CLOSING, ALL) or self.width == "span"
        if bare and (self.name, self.occurrence) != (None, None):
            raise ReadoutError(
                f"{self.family} takes no name and no occurrence here: use {replace(self, name=None, occurrence=None)}"
            )
        if self.family == STEP and (self.width, self.name) != ("union", None):
            raise ReadoutError(f"{STEP} reads every step of a trajectory: use {STEP}@union")
        if self.width == "union" and self.occurrence is not None:
            raise ReadoutError("union reads every occurrence: leave the occurrence out")
        if self.occurrence == 0:
            raise ReadoutError("occurrences count from 1: use #1 for the first")

    @property
    def is_regex(self) -> bool:
        """Whether its tokens are those that a regular expression matches. It may search without end, so none is taken from a file."""
        return self.family in ("trajectory", BEFORE) and is_regex(self.name or "")

    def __str__(self) -> str:
        if self.family == ALL:
            return ALL
        mark = "" if self.occurrence is None else "*" if self.occurrence == "latest" else f"#{self.occurrence}"
        return f"{self.family}{'' if self.name is None else ':' + self.name}{mark}@{self.width}"


class Reading(NamedTuple):
    """What a readout gives for a group: a row of Z per located rollout, in rollout order."""

    Z: NDArray[np.float32]  # [n, L * E]
    located: NDArray[np.bool_]  # [N]
    anchors: tuple[Anchor | None, ...]  # [N]


def route_matrix(
    group: RolloutGroup,
    readout: str | Readout = "delimiter@16",
    kind: Kind | None = None,
    *,
    layers: Layers = None,
    budget: int | None = None,
    seed: int = 0,
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Route vectors z_i (Eq. 4) of the located rollouts [n, L*E], and a mask of the rollouts that were located [N].

    `kind` is the group's own unless given.
    """
    reading = read(group, readout, kind, layers=layers, budget=budget, seed=seed)
    return reading.Z, reading.located


def read(
    group: RolloutGroup,
    readout: str | Readout,
    kind: Kind | None = None,
    *,
    layers: Layers = None,
    budget: int | None = None,
    seed: int = 0,
    binary: bool = False,
    anchors: Anchors | None = None,
    whole: bool = False,
) -> Reading:
    """Locate every rollout's window and average its routing; `binary` leaves the weights on disk.

    `kind` is the group's own unless given. Each layer's block of a row of Z sums to one. A union is the mean over all
    its rows; its support is the fingerprint, so compare unions with the binary kernel. `anchors` are those of an
    earlier reading whose readout has the same ones (`same_anchors`): they are then not searched for again. A window is
    cut at its rollout's end unless it must be `whole`: a rollout without a whole one is not located.
    """
    readout, kind = Readout.parse(readout), kind or group.kind
    layer_numbers = layer_subset(layers, group.shape.layers)
    places = _places(group, readout, Place(_NO_TOKENS, group.vocab, kind, budget, (seed, "", 0), whole), anchors)
    located = np.array([anchor is not None for anchor, _ in places], bool)
    Z = np.zeros((int(located.sum()), len(layer_numbers) * group.shape.experts), np.float32)
    add = RouteSum(group, Z, layer_numbers)
    for rollout, (_, spans) in zip(group.rollouts, places, strict=True):
        rollout.expect(spans, weights=not binary)
    row = 0
    for i, (_, spans) in enumerate(places):
        if spans:
            counted = 1.0 / sum(stop - start for start, stop in spans)
            for piece in pieces(group.rollouts[i], spans, weights=not binary):
                add.rows(i, row, counted, piece)
            row += 1
    add.flush()
    return Reading(Z, located, tuple(anchor for anchor, _ in places))


def locate_all(
    group: RolloutGroup, readout: str | Readout, kind: Kind | None = None, *, budget: int | None = None, seed: int = 0
) -> Anchors:
    """The anchor of each rollout, without reading any routing; None where a rollout is not located."""
    readout, kind = Readout.parse(readout), kind or group.kind
    place = Place(_NO_TOKENS, group.vocab, kind, budget, (seed, "", 0))
    return tuple(anchor for anchor, _ in _places(group, readout, place, None))


def _places(group: RolloutGroup, readout: Readout, place: Place, anchors: Anchors | None) -> list[Window]:
    """The window of each rollout, at `anchors` where they are known. Each rollout is read at `place` with its own tokens."""
    if anchors is not None:
        return [(a, _spans(readout, a, len(rollout))) for a, rollout in zip(anchors, group.rollouts, strict=True)]
    if readout.occurrence == SHARED:
        readout = _shared_round(readout, group, place.kind, place.budget, place.whole)
    seed = place.draw[0]
    return [
        _window(
            readout,
            place._replace(
                token_ids=rollout.token_ids,
                draw=(seed, group.problem_id, i),
                starts=rollout.starts if readout.family == STEP else (),
            ),
        )
        for i, rollout in enumerate(group.rollouts)
    ]


def same_anchors(one: str | Readout, other: str | Readout) -> bool:
    """Whether two readouts of one kind differ in width alone, and so have the same anchors without a budget.

    A window before the delimiter must fit there, so its anchor depends on its width. A whole answer has an anchor only
    where it closes, and a window before a closing only where there is a token before it.
    """
    one, other = Readout.parse(one), Readout.parse(other)
    if one.family in (*CONTROLS, BEFORE, ALL) or not {"union", "span"}.isdisjoint((one.width, other.width)):
        return False
    if _before(one) != _before(other):
        return False
    return (one.family, one.name, one.occurrence) == (other.family, other.name, other.occurrence)


def _before(readout: Readout) -> bool:
    """Whether a readout reads what stands before its anchor."""
    return isinstance(readout.width, int) and readout.width < 0


def windows(
    readout: str | Readout,
    token_ids: NDArray[np.int32],
    vocab: Vocab,
    kind: Kind | None,
    starts: Sequence[int] | NDArray[np.int64] = (),
) -> list[Span]:
    """The token ranges [start, stop) that a readout reads in one rollout; empty when the rollout is not located.

    `starts` are the offsets of a trajectory's steps.
    """
    readout = Readout.parse(readout)
    if readout.family in ("rand", "rand-one-loc"):
        raise ReadoutError(f"{readout} reads at random: it has no fixed window")
    if readout.occurrence == SHARED:
        raise ReadoutError(f"{readout} depends on the other rollouts of a group: use #r to see the r-th window of one")
    return _window(readout, Place(token_ids, vocab, kind, starts=starts))[1]


class Place(NamedTuple):
    """What a family needs to find its window: the tokens of one rollout, its kind, and how much of it may be read."""

    token_ids: NDArray[np.int32]
    vocab: Vocab
    kind: Kind | None
    budget: int | None = None
    draw: tuple[int, str, int] = (0, "", 0)  # seed, problem and rollout: they seed the random numbers of a control
    whole: bool = False  # whether a window that reaches beyond the rollout's end is no window
    starts: Sequence[int] | NDArray[np.int64] = ()  # of a trajectory's steps

    @property
    def end(self) -> int:
        """The first token that may not be read."""
        return len(self.token_ids) if self.budget is None else min(len(self.token_ids), self.budget)


Window = tuple[Anchor | None, list[Span]]  # None and no spans where a rollout is not located


def _window(readout: Readout, place: Place) -> Window:
    """The anchor and the token ranges to read at it, cut at the rollout's end."""
    if place.budget is not None and place.budget < 1:
        raise InputError(f"budget must be at least 1 token, got {place.budget}")
    return READERS[readout.family](readout, place)


def _at_anchor(readout: Readout, place: Place) -> Window:
    """The marker, or W tokens from where it begins; with the width "union", every marker."""
    spec = _spec(readout, place)
    if readout.width == "union":
        anchors = find_all(spec, place.token_ids[: place.end], place.vocab)
        return (anchors[0], [(a.start, a.start + a.length) for a in anchors]) if anchors else (None, [])
    width = readout.width if isinstance(readout.width, int) else None
    anchor = locate(spec, place.token_ids, place.vocab, width=width, budget=place.budget, whole=place.whole)
    return anchor, _spans(readout, anchor, len(place.token_ids))


def _at_steps(readout: Readout, place: Place) -> Window:
    """Every boundary, and the first token of each step that has none."""
    spec = spec_for("boundary", place.kind, place.vocab)
    anchors = find_all(spec, place.token_ids[: place.end], place.vocab)
    starts = np.asarray(place.starts if len(place.starts) else [0], np.int64)  # an answer to one prompt is one step
    starts = starts[starts < place.end]
    bare = np.ones(len(starts), bool)
    bare[np.searchsorted(starts, [a.start for a in anchors], "right") - 1] = False
    anchors += [Anchor(start, 1, STEP) for start in starts[bare].tolist()]
    anchors.sort(key=lambda anchor: anchor.start)
    return (anchors[0], [(a.start, a.start + a.length) for a in anchors]) if anchors else (None, [])


def _spec(readout: Readout, place: Place) -> AnchorSpec:
    family = "trajectory" if readout.family == BEFORE else readout.family
    return spec_for(family, place.kind, place.vocab, name=readout.name, occurrence=readout.occurrence)


def _at_delimiter(readout: Readout, place: Place) -> Window:
    """As at any anchor; with the width "span", all tokens of the answer from its delimiter to what closes it."""
    if readout.width != "span":
        return _at_anchor(readout, place)
    _spec(readout, place)  # refuses a kind that has no delimiter
    extent = locate_extent(place.kind, place.token_ids, place.vocab, budget=place.budget)
    return (None, []) if extent is None else (extent.opening, [extent.span])


def _at_closing(readout: Readout, place: Place) -> Window:
    """What closes the answer, W tokens from there on, or the W tokens before it."""
    if not _before(readout):
        if place.kind == "text":
            raise ReadoutError(f"a text closes at its end, and no row follows for {readout}: use closing@-16")
        return _at_anchor(readout, place)
    assert isinstance(readout.width, int)
    anchor = locate(_spec(readout, place), place.token_ids, place.vocab, budget=place.budget)
    if anchor is None or anchor.start < (-readout.width if place.whole else 1):
        return None, []
    return anchor, _spans(readout, anchor, len(place.token_ids))


def _every_token(readout: Readout, place: Place) -> Window:
    """Every generated token that may be read."""
    return Anchor(0, place.end, readout.family), [(0, place.end)]


def _trajectory_before(readout: Readout, place: Place) -> Window:
    """A trajectory anchor whose whole window lies before the delimiter, where the rollout has one."""
    return _at_anchor(readout, _cut_at_delimiter(place))


def _cut_at_delimiter(place: Place) -> Place:
    """A place that may be read up to the delimiter and no further. A delimiter at the very start leaves no token."""
    delimiter = locate(spec_for("delimiter", place.kind, place.vocab), place.token_ids, place.vocab)
    if delimiter is None:
        return place
    return place._replace(budget=min(delimiter.start, place.end))


def _shared_round(readout: Readout, group: RolloutGroup, kind: Kind | None, budget: int | None, whole: bool) -> Readout:
    """The r-th occurrence, for the largest r that all rollouts reach which have a window at all."""
    first, rounds = replace(readout, occurrence=1), []
    for rollout in group.rollouts:
        place = Place(rollout.token_ids, group.vocab, kind, budget, whole=whole)
        if readout.family == BEFORE:
            place = _cut_at_delimiter(place)
        anchors = find_all(_spec(first, place), place.token_ids[: place.end], place.vocab)
        end = place.end if whole or place.end < len(place.token_ids) else math.inf
        width = readout.width if isinstance(readout.width, int) else 0
        rounds.append(sum(anchor.start + (width or anchor.length) <= end for anchor in anchors))
    return replace(readout, occurrence=min((r for r in rounds if r), default=1))


def _before_delimiter(readout: Readout, place: Place) -> Window:
    """The W tokens that end where the delimiter begins."""
    assert isinstance(readout.width, int)
    spec = spec_for("delimiter", place.kind, place.vocab)
    anchor = locate(spec, place.token_ids, place.vocab, budget=place.budget)
    if anchor is None or anchor.start == 0:
        return None, []
    return anchor, [(max(0, anchor.start - readout.width), anchor.start)]


def _random_tokens(readout: Readout, place: Place) -> Window:
    """W tokens drawn at random, one by one."""
    rng, width = _draw(readout, place)
    positions = np.sort(rng.choice(place.end, size=width, replace=False))
    return Anchor(int(positions[0]), width, readout.family), [(int(p), int(p) + 1) for p in positions]


def _random_window(readout: Readout, place: Place) -> Window:
    """One window of W tokens at a random place."""
    rng, width = _draw(readout, place)
    start = int(rng.integers(place.end - width + 1))
    return Anchor(start, width, readout.family), [(start, start + width)]


def _draw(readout: Readout, place: Place) -> tuple[np.random.Generator, int]:
    """The random generator of this rollout, and the width cut to what may be read of it."""
    assert isinstance(readout.width, int)
    seed, problem_id, index = place.draw
    return np.random.default_rng([seed, zlib.crc32(problem_id.encode()), index]), min(readout.width, place.end)


# A family's window by its name. A new family is a function and a line here, or a plugin (CONTRIBUTING.md).
READERS: dict[str, Callable[[Readout, Place], Window]] = {
    "trajectory": _at_anchor,
    "boundary": _at_anchor,
    "delimiter": _at_delimiter,
    STEP: _at_steps,
    BEFORE: _trajectory_before,
    CLOSING: _at_closing,
    ALL: _every_token,
    "pre-delim": _before_delimiter,
    "rand": _random_tokens,
    "rand-one-loc": _random_window,
}


def _spans(readout: Readout, anchor: Anchor | None, end: int) -> list[Span]:
    """The token range to read at an anchor, cut at the rollout's `end`; empty where there is no anchor."""
    if anchor is None:
        return []
    width = readout.width if isinstance(readout.width, int) else anchor.length
    if width < 0:
        return [(max(0, anchor.start + width), anchor.start)]
    return [(anchor.start, min(anchor.start + width, end))]
