r"""Equations, inequalities, intervals and sets that a condition describes.

`1 < x \leq 2`, `x \in (1, 2]`, `]1, 2]` and `\{x : 1 < x \leq 2\}` are one interval, `x < 1 \text{ or } x > 2` is a union,
and `x \neq 2` is the line without a point. An expression is a list of atoms; `read` takes one apart (`latex.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from radmoe.grading.shapes import Shape, balanced, build, consecutive, named, outer, split, text, trim
from radmoe.grading.syntax import variables
from radmoe.grading.tokens import join, rewrite

Read = Callable[[list[str]], Shape]

LESS = {"<": ("(", False), "\\leq": ("[", False), ">": ("(", True), "\\geq": ("[", True)}
RELATION = {"=", "\\neq", "\\equiv", "\\to", "\\mid", "\\in", "\\notin", "\\not\\equiv", *LESS}
REALS = "\\mathbb{R}"
_TURNED = {">": "<", "\\geq": "\\leq", "<": ">", "\\leq": "\\geq"}
_GREEK = r"\\(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|rho|sigma|tau|phi|varphi|omega)"
_VARIABLE = re.compile(rf"([A-Za-z]|{_GREEK})(_\{{[^{{}}]*\}})?'*")
_NAME = re.compile(
    r"(m? ?\\(angle|triangle|max|min|det|gcd) ?)?"
    r"(\\frac\{d ?[A-Za-z]?\}\{d ?[A-Za-z]\}|\\text\{[^{}]*\}|[|\[]?[A-Za-z]( [A-Za-z]){0,4}[|\]]?|\\overline\{[A-Z ]+\}|"
    + _GREEK
    + r")(_\{[^{}]*\})?'*"
    r"(\([^()=]*\))?"
)
_NAMES = re.compile(r"(\\\{)?\([A-Za-z]([,;] ?[A-Za-z])+\)(\\\})?")
_CLOSED_FORM = re.compile(
    r"(?:\\(?:frac|sqrt|binom|cdot|pi|ln|log|lg|sin|cos|tan|exp)(?![A-Za-z])|[0-9+\-/()!^_{} .ei])+"
)
_DECIMAL = re.compile(r"-?\d*\.\d+(\\ldots)?|-?\d+\.?\\ldots")
_DOMAIN = re.compile(r"\\mathbb\{[A-Z]\}([_^]\{[^{}]*\}){0,2}")
_COUNTERS = "kntsmjlpqrabcd"


def relation(expression: list[str], integer: bool, read: Read) -> Shape:
    """An expression with a relation in it. Of an equation with a name on one side, the other side is the answer."""
    signs = [atom for _, atom in outer(expression) if atom in RELATION]
    sides = [trim(side) for side in split(expression, RELATION)]
    if not all(sides):
        return text(join(expression))
    first, kinds = join(sides[0]), set(signs)
    if kinds == {"="}:
        return _equation(sides, integer, read)
    if signs == ["\\in"] and (_NAME.fullmatch(first) or _NAMES.fullmatch(first)):
        return as_interval(read(sides[1]))
    if signs == ["\\neq"] and _VARIABLE.fullmatch(first):
        return without([read(sides[1])])
    if kinds <= LESS.keys() and len({LESS[sign][1] for sign in signs}) == 1:
        if LESS[signs[0]][1]:
            sides, signs = sides[::-1], [_TURNED[sign] for sign in signs[::-1]]
        return _inequality(sides, signs, read) or build(" ".join(signs), map(read, sides))
    return text(join(expression))


def _equation(sides: list[list[str]], integer: bool, read: Read) -> Shape:
    first, last = join(sides[0]), join(sides[-1])
    exact = [side for side in sides if not _DECIMAL.fullmatch(join(side))]
    if integer:
        value = read(sides[-1])
        return value if value.kind == "number" else next((v for v in map(read, sides) if v.kind == "number"), value)
    if len(sides) == 2 and _NAMES.fullmatch(first):
        names, value = re.findall("[A-Za-z]", first), read(sides[1])
        return named(names, value.parts) if value.kind == "()" and len(value.parts) == len(set(names)) else value
    if _NAME.fullmatch(first):
        closed = [side for side in exact[1:] if _CLOSED_FORM.fullmatch(join(side))]
        value = read(closed[-1] if len(sides) > 2 and closed else sides[-1])
        depends = value.tree is not None and bool(variables(value.tree))
        return build("=", map(read, sides)) if depends and len(sides) == 2 and _VARIABLE.fullmatch(first) else value
    if all(_CLOSED_FORM.fullmatch(join(side)) for side in exact) and exact:
        return read(exact[-1])
    if len(sides) == 2 and _NAME.fullmatch(last):
        return relation([*sides[1], "=", *sides[0]], integer, read)
    return build("=", map(read, sides))


def name_and_value(part: list[str]) -> tuple[str, list[str]]:
    """The name before a single `=`, or `(x, y)` in this order, and what follows. Where there is none, an empty name and the whole expression."""
    sides = split(part, {"="})
    name = join(sides[0])
    ordered = _NAMES.fullmatch(name) and consecutive(tuple(re.findall("[A-Za-z]", name)))
    if len(sides) == 2 and sides[1] and (_NAME.fullmatch(name) or ordered):
        return name, sides[1]
    return "", part


# -- intervals -------------------------------------------------------------------------------------------------------


def as_interval(shape: Shape) -> Shape:
    """A pair in round brackets as an interval, for places where only an interval makes sense."""
    if shape.kind == "()" and len(shape.parts) == 2 and "\\infty" not in shape.normal:
        return build("interval", shape.parts)
    return shape


def interval(left: str, low: Shape, high: Shape, right: str) -> Shape:
    """An interval with these brackets; the whole line is the real numbers."""
    if (low.normal, high.normal) == ("-\\infty", "\\infty"):
        return text(REALS)
    return as_interval(build(left + right, (low, high)))


def _inequality(sides: list[list[str]], signs: list[str], read: Read) -> Shape | None:
    r"""`1 < x \leq 2` as `(1, 2]`, `|x| < 3` as `(-3, 3)`; None if it is no condition on one variable."""
    plain = [_VARIABLE.fullmatch(join(side)) is not None for side in sides]
    distance = [side[0] == side[-1] == "|" and bool(_VARIABLE.fullmatch(join(side[1:-1]))) for side in sides]
    bracket = LESS[signs[0]][0], ")" if signs[-1] == "<" else "]"
    if distance == [True, False]:
        return interval("(" if bracket[1] == ")" else "[", read(_minus(sides[1])), read(sides[1]), bracket[1])
    if distance == [False, True]:
        outside = [
            interval("(", text("-\\infty"), read(_minus(sides[0])), ")" if bracket[0] == "(" else "]"),
            interval(bracket[0], read(sides[0]), text("\\infty"), ")"),
        ]
        return build("union", outside)
    if plain == [True, False]:
        return interval("(", text("-\\infty"), read(sides[1]), bracket[1])
    if plain == [False, True]:
        return interval(bracket[0], read(sides[0]), text("\\infty"), ")")
    if plain == [False, True, False]:
        return interval(bracket[0], read(sides[0]), read(sides[2]), bracket[1])
    return None


def _minus(side: list[str]) -> list[str]:
    single = not any(atom in ("+", "-") for _, atom in outer(side))
    return ["-", *side] if single else ["-", "(", *side, ")"]


def turned_brackets(expression: list[str]) -> list[str]:
    """`]1, 2[` as `(1, 2)`. A bracket turned the wrong way round belongs to an interval that is open there."""
    out, opened = list[str](), list[bool]()  # for each open bracket, whether a separator came since
    for at, atom in enumerate(expression):
        behind = at > 0 and expression[at - 1] not in (",", ";", "\\cup", "(", "[", "\\{", "=", "\\in")
        if atom in ("(", "\\{") or (atom == "[" and not (opened and opened[-1] and behind)):
            opened.append(False)
        elif atom == "]" and not opened:
            opened.append(False)
            atom = "("
        elif atom in (")", "]", "\\}", "["):
            if not opened:
                return expression
            opened.pop()
            atom = ")" if atom == "[" else atom
        elif atom in (",", ";") and opened:
            opened[-1] = True
        out.append(atom)
    return out if balanced(out) else expression


# -- several conditions ----------------------------------------------------------------------------------------------


def conditions(items: list[list[str]], either: bool, read: Read) -> Shape | None:
    """Conditions on one variable, joined by "or" or by "and"; None if they are anything else."""
    signs = [[atom for _, atom in outer(item) if atom in RELATION] for item in items]
    subjects = {
        next((join(side) for side in split(item, RELATION) if _VARIABLE.fullmatch(join(side))), "") for item in items
    }
    if len(subjects - {""}) != 1:
        return None
    if signs[0] == ["\\neq"] and all(sign in ([], ["\\neq"]) for sign in signs):
        return without([read(split(item, RELATION)[-1]) for item in items])
    if not all(sign and (set(sign) <= LESS.keys() or (either and sign == ["\\in"])) for sign in signs):
        return None
    shapes = [read(item) for item in items]
    if not all(_is_interval(shape) for shape in shapes):
        return None
    if either:
        return build("union", shapes)
    return _both(shapes) if len(shapes) == 2 else None


def _is_interval(shape: Shape) -> bool:
    return shape.kind == "interval" or (shape.kind in ("()", "(]", "[)", "[]") and len(shape.parts) == 2)


def _both(shapes: list[Shape]) -> Shape | None:
    """What is above one bound and below another. Bounds in the wrong order mean "or" (`x < 1, x > 2`)."""
    above = [shape for shape in shapes if shape.parts[1].normal == "\\infty"]
    below = [shape for shape in shapes if shape.parts[0].normal == "-\\infty"]
    if len(above) != 1 or len(below) != 1:
        return None
    low, high = above[0].parts[0], below[0].parts[1]
    if low.value is not None and high.value is not None and low.value >= high.value:
        return build("union", shapes)
    return interval(above[0].kind[0], low, high, below[0].kind[1])


def without(removed: list[Shape], everything: str = REALS) -> Shape:
    r"""A set without some points: `\mathbb{R} \setminus \{1, 2\}`."""
    points = [part for shape in removed for part in (shape.parts if shape.kind in ("list", "set") else (shape,))]
    return build("\\setminus", (text(everything), build("set", points)))


def union(parts: list[Shape], top: bool) -> Shape:
    """A union. Finite sets make one set, and open intervals that meet make the line without the points where they do."""
    if all(part.kind == "set" for part in parts):
        points = build("set", (point for part in parts for point in part.parts))
        return build("list", points.parts) if top else points
    if all(part.kind in ("()", "interval") and len(part.parts) == 2 for part in parts):
        bounds = {part.parts[0].normal: part.parts[1] for part in parts}
        at, removed = bounds.pop("-\\infty", None), list[Shape]()
        while at is not None and at.normal in bounds:
            removed.append(at)
            at = bounds.pop(at.normal)
        if at is not None and at.normal == "\\infty" and not bounds and removed:
            return without(removed)
    return build("union", (build("()", part.parts) if part.kind == "interval" else part for part in parts))


# -- sets that a condition describes ---------------------------------------------------------------------------------


def described(inside: list[str], read: Read) -> Shape | None:
    r"""The inside of `\{x : ...\}`: an interval, a union, or all values of a formula; None if it is no such set."""
    for sign in (":", "\\mid", "|"):
        sides = split(inside, {sign})
        if len(sides) == 2 and all(sides):
            break
    else:
        return None
    left, right = sides
    element, domain = join(left), REALS
    if "\\in" in left:
        element, domain = map(join, split(left, {"\\in"})[:2])
    if _VARIABLE.fullmatch(element) and domain == REALS:
        return as_interval(read(right))
    return family(left, right, read)


def family(formula: list[str], condition: list[str], read: Read) -> Shape | None:
    r"""All values of a formula, as in `k\pi, k \in \mathbb{Z}`, whatever the counter is called; None if there is none."""
    if len(condition) < 3 or condition[1] != "\\in" or not _VARIABLE.fullmatch(counter := condition[0]):
        return None
    domain = join(condition[2:])
    if not _DOMAIN.fullmatch(domain) or counter not in _letters(formula):
        return None
    free = (letter for letter in _COUNTERS if letter == counter or letter not in _letters(formula))
    letter = next(free, counter)
    _, value = name_and_value(formula)
    renamed = _renamed(value, counter, letter)
    return build("family", (read(renamed), text(f"{letter}\\in{domain}")))


def _letters(expression: list[str]) -> set[str]:
    return set(re.findall(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])|\\[A-Za-z]+", " ".join(expression)))


def _renamed(expression: list[str], old: str, new: str) -> list[str]:
    return [new if atom == old else rewrite(atom, lambda inner: _renamed(inner, old, new)) for atom in expression]
