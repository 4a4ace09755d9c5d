"""Where an anchor sits in a rollout: byte-exact, on the recorded token ids (App. "Method details and fallbacks").

Text is never re-tokenised. A marker is searched in the bytes that the token ids spell, because
`\\boxed{` merges with its neighbours in dozens of ways and may be sampled in odd pieces. The
anchor is the first token that overlaps the marker; its length m counts the tokens that do. A
control token (`</think>`, `<|channel|>`) is matched by id alone: the same characters in prose are
no anchor, and no marker reaches into a control token.

There is at most one anchor per token: a second occurrence that begins in the same token is the
same anchor. Occurrences that begin in different tokens all count, even where they overlap.

Where the final response begins is defined here too, on token ids and, for what reads texts, in a text (`text_response`):
behind the last marker that opens it. A rollout that began to think and has no such marker has no response, and one
without either marker is all response.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import ReadoutError
from radmoe.selection.closing import BOX, CLOSING, Block, Extent, closing_brace, fenced_blocks
from radmoe.types import Anchor, Kind, check_kind
from radmoe.vocab import PREFIX_BYTES, Vocab

FAMILIES = ("trajectory", "boundary", "delimiter", CLOSING)
TAIL_SYMBOLS = 64  # how far a marker's tail may reach
Ids = NDArray[np.intp]


def _regex(pattern: str, flags: int = 0) -> re.Pattern[str]:
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise ReadoutError(f"{pattern!r} is not a regular expression: {error}") from None


@dataclass(frozen=True)
class Marker:
    """Literal bytes, and optionally a bytes regex (`tail`) that must match right behind them.

    The text of a control token, in either, stands for that token where the vocabulary has it. A
    tail may span at most 64 bytes; a control token counts as one.
    """

    family: str
    pattern: bytes
    tail: bytes = b""

    def __post_init__(self) -> None:
        if not self.pattern:
            raise ReadoutError(f"a {self.family} marker must not be empty: give the text to look for")
        _regex(self.tail.decode("latin-1"))


@dataclass(frozen=True)
class TokenSet:
    """Every single token whose decoded text satisfies a regex: the paper's trajectory families."""

    name: str
    pattern: str
    family: ClassVar[str] = "trajectory"

    def __post_init__(self) -> None:
        _regex(self.pattern)


@dataclass(frozen=True)
class Fence:
    """The run of three or more backticks that opens a fenced code block.

    Lines are read as in CommonMark: a fence stands alone at the start of its line, its info string
    holds no backtick, and its block closes at a bare run at least as long. Tildes and backticks inside
    a line are no fences. Unlike CommonMark, a fence may be indented by any number of blanks, since
    models put fences into lists; the closing fence is at most three columns deeper than the opening
    one, so that a fence quoted in a docstring closes nothing. A control token ends a line. A block that
    never closes counts. Only blocks of the final response count, which follows the last `boundary`: what
    was drafted in the thinking, or left open there, is no answer. `thinking` opens what precedes the response.
    """

    boundary: Marker
    thinking: Marker
    family: ClassVar[str] = "delimiter"


@dataclass(frozen=True)
class Closing:
    """What closes the last answer that `opening` opens: the brace of a box, or the fence of a block.

    An answer that never closes has none, whatever closed before it. Texts have `thinking`, the marker that opens the
    thinking: a text closes where its rollout ends, and a rollout that began to think and never came to the final response
    (`opening`) has no text.
    """

    opening: Marker | Fence
    thinking: Marker | None = None
    family: ClassVar[str] = CLOSING


Finder = Marker | TokenSet | Fence | Closing


@dataclass(frozen=True)
class AnchorSpec:
    """What to look for and which occurrence to take.

    `find` is a fallback chain: the first alternative that occurs at all decides. `occurrence` is
    "last", "latest" (the latest whose window fits the budget), or r >= 1 for the r-th.
    """

    family: str
    find: tuple[Finder, ...]
    occurrence: str | int = "last"

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ReadoutError(f"unknown anchor family {self.family!r}: use one of {', '.join(FAMILIES)}")
        if not self.find:
            raise ReadoutError(f"a {self.family} anchor needs at least one marker or token set to find")
        r = self.occurrence
        if r not in ("last", "latest") and (isinstance(r, bool | str) or not isinstance(r, int | np.integer) or r < 1):
            raise ReadoutError(f"occurrence {r!r} is not allowed: use 'last', 'latest', or a count from 1 up")


@dataclass(frozen=True)
class Markers:
    """The markers of a group of models.

    `boundary` opens the final response, `action` opens an agent's action, `thinking` opens what precedes the final
    response, and `fallback` lists what is looked for where a rollout has no delimiter.
    """

    name: str
    boundary: Marker
    action: Marker
    thinking: Marker
    fallback: tuple[Marker, ...] = ()


_THINK = Marker("boundary", b"</think>")
_FINAL = Marker(
    "boundary",
    b"<|channel|>final",
    rb"(?:\s{0,4}<\|constrain\|>\s{0,4}[\w.+/-]{0,32})?\s{0,4}<\|message\|>",
)
_BOXED = Marker("delimiter", BOX.encode())

_THINKING = Marker("boundary", b"<think>")
_CHANNEL = Marker("boundary", b"<|channel|>")  # analysis and commentary precede the final channel

MARKERS = {
    "qwen3": Markers("qwen3", _THINK, _THINK, _THINKING),
    "gpt-oss": Markers("gpt-oss", _FINAL, Marker("boundary", b"<|start|>"), _CHANNEL, (_FINAL,)),
    "generic": Markers("generic", _THINK, _THINK, _THINKING),
}

_WORD = "(?i)(^|[^A-Za-z]){}($|[^A-Za-z])"  # the paper's form
TOKEN_SETS = {
    "so": TokenSet("so", _WORD.format("so")),
    "now": TokenSet("now", _WORD.format("now")),
    "wait": TokenSet("wait", _WORD.format("wait")),
    ".\n\n": TokenSet(".\n\n", r"\.\n\n"),  # anywhere in the token: `).\n\n` ends a paragraph too
    ".": TokenSet(".", r"^\s*\.\s*$"),  # nothing but the sign and blanks: `().` and `./` end no sentence
    ":": TokenSet(":", r"^\s*:\s*$"),
}


def markers_for(vocab: Vocab) -> Markers:
    """The markers of the models whose control tokens the vocabulary has."""
    if {"<|channel|>", "<|message|>"} <= vocab.added.keys():
        return MARKERS["gpt-oss"]
    return MARKERS["qwen3" if "</think>" in vocab.added else "generic"]


def spec_for(
    family: str, kind: Kind | None, vocab: Vocab, *, name: str | None = None, occurrence: str | int | None = None
) -> AnchorSpec:
    """The anchor of a family for answers of a kind (App. "Delimiter-anchor location"), or a user's own.

    `name` is a set of trajectory tokens (`so`, `now`, `wait`, `.\\n\\n`, `.`, `:`), `/regex/` for a set of one's own
    (trajectory only), "```" for code fences (delimiter only), or any literal text. By default a trajectory anchor
    is the first `so`, a boundary or delimiter the last of its family. Kind "agent" makes every action boundary an
    anchor: use `find_all`. Only an unnamed delimiter needs a kind; kinds "text" and "agent" have none. A closing needs a
    kind and takes neither name nor occurrence: it closes the last answer.
    """
    if family not in FAMILIES:
        raise ReadoutError(f"unknown anchor family {family!r}: use one of {', '.join(FAMILIES)}")
    if kind is not None:
        check_kind(kind)
    markers = markers_for(vocab)
    find: tuple[Finder, ...]
    if family == CLOSING:
        if (name, occurrence) != (None, None):
            raise ReadoutError("a closing takes no name and no occurrence: it closes the last answer of its kind")
        find = (_closing(kind, markers),)
    elif family == "trajectory":
        find = (_trajectory("so" if name is None else name, vocab),)
    elif name is not None:
        find = (_fence(markers) if (family, name) == ("delimiter", "```") else Marker(family, name.encode()),)
    elif family == "boundary":
        find = (markers.action if kind == "agent" else markers.boundary,)
    elif kind is None:
        raise ReadoutError("which delimiter opens an answer depends on its kind: give a kind, such as math or code")
    elif kind in ("text", "agent"):
        raise ReadoutError(f"kind {kind!r} has no delimiter that opens an answer: use a boundary or trajectory anchor")
    else:
        find = (_fence(markers) if kind == "code" else _BOXED, *markers.fallback)
    if occurrence is None:
        occurrence = 1 if family == "trajectory" else "last"
    return AnchorSpec(family, find, occurrence)


def _closing(kind: Kind | None, markers: Markers) -> Closing:
    if kind is None:
        raise ReadoutError("what closes an answer depends on its kind: give a kind, such as math or code")
    if kind == "agent":
        raise ReadoutError("kind 'agent' has no answer that closes: use a boundary or trajectory anchor, or all")
    if kind == "text":
        return Closing(markers.boundary, markers.thinking)
    return Closing(_fence(markers) if kind == "code" else _BOXED)


def _fence(markers: Markers) -> Fence:
    return Fence(markers.boundary, markers.thinking)


def is_regex(name: str) -> bool:
    """Whether the name of a trajectory anchor is a `/regex/` of one's own."""
    return len(name) > 2 and name[0] == name[-1] == "/"


def _trajectory(name: str, vocab: Vocab) -> Finder:
    tokens = TOKEN_SETS.get(name.lower().replace("\\n", "\n"))
    if tokens is None and is_regex(name):
        tokens = TokenSet(name, name[1:-1])
        if not _members(tokens, vocab).any():
            raise ReadoutError(
                f"no token of this vocabulary matches {name}: a trajectory anchor is one of a set of single tokens"
            )
    if tokens is None and not name:
        raise ReadoutError(
            f"empty trajectory name: use one of {', '.join(map(repr, TOKEN_SETS))}, /regex/ or literal text"
        )
    return tokens or Marker("trajectory", name.encode())


def find_all(spec: AnchorSpec, token_ids: ArrayLike, vocab: Vocab) -> list[Anchor]:
    """Every anchor of the first alternative that occurs, in order."""
    ids = vocab.check_ids(token_ids)
    for finder in spec.find:
        if anchors := list(_occurrences(finder, ids, vocab, backwards=False)):
            return anchors
    return []


def locate(
    spec: AnchorSpec,
    token_ids: ArrayLike,
    vocab: Vocab,
    *,
    width: int | None = None,
    budget: int | None = None,
    whole: bool = False,
) -> Anchor | None:
    """The one anchor the spec asks for; None if the rollout has none, or none that fits the budget.

    Under a budget B only tokens [0, B) exist, and the whole window must lie in them (App.
    "Cost-certainty frontier"). The window is `width` tokens from the anchor, or the marker itself
    where `width` is None, and it is cut at the rollout's end unless it must be `whole`. Finding
    `\\boxed{` in 2,000 tokens takes about 25 us.
    """
    for what, value, least in (("width", width, 1), ("budget", budget, 0)):
        if value is not None and value < least:
            raise ReadoutError(f"{what} {value} is not allowed: it must be at least {least}")
    ids = vocab.check_ids(token_ids)
    visible = ids if budget is None else ids[:budget]
    occurrence = spec.occurrence
    for finder in spec.find:
        if isinstance(finder, Closing) and finder.thinking is not None and len(visible) < len(ids):
            return None  # the end of a text is the end of its rollout
        anchor = None
        for count, anchor in enumerate(_occurrences(finder, visible, vocab, isinstance(occurrence, str)), 1):
            stop = anchor.start + (width or anchor.length)
            fits = (stop if whole else min(stop, len(ids))) <= len(visible)
            if occurrence == "last" or count == occurrence or (occurrence == "latest" and fits):
                return anchor if fits else None
        if anchor is not None:
            return None
    return None


def locate_extent(kind: Kind | None, token_ids: ArrayLike, vocab: Vocab, *, budget: int | None = None) -> Extent | None:
    """Where the last answer opens and closes; None where there is none, or where it never closes within the budget.

    The fallbacks of the delimiter do not count: an answer without a box has no brace.
    """
    ids = vocab.check_ids(token_ids)
    closing = _closing(kind, markers_for(vocab))
    if closing.thinking is not None and budget is not None and budget < len(ids):
        return None  # the end of a text is the end of its rollout
    return _extent(closing, ids if budget is None else ids[:budget], vocab)


# -- occurrences, in order or backwards --------------------------------------------------------------


def _occurrences(finder: Finder, ids: Ids, vocab: Vocab, backwards: bool) -> Iterator[Anchor]:
    if isinstance(finder, Fence):
        yield from (block.opening for block in _fences(finder, ids, vocab, backwards))
    elif isinstance(finder, Closing):
        if (extent := _extent(finder, ids, vocab)) is not None:
            yield extent.closing
    elif isinstance(finder, TokenSet):
        yield from _singles(finder.family, np.flatnonzero(_members(finder, vocab)[ids]), backwards)
    else:
        yield from _markers(finder, ids, vocab, backwards)


def _singles(family: str, at: Ids, backwards: bool) -> Iterator[Anchor]:
    return (Anchor(start, 1, family) for start in (at[::-1] if backwards else at).tolist())


def _members(tokens: TokenSet, vocab: Vocab) -> NDArray[np.bool_]:
    return vocab.cached(tokens, lambda: vocab.tokens_matching(_regex(tokens.pattern)))


def _markers(marker: Marker, ids: Ids, vocab: Vocab, backwards: bool) -> Iterator[Anchor]:
    literal, prefix, regex = vocab.cached(marker, lambda: _compile(marker, vocab))
    if prefix:
        at = vocab.openings(prefix, ids)
    else:
        at = np.flatnonzero(ids == ord(literal[0]) - 256)
        if len(literal) == 1 and not marker.tail:
            yield from _singles(marker.family, at, backwards)
            return
    reach = len(literal) + (TAIL_SYMBOLS if marker.tail else 0)
    for start in (at[::-1] if backwards else at).tolist():
        text = vocab.symbols(int(ids[start]))
        own, edges = len(text), [len(text)]
        position = start + 1
        while len(text) < own - 1 + reach and position < len(ids):
            text += vocab.symbols(int(ids[position]))
            edges.append(len(text))
            position += 1
        match = regex.search(text)
        if match and match.start() < own:
            yield Anchor(start, bisect_right(edges, match.end() - 1) + 1, marker.family)


def _compile(marker: Marker, vocab: Vocab) -> tuple[str, bytes, re.Pattern[str]]:
    """The marker's literal, the bytes it begins with, and its whole regex, in the symbols of this vocabulary."""
    literal, tail = marker.pattern.decode("latin-1"), marker.tail.decode("latin-1")
    for control, token in vocab.controls.items():
        text, symbol = control.decode("latin-1"), chr(256 + token)
        literal, tail = literal.replace(text, symbol), tail.replace(re.escape(text), symbol)
    text = "".join(takewhile(lambda symbol: ord(symbol) < 256, literal[:PREFIX_BYTES]))
    return literal, text.encode("latin-1"), _regex(re.escape(literal) + tail, re.ASCII)


# -- answers: blocks of code, boxes and texts ----------------------------------------------------------


def _response(boundary: Marker, thinking: Marker, ids: Ids, vocab: Vocab) -> Anchor | None:
    """What opens the final response: the last boundary; nothing, at 0, where no thinking began; None before the response."""
    opening = next(_markers(boundary, ids, vocab, backwards=True), None)
    if opening is None and next(_markers(thinking, ids, vocab, backwards=False), None) is None:
        opening = Anchor(0, 0, boundary.family)
    return opening


def _fences(fence: Fence, ids: Ids, vocab: Vocab, backwards: bool) -> Iterator[Block]:
    opening = _response(fence.boundary, fence.thinking, ids, vocab)
    if opening is not None:
        start = opening.start + opening.length
        blocks = fenced_blocks(ids[start:], vocab, start)
        yield from reversed(blocks) if backwards else blocks


def _extent(closing: Closing, ids: Ids, vocab: Vocab) -> Extent | None:
    """Where the last answer opens and closes; None where the rollout has none, or where it never closes."""
    if isinstance(closing.opening, Fence):
        block = next(_fences(closing.opening, ids, vocab, backwards=True), None)
        return None if block is None or block.closing is None else Extent(block.opening, block.closing)
    if closing.thinking is not None:
        opening = _response(closing.opening, closing.thinking, ids, vocab)
        return None if opening is None else Extent(opening, Anchor(len(ids), 0, CLOSING))
    opening = next(_markers(closing.opening, ids, vocab, backwards=True), None)
    end = None if opening is None else closing_brace(ids, vocab, opening)
    return None if opening is None or end is None else Extent(opening, end)


# -- the response in a text ----------------------------------------------------------------------------------------------


def markers_in(text: str) -> Markers:
    """The markers of the models that write such a text: gpt-oss names channels, and others think between `<think>` marks."""
    return MARKERS["gpt-oss" if "<|channel|>" in text else "qwen3"]


def text_response(text: str, markers: Markers | None = None) -> tuple[int, int] | None:
    """Where the marker that opens the final response of a text begins and ends; None if it has no response.

    Both are 0 where no marker opens it. This is what an `Extent` of kind "text" is for token ids. Without `markers` the
    text tells whose they are.
    """
    markers = markers or markers_in(text)
    if (opening := _last_in(text, markers.boundary)) is not None:
        return opening
    return (0, 0) if _last_in(text, markers.thinking) is None else None


def _last_in(text: str, marker: Marker) -> tuple[int, int] | None:
    pattern, tail = marker.pattern.decode(), _text_regex(marker.tail.decode())
    at = text.rfind(pattern)
    while at >= 0:
        if (found := tail.match(text, at + len(pattern))) is not None:
            return at, found.end()
        at = text.rfind(pattern, 0, at)
    return None


@cache
def _text_regex(pattern: str) -> re.Pattern[str]:
    return _regex(pattern, re.ASCII)
