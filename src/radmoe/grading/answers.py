r"""What a rollout answered: the last `\boxed{...}`, the last fenced block of the response, or the response itself.

Selection defines where the response begins, and what a block and a box are (`radmoe.selection.anchors`, `radmoe.selection.closing`): the answer that
is graded is the one whose opening selection looks for. More is accepted only where there is no `\boxed{` at all: `\fbox{...}`,
`\boxed 5`, and the letter of a choice that is stated in words.
"""

from __future__ import annotations

import re

from radmoe.grading.choices import letter_of, letters_in, stated_letter
from radmoe.grading.latex import normal_form
from radmoe.grading.texts import plain_text
from radmoe.selection.anchors import text_response
from radmoe.selection.closing import BOX, CONTROL_TOKEN, text_blocks, text_boxes, text_brace
from radmoe.types import Kind, check_kind

_OTHER_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*(\{)?")
_UNBRACED = re.compile(
    r"-?(?:\d[\d,]*(?:\.\d+)?|\.\d+)|[A-Z](?![A-Za-z])|\\[dt]?frac\s*(?:\d\s*\d|(?:\{[^{}]*\}\s*){2})"
)
_SPACE = r"(?:[ \t$*]|\\[,;:! ()\[\]]|\\q?quad(?![A-Za-z])|\n(?![ \t]*\n))*"
_NAME = rf"(?P<name>[A-Za-z](?:_(?:\w|\{{\w{{1,3}}\}}))?{_SPACE}={_SPACE})?"
_FIRST_NAME = re.compile(rf"(?<![A-Za-z\\]){_NAME}\Z")
_BETWEEN = re.compile(  # nothing but a comma, "and" or "or", and perhaps the name of what comes next
    rf"{_SPACE}(?:(?:[,;&]|(?:and|or)(?![A-Za-z])|\\(?:text|mathrm|textrm)\{{\s*(?:,\s*)?(?:and|or)\s*\}}){_SPACE})+{_NAME}"
)
_LONGEST_NAME = 24


def boxed(text: str) -> str | None:
    r"""The inside of the last box; None where there is none, or where the last one never closes.

    The last box is the last `\boxed{`. Only where there is none it is the last `\fbox{...}`, `\framebox{...}` or `\boxed {...}`, or
    `\boxed` right before a number, a fraction or a capital letter.
    """
    inside, end = next(text_boxes(text), (-1, -1))
    if inside < 0:
        return _other_box(text)
    return text[inside:end] if end >= 0 else None


def _other_box(text: str) -> str | None:
    for box in reversed(list(_OTHER_BOX.finditer(text))):
        if box[1]:
            end = text_brace(text, box.end())
            return text[box.end() : end] if end >= 0 else None
        if unbraced := _UNBRACED.match(text, box.end()):
            return unbraced[0]
    return None


def _boxed_statement(text: str) -> tuple[list[str], str] | None:
    r"""The boxes of the statement that ends with the last box, and what they say together; None without a box.

    They are several where nothing but a comma, "and" or "or" stands between them: `\boxed{1}` and `\boxed{2}` say `1, 2`, and
    `x = \boxed{1}`, `y = \boxed{2}` say `x = 1, y = 2`. Otherwise it is the last box alone.
    """
    last = boxed(text)
    if last is None:
        return None
    insides, names = [last], list[str]()
    boxes = text_boxes(text)
    begin, _ = next(boxes, (-1, -1))
    for inside, end in boxes:
        between = _BETWEEN.fullmatch(text, end + 1, begin - len(BOX)) if end >= 0 else None
        if between is None:
            break
        insides.append(text[inside:end])
        names.append(between["name"] or "")
        begin = inside
    if names:
        opening = begin - len(BOX)
        first = _FIRST_NAME.search(text, max(0, opening - _LONGEST_NAME), opening)
        names.append((first and first["name"]) or "")
    named = names if all(names) else [""] * len(insides)
    together = ", ".join(name + inside for name, inside in zip(named[::-1], insides[::-1], strict=False))
    return insides, together if names else last


def response(text: str) -> str | None:
    """What follows the thinking, without end tokens and blanks at its end; None while the thinking has not ended."""
    opening = text_response(text)
    if opening is None:
        return None
    final = text[opening[1] :].rstrip()
    while (at := final.rfind("<")) >= 0 and CONTROL_TOKEN.fullmatch(final, at):
        final = final[:at].rstrip()
    return final


def fenced(text: str) -> str | None:
    """The body of the last fenced block of the response; one left open runs to the end. None without one."""
    final = response(text)
    blocks = text_blocks(final) if final is not None else []
    if final is None or not blocks:
        return None
    opening, closing = blocks[-1]
    end = len(final) if closing is None else closing.start()
    ended = CONTROL_TOKEN.match(final, opening.end())  # as a line break does, a control token ends the line of a fence
    body = final[ended.end() if ended else opening.end() + 1 : end].removesuffix("\n")
    return "\n".join(line.removeprefix(opening[1]) for line in body.split("\n"))


def normalise(kind: Kind, answer: str, *, integer: bool = True, letters: str = "") -> str | None:
    """The normal form of an answer, one string however it is written; None if nothing is left. Raises InputError for an unknown kind.

    `integer` matters for math alone: of `m + n = 25` only the last side counts. Without it the answer is LaTeX, and an
    equation stays one. `letters` are those of the options of a choice; empty where they are not known. A text keeps
    everything but the width of its blanks; `texts.same_text` compares.
    """
    check_kind(kind)
    if kind == "code":
        return answer.strip("\n").rstrip() or None
    if kind in ("text", "agent"):
        return plain_text(answer) or None
    if kind == "math":
        return normal_form(answer, integer=integer)
    return letter_of(answer, letters)


def extract(kind: Kind, text: str, *, integer: bool = True, letters: str = "") -> str | None:
    """The normalised answer of a rollout; None where there is none. The options are those of `normalise`.

    Where the box of a choice names no letter, the letter that the response states counts.
    """
    check_kind(kind)
    if kind == "code":
        answer = fenced(text)
        return None if answer is None else normalise(kind, answer)
    if kind in ("text", "agent"):
        final = response(text)
        if final is None:
            return None
        return normalise(kind, final) if boxed(final) is None else _boxed_answer(kind, final, integer, letters)
    answer = _boxed_answer(kind, text, integer, letters)
    if kind == "choice" and (answer is None or not letters_in(answer, letters)) and (final := response(text)):
        answer = stated_letter(final, letters, whole=answer is None) or answer
    return answer


def _boxed_answer(kind: Kind, text: str, integer: bool, letters: str) -> str | None:
    """The normalised answer that the last boxes give; None where there is none. One answer written twice is one answer."""
    boxes = _boxed_statement(text)
    if boxes is None:
        return None
    insides, together = boxes
    alone = {normalise(kind, inside, integer=integer, letters=letters) for inside in insides}
    return alone.pop() if len(alone) == 1 else normalise(kind, together, integer=integer, letters=letters)
