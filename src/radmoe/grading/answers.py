r"""What a rollout answered: the last `\boxed{...}`, the last fenced block of the response, or the response itself."""

from __future__ import annotations

import re

from radmoe.grading.choices import letter_of, stated_letter
from radmoe.grading.latex import normal_form
from radmoe.grading.texts import plain_text
from radmoe.types import Kind

_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_BRACE = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{|(?<!\\)\\[{}]|[{}]")
_UNBRACED = re.compile(
    r"-?(?:\d[\d,]*(?:\.\d+)?|\.\d+)|[A-Z](?![A-Za-z])|\\[dt]?frac\s*(?:\d\s*\d|(?:\{[^{}]*\}\s*){2})"
)
_FINAL = ("</think>", "<|channel|>final<|message|>")  # what the response follows
_THINKING = ("<think>", "<|channel|>analysis<|message|>")
_END = re.compile(r"(<\|[a-z_]+\|>|\s)+\Z")
_FENCE = re.compile(r"^([ \t]*)(`{3,})([^`\n]*)$")


def boxed(text: str) -> str | None:
    r"""The inside of the last box; None without one.

    A box is `\boxed{...}`, `\fbox{...}` or `\framebox{...}` whose braces balance, with or without a blank before them, or
    `\boxed` right before a number, a fraction or a capital letter.
    """
    boxes = [box.start() for box in _BOX.finditer(text)]
    tries = 1
    while boxes:  # from the last box on, from the last two, the last four: the text before is not looked at
        start = boxes[max(len(boxes) - tries, 0)]
        inside = _last_box(text, start)
        if inside is not None or start == boxes[0]:
            return inside
        tries *= 2
    return None


def _last_box(text: str, start: int) -> str | None:
    """The inside of the last box from a place on; None without one."""
    last, opened = (-1, -1), list[int]()  # where the open braces begin; -1 for a brace that opens no box
    for brace in _BRACE.finditer(text, start):
        if brace[0] in ("\\{", "\\}"):
            continue
        if brace[0] != "}":
            opened.append(brace.end() if brace[0] != "{" else -1)
        elif opened:
            begin = opened.pop()
            if begin > last[0]:
                last = begin, brace.start()
    for box in _BOX.finditer(text, max(last[0], start)):
        if unbraced := _UNBRACED.match(text, box.end()):
            last = unbraced.span()
    return text[slice(*last)] if last[0] >= 0 else None


def response(text: str) -> str:
    """What follows the thinking, without end tokens and blanks at its end; all of it where there is no thinking."""
    for marker in _FINAL:
        if marker in text:
            text = text.rpartition(marker)[2]
    return _END.sub("", text)


def fenced(text: str) -> str | None:
    """The body of the last fenced block of the response; one left open runs to the end. None without one."""
    block: list[str] | None = None
    opened: tuple[str, int] | None = None
    for line in response(text).split("\n"):
        fence = _FENCE.match(line.rstrip("\r"))
        if opened is None:
            if fence:
                opened, block = (fence[1], len(fence[2])), []
        elif fence and not fence[3].strip() and len(fence[2]) >= opened[1] and len(fence[1]) <= len(opened[0]) + 3:
            opened = None
        elif block is not None:
            block.append(line.removeprefix(opened[0]))
    return None if block is None else "\n".join(block)


def normalise(kind: Kind, answer: str, *, integer: bool = True) -> str | None:
    """One string per answer, whatever its ornament; None if nothing is left.

    `integer` matters for math alone: of `m + n = 25` only the last side counts. Without it the answer is LaTeX, and an
    equation stays one. A text keeps everything but the width of its blanks; `texts.same_text` compares.
    """
    if kind == "code":
        return answer.strip("\n").rstrip() or None
    if kind in ("text", "agent"):
        return plain_text(answer) or None
    if kind == "math":
        return normal_form(answer, integer=integer)
    return letter_of(answer)


def extract(kind: Kind, text: str, *, integer: bool = True) -> str | None:
    """The normalised answer of a rollout; None where there is none."""
    if kind == "code":
        answer = fenced(text)
    elif kind in ("text", "agent"):
        answer = _final_text(text)
    else:
        answer = boxed(text)
        if answer is None and kind == "choice" and (final := _final_text(text)) is not None:
            answer = stated_letter(final)
    return None if answer is None else normalise(kind, answer, integer=integer)


def _final_text(text: str) -> str | None:
    """The response, or the box in it if there is one; None while the thinking has not ended."""
    if any(mark in text for mark in _THINKING) and not any(mark in text for mark in _FINAL):
        return None
    final = response(text)
    box = boxed(final)
    return final if box is None else box
