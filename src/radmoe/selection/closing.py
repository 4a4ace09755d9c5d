"""What a block of code and a box are: the fences around a block, and the brace that closes a box.

Selection finds both in the bytes that the token ids spell, as it finds the markers that open an answer (`radmoe.selection.anchors`).
Grading finds them in a text. Both go by the rules below, so they mean the same block and the same box. They read a string
in which control tokens are replaced: those of token ids are known by their ids, and those of a text by their spelling
(`<|...|>`, `<think>`, `<tool_call>`, `<tool_response>` and what ends these).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from radmoe.types import Anchor, Kind
from radmoe.vocab import Vocab

CLOSING = "closing"  # the family of what closes an answer
BOX = "\\boxed{"
REACH = 64  # tokens in which most boxes close

Ids = NDArray[np.intp]
T = TypeVar("T")

_CONTROL = "\uffff"  # what stands in the place of a control token
_SYMBOL = re.compile(r"[^\x00-\xff]")  # a control token as a vocabulary has it
CONTROL_TOKEN = re.compile(r"<\|[^|<>\s]{1,40}\|>|</?(?:think|tool_call|tool_response)>")  # and as a text has it
_FENCE_LINE = re.compile(r"^([ \t]*)(`{3,})([^`\n]*)$", re.MULTILINE)
_LINE_BREAK = re.compile(f"[\r{_CONTROL}]")
_BRACE = re.compile(rf"\\[^{_CONTROL}]|[{{}}]|{_CONTROL}")  # a backslash takes the next character with it


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
    opened = paired(_fence_tokens(ids, vocab, shift))
    return [
        Block(opening, None if closing is None else Anchor(closing.start, closing.length, CLOSING))
        for opening, closing in opened
    ]


def _fence_tokens(ids: Ids, vocab: Vocab, shift: int) -> Iterator[tuple[re.Match[str], Anchor]]:
    """The lines that may be fences, each with the tokens of its backticks."""
    runs = vocab.openings(b"```", ids)
    if not runs.size:
        return
    breaks = np.flatnonzero(
        vocab.cached("line breaks", lambda: vocab.tokens_with(b"\n") | vocab.tokens_with(b"\r"))[ids]
    )
    edges = np.concatenate(([0], breaks, [len(ids) - 1]))
    lows = edges[np.searchsorted(breaks, runs)].tolist()  # the last break before the run's token
    highs = edges[np.searchsorted(breaks, runs, "right") + 1].tolist()  # the first break behind it
    segment = [lows[0], highs[0]]
    for low, high in zip([*lows[1:], len(ids)], [*highs[1:], 0], strict=True):
        if low <= segment[1]:
            segment[1] = max(segment[1], high)
            continue
        pieces = [vocab.symbols(token) for token in ids[segment[0] : segment[1] + 1].tolist()]
        ends = list(accumulate(map(len, pieces)))
        for line in _fence_lines(_replaced("".join(pieces))):
            first, last = bisect_right(ends, line.start(2)), bisect_right(ends, line.end(2) - 1)
            yield line, Anchor(shift + segment[0] + first, last - first + 1, "delimiter")
        segment = [low, high]


def closing_brace(ids: Ids, vocab: Vocab, opening: Anchor) -> Anchor | None:
    """The token of the brace that closes the box which `opening` opens; None where it never closes.

    As in LaTeX, a backslash takes the next character with it, so that `\\{` and `\\}` do not count and a brace behind a line
    break (`\\\\`) does. A box does not reach beyond a control token.
    """
    reach = max(REACH, opening.length)
    while True:
        pieces = [vocab.symbols(token) for token in ids[opening.start : opening.start + reach].tolist()]
        text = _replaced("".join(pieces))
        brace = _closing_brace(text, text.index(BOX) + len(BOX))
        if brace >= 0:
            token = bisect_right(list(accumulate(map(len, pieces))), brace)
            return Anchor(opening.start + token, 1, CLOSING)
        if _CONTROL in text or opening.start + reach >= len(ids):
            return None
        reach *= 4  # what was read so far is read again, which is a third of the work


def answer_text(extent: Extent, token_ids: NDArray[np.integer[Any]], vocab: Vocab, kind: Kind) -> str:
    """What an answer says: the inside of its box, the lines of its block, or the text itself.

    This is the one place where selection looks at an answer, and only what compares text calls it (`radmoe.selection.overlap`).
    Control tokens count as blanks.
    """
    start, stop = extent.span
    if kind == "text":
        start += extent.opening.length
    text = _replaced(vocab.spelled(token_ids[start:stop]))
    if kind in ("math", "choice"):
        inside = text.index(BOX) + len(BOX)
        text = text[inside : _closing_brace(text, inside)]
    elif kind == "code":
        text = _LINE_BREAK.sub("\n", text).partition("\n")[2]
        text = text[: [line.start() for line in _fence_lines(text)][-1]]
    return text.replace(_CONTROL, " ").encode("latin-1").decode("utf-8", "replace")


# -- the same in a text ------------------------------------------------------------------------------------------------


def text_blocks(text: str) -> list[tuple[re.Match[str], re.Match[str] | None]]:
    """All blocks of code in a text, in order: the line that opens each, and the one that closes it.

    The second is None where the block never closes. Their groups are the indentation, the backticks and the info string.
    """
    return paired((line, line) for line in _fence_lines(_spelled_replaced(text)))


def text_boxes(text: str) -> Iterator[tuple[int, int]]:
    """Where the insides of the boxes of a text lie, the last box first. A box that never closes ends at -1."""
    replaced, at = _spelled_replaced(text), text.rfind(BOX)
    while at >= 0:
        yield at + len(BOX), _closing_brace(replaced, at + len(BOX))
        at = text.rfind(BOX, 0, at)


def text_brace(text: str, inside: int) -> int:
    """Where the braces of a text close that are open at a place; -1 where they never do."""
    return _closing_brace(_spelled_replaced(text), inside)


# -- the rules -----------------------------------------------------------------------------------------------------------


def paired(lines: Iterable[tuple[re.Match[str], T]]) -> list[tuple[T, T | None]]:
    """Return the blocks among lines that may be fences, each as what opens it and what closes it (None if nothing does).

    Every line comes with a value that stands for it in the result, such as its token.

    A block closes at a bare run of backticks that is at least as long as the one that opened it, and at most three columns
    deeper.
    """
    blocks: list[tuple[T, T | None]] = []
    unclosed: tuple[int, int] | None = None  # columns and backticks of the fence that opened the current block
    for line, what in lines:
        columns, ticks = len(line[1].expandtabs(4)), len(line[2])
        if unclosed is None:
            unclosed = columns, ticks
            blocks.append((what, None))
        elif not line[3].strip(" \t") and ticks >= unclosed[1] and columns <= unclosed[0] + 3:
            unclosed = None
            blocks[-1] = blocks[-1][0], what
    return blocks


def _fence_lines(replaced: str) -> Iterator[re.Match[str]]:
    return _FENCE_LINE.finditer(_LINE_BREAK.sub("\n", replaced))


def _closing_brace(replaced: str, inside: int) -> int:
    """Where the box closes whose inside begins here; -1 where it never does, or a control token comes first."""
    depth = 1
    for brace in _BRACE.finditer(replaced, inside):
        if brace[0] == _CONTROL:
            break
        depth += (brace[0] == "{") - (brace[0] == "}")
        if depth == 0:
            return brace.start()
    return -1


def _replaced(symbols: str) -> str:
    return _SYMBOL.sub(_CONTROL, symbols)


def _spelled_replaced(text: str) -> str:
    return CONTROL_TOKEN.sub(lambda token: _CONTROL * len(token[0]), text)
