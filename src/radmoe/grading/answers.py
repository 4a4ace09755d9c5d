r"""What a rollout answered: the last `\boxed{...}`, the last fenced block of the response, or the response itself."""

from __future__ import annotations

import re

from radmoe.grading.latex import normal_form
from radmoe.types import Kind

_BOX = "\\boxed{"
_BRACE = re.compile(r"\\boxed\{|[{}]")
_FINAL = ("</think>", "<|channel|>final<|message|>")  # what the response follows
_THINKING = ("<think>", "<|channel|>analysis<|message|>")
_END = re.compile(r"(<\|[a-z_]+\|>|\s)+\Z")
_FENCE = re.compile(r"^([ \t]*)(`{3,})([^`\n]*)$")
_WRAP = re.compile(r"\\(?:text|mathrm|mathbf|textbf|textit|mathit|operatorname|mbox|boxed)\s*\{([^{}]*)\}")
_NOISE = re.compile(r"\\[,;!:() ]|[$\s*{}]|\\(?:left|right)(?![A-Za-z])")
_LETTER = re.compile(
    r"(?:(?:final\s+)?(?:answer|option|choice)\s*(?:is|:)?\s*)?\(?\s*([A-Za-z])\s*\)?\s*(?:$|[.):]|,(?!\s*\(?[A-Za-z]\b))",
    re.I,
)


def boxed(text: str) -> str | None:
    """The inside of the last `\\boxed{...}` whose braces balance; None without one."""
    last, opened = (-1, -1), list[int]()  # where the open braces begin; -1 for a brace that opens no box
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            opened.append(brace.end() if brace[0] == _BOX else -1)
        elif opened:
            start = opened.pop()
            if start > last[0]:
                last = start, brace.start()
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
    equation stays one. A text keeps everything but the width of its blanks.
    """
    if kind == "code":
        return answer.strip("\n").rstrip() or None
    if kind in ("text", "agent"):
        return " ".join(answer.split()) or None
    if kind == "math":
        return normal_form(answer, integer=integer)
    before = None
    while before != answer:
        before, answer = answer, _WRAP.sub(r"\1", answer)
    letter = _LETTER.match(_NOISE.sub(" ", answer).strip())
    return letter[1].upper() if letter else _NOISE.sub("", answer) or None


def extract(kind: Kind, text: str, *, integer: bool = True) -> str | None:
    """The normalised answer of a rollout; None where there is none."""
    if kind == "code":
        answer = fenced(text)
    elif kind in ("text", "agent"):
        unfinished = any(mark in text for mark in _THINKING) and not any(mark in text for mark in _FINAL)
        answer = None if unfinished else response(text)
    else:
        answer = boxed(text)
    return None if answer is None else normalise(kind, answer, integer=integer)
