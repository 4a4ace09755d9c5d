r"""What a rollout answered: the last `\boxed{...}`, or for code the last fenced block of what follows the thinking."""

from __future__ import annotations

import re

from radmoe.grading.latex import normal_form

_BOX = "\\boxed{"
_BRACE = re.compile(r"\\boxed\{|[{}]")
_FINAL = ("</think>", "<|channel|>final<|message|>")
_END = re.compile(r"(<\|[a-z_]+\|>|\s)+\Z")
_FENCE = re.compile(r"^([ \t]*)(`{3,})([^`\n]*)$")
_WRAP = re.compile(r"\\(?:text|mathrm|mathbf|textbf|textit|mathit|operatorname|mbox|boxed)\s*\{([^{}]*)\}")
_NOISE = re.compile(r"\\[,;!:() ]|[$\s*{}]|\\(?:left|right)(?![A-Za-z])")
_LETTER = re.compile(
    r"(?:(?:final\s+)?(?:answer|option|choice)\s*(?:is|:)?\s*)?\(?\s*([A-Za-z])\s*\)?\s*(?:$|[.):]|,(?!\s*\(?[A-Za-z]\b))",
    re.I,
)


def boxed(text: str) -> str | None:
    """What stands in the last `\\boxed{...}` whose braces balance; None without one."""
    found, opened = (-1, -1), list[int]()  # where the braces that are open begin; -1 for one that opens no box
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            opened.append(brace.end() if brace[0] == _BOX else -1)
        elif opened:
            start = opened.pop()
            if start > found[0]:
                found = start, brace.start()
    return text[slice(*found)] if found[0] >= 0 else None


def fenced(text: str) -> str | None:
    """The body of the last fenced block behind the thinking; one left open runs to the end. None without one."""
    for marker in _FINAL:
        if marker in text:
            text = text.rpartition(marker)[2]
    found: list[str] | None = None
    opened: tuple[str, int] | None = None
    for line in _END.sub("", text).split("\n"):
        fence = _FENCE.match(line.rstrip("\r"))
        if opened is None:
            if fence:
                opened, found = (fence[1], len(fence[2])), []
        elif fence and not fence[3].strip() and len(fence[2]) >= opened[1] and len(fence[1]) <= len(opened[0]) + 3:
            opened = None
        elif found is not None:
            found.append(line.removeprefix(opened[0]))
    return None if found is None else "\n".join(found)


def normalise(kind: str, answer: str) -> str | None:
    """One string per answer, whatever its ornament: None if there is nothing left."""
    if kind == "code":
        return answer.strip("\n").rstrip() or None
    if kind != "choice":
        return normal_form(answer, integer=kind == "math")
    before = None
    while before != answer:
        before, answer = answer, _WRAP.sub(r"\1", answer)
    letter = _LETTER.match(_NOISE.sub(" ", answer).strip())
    return letter[1].upper() if letter else _NOISE.sub("", answer) or None


def extract(kind: str, text: str) -> str | None:
    """The normalised answer of a rollout; None where there is none."""
    found = fenced(text) if kind == "code" else boxed(text)
    return None if found is None else normalise(kind, found)
