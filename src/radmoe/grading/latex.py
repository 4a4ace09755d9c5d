r"""The normal form of a LaTeX answer, and its structure: what can be decided without computer algebra.

Answers that differ in ornament alone (`\dfrac12`, `{ \frac{1}{2} }`, `0.5`, `x = 1/2`) have the same normal form. Lists,
tuples, intervals, unions and relations are taken apart here, so that algebra is asked about their parts only: asked
about wholes, it equates `(1,2)` with `1,2` and `1,2` with `2,1`. A part that may be read in two ways (`2 3`, `12_8`)
stays text and equals only itself.

An `expression` below is a list of atoms, as `tokens.py` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from radmoe.grading.tokens import NUMERIC, TRIG, WORKABLE, atoms, join, rewrite

UNORDERED = ("list", "union", "=")
_ROUNDS = 6
LONGEST = 400  # characters of an answer that is taken apart; a longer one is text
_OPEN, _CLOSE = {"(", "[", "\\{"}, {")", "]", "\\}"}
_ABOUT = {"\\approx", "\\simeq", "\\doteq", "\\sim"}
_LESS = {"<": ("(", False), "\\leq": ("[", False), ">": ("(", True), "\\geq": ("[", True)}
_RELATION = {"=", "\\neq", "\\equiv", "\\to", "\\mid", "\\in", *_LESS}
_LEADING = {"=", "+", "\\cdot", "\\therefore", "\\implies", "\\Rightarrow", "\\$", ":", *_ABOUT}
_TRAILING = {"\\cdot", ".", ",", ";", ":", "\\\\", "\\."}
_GREEK = r"\\(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|rho|sigma|tau|phi|varphi|omega)"
_VARIABLE = re.compile(rf"([A-Za-z]|{_GREEK})(_\{{[^{{}}]*\}})?'*")
_NAME = re.compile(
    r"(\\(angle|triangle|max|min|det|gcd) ?)?"
    r"(\\text\{[^{}]*\}|[|\[]?[A-Za-z]( [A-Za-z]){0,4}[|\]]?|\\overline\{[A-Z ]+\}|\([A-Za-z](, ?[A-Za-z])+\)|"
    + _GREEK
    + r")(_\{[^{}]*\})?'*(\([^()=]*\))?"
)
_RATIONAL = re.compile(r"(-?)(?:(\d+)|\\frac\{(-?)(\d+)\}\{(-?)(\d+)\}|(\d+)/(\d+)|(\d*)\.(\d+))(\\%)?")
_MIXED = re.compile(r"(-?)(\d+)\\frac\{(\d+)\}\{(\d+)\}")
_REPEATING = re.compile(r"(-?)(\d*)\.(\d*)\\overline\{(\d+)\}")
_DECIMAL = re.compile(r"\d*\.\d+")
_NUMBER = re.compile(r"\d*\.?\d+")
_UNITS = re.compile(r"(?<=.)(\^\{\\circ\})?((/|\\cdot)?\\text\{[^{}]*\}(\^\{-?\d\})?)*\Z")
_APPLIED = {"(", "\\ln", "\\log", "\\exp", *TRIG}  # in a divisor, what follows one of these belongs to it
_FACTOR = re.compile(r"[\d.A-Za-z(]|\\(?!cdot|\\)")
_LEAD_IN = re.compile(r"\\text\{.*(:|\bis|\bequals)\}")
_COUNTS = re.compile(  # words behind a number that change its value, or mean that it is not the whole answer
    r"\b(tens?|dozens?|hundreds?|thousands?|[mbtr]?illions?|percent|pct|or|and|not|if|when|for|where|mod|base|more|less|"
    r"than|over|above|below|times|squared|cubed|half|halves|thirds?|quarters?|pairs?|to|negative|minus|[ap]\.?m|bce?|north|south|"
    r"east|west|left|right|clockwise|counterclockwise|anticlockwise)\b"
)


@dataclass(frozen=True)
class Shape:
    """An answer taken apart.

    `kind` is number, text or algebra, which have no parts; list, union or =, whose parts have no order; or a pair of
    brackets, < or :=, whose parts do (with :=, a name comes first). `normal` is how the answer is always written.
    """

    kind: str
    normal: str
    parts: tuple[Shape, ...] = ()


@lru_cache(maxsize=4096)
def shape_of(answer: str, *, integer: bool = False) -> Shape | None:
    """An answer's structure; None if there is nothing. With `integer`, of `m + n = 5` too only the last side counts."""
    written = answer
    for _ in range(_ROUNDS if len(answer) <= LONGEST else 0):  # until reading what was written changes nothing
        try:
            shape = _shape(_trim(atoms(written)), integer)
        except RecursionError:
            break
        if not shape.normal:
            return None
        if shape.normal == written:
            return shape
        written = shape.normal
    plain = " ".join(answer.split())
    return _text(plain) if plain else None


def normal_form(answer: str, *, integer: bool = False) -> str | None:
    """An answer as it is always written; None if there is nothing. The normal form of a normal form is itself."""
    shape = shape_of(answer, integer=integer)
    return None if shape is None else shape.normal


# -- taking apart ----------------------------------------------------------------------------------------------------


def _shape(expression: list[str], integer: bool = False) -> Shape:
    if not expression or not _balanced(expression):
        return _text(join(expression))
    for at, atom in _outer(expression):
        if at and atom in _ABOUT:
            return _shape(_trim(expression[:at]), integer)
    items = [part for part in map(_trim, _split(expression, {",", ";"})) if part]
    if len(items) > 1:
        return _list(items)
    if any(atom in _RELATION for _, atom in _outer(expression)):
        return _relation(expression, integer)
    if "\\cup" in expression:
        parts = [part for part in map(_trim, _split(expression, {"\\cup"})) if part]
        if len(parts) > 1:
            return _unordered("union", [_shape(part) for part in parts])
    plain = join(expression)
    if plain.count("\\pm") == 1 and plain.count("\\mp") <= 1:
        signs = (plain.replace("\\pm", one).replace("\\mp", other) for one, other in ("+-", "-+"))
        both = [_trim(atoms(part)) for part in signs]
        return _unordered("list", [_shape(part) for part in both]) if all(both) else _text(plain)
    return _bracketed(expression, integer) or _leaf(expression)


def _list(items: list[list[str]]) -> Shape:
    """`x = 2, x = 3` is `2, 3`; `x = 2, y = 3` keeps its names."""
    named = [_named(part) for part in items]
    names = {name for name, _ in named if name}
    if len(names) < 2:
        return _unordered("list", [_shape(value) for _, value in named])
    parts = []
    for (name, value), whole in zip(named, items, strict=True):
        inner = _shape(value)
        parts.append(Shape(":=", f"{name}={inner.normal}", (_text(name), inner)) if name else _shape(whole))
    return _unordered("list", parts)


def _named(part: list[str]) -> tuple[str, list[str]]:
    """The name before a single `=`, and what follows it. Without one, an empty name and the whole part."""
    sides = list(_split(part, {"="}))
    if len(sides) == 2 and sides[1] and _NAME.fullmatch(name := join(sides[0])):
        return name, sides[1]
    return "", part


def _relation(expression: list[str], integer: bool) -> Shape:
    ops = [atom for _, atom in _outer(expression) if atom in _RELATION]
    sides = [_trim(side) for side in _split(expression, _RELATION)]
    if not all(sides):
        return _text(join(expression))
    kinds, first = set(ops), join(sides[0])
    if kinds == {"="}:
        last = join(sides[-1])
        if integer or _NAME.fullmatch(first) or (NUMERIC.fullmatch(first) and NUMERIC.fullmatch(last)):
            return _shape(sides[-1], integer)
        if len(sides) == 2 and _NAME.fullmatch(last):
            return _shape(sides[0])
        return _unordered("=", [_shape(side) for side in sides], " = ")
    if ops == ["\\in"] and _NAME.fullmatch(first):
        return _shape(sides[1])
    if kinds <= _LESS.keys() and len({_LESS[op][1] for op in ops}) == 1:
        if _LESS[ops[0]][1]:
            sides, ops = sides[::-1], [{">": "<", "\\geq": "\\leq"}[op] for op in ops[::-1]]
        return _interval(sides, ops) or _ordered("".join(ops), [_shape(side) for side in sides], f" {ops[0]} ")
    return _text(join(expression))


def _interval(sides: list[list[str]], ops: list[str]) -> Shape | None:
    """`1 < x \\leq 2` as `(1, 2]`; None if it is no interval of one variable."""
    plain = [_VARIABLE.fullmatch(join(side)) is not None for side in sides]
    if plain == [True, False]:
        sides, ops = [["-", "\\infty"], *sides], ["<", *ops]
    elif plain == [False, True]:
        sides, ops = [*sides, ["\\infty"]], [*ops, "<"]
    elif plain != [False, True, False]:
        return None
    left, right = _LESS[ops[0]][0], ")" if ops[1] == "<" else "]"
    return _ordered(left + right, [_shape(sides[0]), _shape(sides[2])])


def _bracketed(expression: list[str], integer: bool) -> Shape | None:
    """An expression that one pair of brackets encloses from end to end; None for any other."""
    if expression[0] not in _OPEN or next(at for at, depth in _depths(expression) if depth == 0) != len(expression) - 1:
        return None
    inside, brackets = expression[1:-1], expression[0] + expression[-1]
    if not inside:
        return _text(brackets)
    parts = [_trim(part) for part in _split(inside, {",", ";"})]
    if len(parts) == 1:
        one = any(atom in _RELATION or atom == ":" for _, atom in _outer(inside))
        return _shape(inside, integer) if brackets in ("()", "\\{\\}") and not one else None
    if not all(parts):
        return _text(join(expression))
    shapes = [_shape(part) for part in parts]
    return _unordered("list", shapes) if brackets == "\\{\\}" else _ordered(brackets, shapes)


def _leaf(expression: list[str]) -> Shape:
    expression = _without_units(expression)
    if expression[0] == "+":
        expression = expression[1:] or expression
    plain = join(expression)
    value = _value(plain)
    if value is not None:
        return Shape("number", _fraction(value))
    try:
        plain = join(_plain_products(expression))
    except _TwoWaysError:
        return _text(plain)
    if "{}" in plain or not WORKABLE.fullmatch(plain):
        return _text(plain)
    return Shape("algebra", _DECIMAL.sub(lambda decimal: _fraction(Fraction(decimal[0])), plain))


def _without_units(expression: list[str]) -> list[str]:
    """The expression without words and units around its value: `8\\text{ cm}^2`, `90^\\circ`, `\\text{The answer is }8`."""
    while len(expression) > 1 and _LEAD_IN.fullmatch(expression[0]):
        expression = expression[1:]
    plain = join(expression)
    units = _UNITS.search(plain)
    if units is None or "\\text" in plain[: units.start()] or _COUNTS.search(units[0]):
        return expression
    if units[0].startswith("^{\\circ}") and TRIG.intersection(expression):
        return expression
    return _trim(atoms(plain[: units.start()])) or expression


class _TwoWaysError(Exception):
    """An expression may be read in two ways."""


def _plain_products(expression: list[str]) -> list[str]:
    """The expression with a dot where a number, a fraction, a root or a bracket meets the next factor.

    Without the dot, algebra reads `3(2)` as 3 + 2. Raises _TwoWaysError for what algebra may read otherwise than its
    author did: `2 3`, `12_8`, `2\\frac{3}{4}\\pi`, `1/2x`, `2^3^4`.
    """
    out: list[str] = []
    for at, atom in enumerate(expression):
        before, number = expression[at - 1] if at else "", _NUMBER.fullmatch(atom)
        after_number = _NUMBER.fullmatch(before)
        index = atom[0] == "_" and not before[-1:].isalpha()
        power = atom[0] == "^" and before[:1] in ("", "^")
        beside = number and (after_number or before.isalpha() or (before[-1:] == "}" and before[0] not in "^_"))
        mixed = after_number and re.fullmatch(r"\\frac\{\d+\}\{\d+\}", atom)
        divided = (
            before == "/"
            and atom not in _APPLIED
            and _FACTOR.match(expression[at + 1] if at + 1 < len(expression) else "")
        )
        if index or power or beside or mixed or divided:
            raise _TwoWaysError
        factor = after_number or before == ")" or before.startswith(("\\frac", "\\sqrt"))
        if factor and (atom == "(" or atom.startswith("\\frac")):
            out.append("\\cdot")
        out.append(rewrite(atom, _plain_products))
    return out


# -- values and writing ----------------------------------------------------------------------------------------------


def _value(plain: str) -> Fraction | None:
    """The rational number that this is, if it is one: an integer, a fraction, an exact decimal, or one of these in percent."""
    if repeating := _REPEATING.fullmatch(plain):
        sign, whole, fixed, period = repeating.groups()
        part = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed))
        part += Fraction(int(fixed or "0"), 10 ** len(fixed))
        return (-1 if sign else 1) * (int(whole or "0") + part)
    if mixed := _MIXED.fullmatch(plain):
        sign, whole, top, bottom = mixed.groups()
        return (-1 if sign else 1) * (int(whole) + Fraction(int(top), int(bottom))) if int(top) < int(bottom) else None
    match = _RATIONAL.fullmatch(plain)
    if match is None:
        return None
    sign, whole, up, top, down, bottom, left, right, unit, decimals, percent = match.groups()
    if whole is not None:
        value = Fraction(int(whole))
    elif decimals is not None:
        value = Fraction(f"{unit or 0}.{decimals}")
    elif int(bottom or right) == 0:
        return None
    else:
        value = Fraction(int(top or left), int(bottom or right)) * (-1 if up else 1) * (-1 if down else 1)
    return value * (-1 if sign else 1) / (100 if percent else 1)


def _fraction(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return ("-" if value < 0 else "") + f"\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _text(plain: str) -> Shape:
    return Shape("text", plain)


def _ordered(kind: str, parts: list[Shape], between: str = ", ") -> Shape:
    inside = between.join(part.normal for part in parts)
    brackets = kind if kind[0] in "([" else ("", "")
    return Shape(kind, f"{brackets[0]}{inside}{brackets[1]}", tuple(parts))


def _unordered(kind: str, parts: list[Shape], between: str | None = None) -> Shape:
    parts = sorted(parts, key=lambda part: part.normal)
    joint = between or (" \\cup " if kind == "union" else ", ")
    return Shape(kind, joint.join(part.normal for part in parts), tuple(parts))


# -- brackets --------------------------------------------------------------------------------------------------------


def _depths(expression: list[str]) -> Iterator[tuple[int, int]]:
    depth = 0
    for at, atom in enumerate(expression):
        depth += (atom in _OPEN) - (atom in _CLOSE)
        yield at, depth


def _balanced(expression: list[str]) -> bool:
    depths = [depth for _, depth in _depths(expression)]
    return min(depths) >= 0 and depths[-1] == 0


def _outer(expression: list[str]) -> Iterator[tuple[int, str]]:
    """Atoms outside all brackets."""
    return ((at, expression[at]) for at, depth in _depths(expression) if depth == 0)


def _split(expression: list[str], at: set[str]) -> Iterator[list[str]]:
    cuts = [-1, *(i for i, atom in _outer(expression) if atom in at), len(expression)]
    return (expression[a + 1 : b] for a, b in pairwise(cuts))


def _trim(expression: list[str]) -> list[str]:
    start, stop = 0, len(expression)
    while start < stop and expression[start] in _LEADING:
        start += 1
    while start < stop and expression[stop - 1] in _TRAILING:
        stop -= 1
    return expression[start:stop]
