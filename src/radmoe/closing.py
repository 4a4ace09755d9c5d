"""Where an answer closes: the fence that closes a block of code, and the brace that closes a box.

Both are found in the bytes that the token ids spell, as the markers that open an answer are (`radmoe.anchors`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.types import Anchor, Kind
from radmoe.vocab import Vocab

CLOSING = "closing"  # the family of what closes an answer
BOX = "\\boxed{"
REACH = 64  # tokens in which most boxes close

Ids = NDArray[np.intp]

_FENCE_LINE = re.compile(r"^([ \t]*)(`{3,})([^`\n]*)$", re.MULTILINE)
_LINE_BREAK = re.compile("\r|[^\x00-\xff]")
_CONTROL = re.compile(r"[^\x00-\xff]")
_NEVER, _NOT_YET = -1, -2
_BRACE = re.compile(r"\\.|[{}]|[^\x00-\xff]", re.DOTALL)  # a backslash takes the next character with it


class Block(NamedTuple):
    """The fence that opens a block of code, and the one that closes it; None where the block never closes."""

    opening: Anchor
    closing: Anchor | None


class Extent(NamedTuple):
    """What opens an answer and what closes it.

    A text closes at the end of its rollout, where no token is: its closing has length 0. So has the opening of a text that
    no marker opens.
    """

    opening: Anchor
    closing: Anchor

    @property
    def span(self) -> tuple[int, int]:
        """The tokens [start, stop) from the first of the opening to the last of the closing."""
        return self.opening.start, self.closing.start + self.closing.length


def fenced_blocks(ids: Ids, vocab: Vocab, shift: int) -> list[Block]:
    """All blocks of code, in order; anchors count from `shift`. Only the lines around runs of backticks are decoded."""
    runs = vocab.openings(b"```", ids)
    if not runs.size:
        return []
    breaks = np.flatnonzero(
        vocab.cached("line breaks", lambda: vocab.tokens_with(b"\n") | vocab.tokens_with(b"\r"))[ids]
    )
    edges = np.concatenate(([0], breaks, [len(ids) - 1]))
    lows = edges[np.searchsorted(breaks, runs)].tolist()  # the last break before the run's token
    highs = edges[np.searchsorted(breaks, runs, "right") + 1].tolist()  # the first break behind it
    blocks: list[Block] = []
    unclosed: tuple[int, int] | None = None  # columns and backticks of the fence that opened the current block
    segment = [lows[0], highs[0]]
    for low, high in zip([*lows[1:], len(ids)], [*highs[1:], 0], strict=True):
        if low <= segment[1]:
            segment[1] = max(segment[1], high)
            continue
        pieces = [vocab.symbols(token) for token in ids[segment[0] : segment[1] + 1].tolist()]
        ends = list(accumulate(map(len, pieces)))
        for line in _FENCE_LINE.finditer(_LINE_BREAK.sub("\n", "".join(pieces))):
            columns, ticks = len(line[1].expandtabs(4)), len(line[2])
            first, last = bisect_right(ends, line.start(2)), bisect_right(ends, line.end(2) - 1)
            start, length = shift + segment[0] + first, last - first + 1
            if unclosed is None:
                unclosed = columns, ticks
                blocks.append(Block(Anchor(start, length, "delimiter"), None))
            elif not line[3].strip(" \t") and ticks >= unclosed[1] and columns <= unclosed[0] + 3:
                unclosed = None
                blocks[-1] = Block(blocks[-1].opening, Anchor(start, length, CLOSING))
        segment = [low, high]
    return blocks


def closing_brace(ids: Ids, vocab: Vocab, opening: Anchor) -> Anchor | None:
    """The token of the brace that closes the box which `opening` opens; None where it never closes.

    As in LaTeX, a backslash takes the next character with it, so that `\\{` and `\\}` do not count and a brace behind a line
    break (`\\\\`) does. A box does not reach beyond a control token.
    """
    reach = max(REACH, opening.length)
    while True:
        pieces = [vocab.symbols(token) for token in ids[opening.start : opening.start + reach].tolist()]
        brace = _closing_brace("".join(pieces))
        if brace >= 0:
            token = bisect_right(list(accumulate(map(len, pieces))), brace)
            return Anchor(opening.start + token, 1, CLOSING)
        if brace == _NEVER or opening.start + reach >= len(ids):
            return None
        reach *= 4  # what was read so far is read again, which is a third of the work


def _closing_brace(text: str) -> int:
    """Where the first box in a text closes: _NEVER if a control token comes first, _NOT_YET if the text ends before."""
    depth = 0
    for brace in _BRACE.finditer(text, text.index(BOX) + len(BOX) - 1):
        if ord(brace[0][-1]) > 255:
            return _NEVER
        depth += (brace[0] == "{") - (brace[0] == "}")
        if depth == 0 and brace[0] == "}":
            return brace.start()
    return _NOT_YET


def answer_text(extent: Extent, token_ids: NDArray[np.integer[Any]], vocab: Vocab, kind: Kind) -> str:
    """What an answer says: the inside of its box, the lines of its block, or the text itself.

    This is the one place where selection looks at an answer, and only what compares text calls it (`radmoe.overlap`).
    Control tokens count as blanks.
    """
    start, stop = extent.span
    if kind == "text":
        start += extent.opening.length
    text = vocab.spelled(token_ids[start:stop])
    if kind in ("math", "choice"):
        text = text[text.index(BOX) + len(BOX) : _closing_brace(text)]
    elif kind == "code":
        text = _LINE_BREAK.sub("\n", text).partition("\n")[2]
        text = text[: [line.start() for line in _FENCE_LINE.finditer(text)][-1]]
    return _CONTROL.sub(" ", text).encode("latin-1").decode("utf-8", "replace")
