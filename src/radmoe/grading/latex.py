r"""The normal form of a LaTeX answer, and its structure: what can be decided without computer algebra.

Answers that differ in ornament alone (`\dfrac12`, `{ \frac{1}{2} }`, `0.5`, `x = 1/2`) have the same normal form. Lists,
tuples, intervals, unions and relations are taken apart here, so that algebra is asked about their parts only. A part that
may be read in two ways (`2 3`, `12_8`) stays text and equals only itself.

An `expression` below is a list of atoms, as `tokens.py` reads them.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from radmoe.grading import relations
from radmoe.grading.dates import date_or_time
from radmoe.grading.exact import exact, written
from radmoe.grading.prose import COUNTS, LEAD_IN
from radmoe.grading.shapes import (
    ABOUT,
    OPEN,
    PERCENT,
    Shape,
    balanced,
    build,
    consecutive,
    depths,
    in_terms_of,
    is_short,
    number,
    outer,
    percentage,
    split,
    text,
    trim,
    with_unit,
)
from radmoe.grading.syntax import TRIG, UnreadableError, parse
from radmoe.grading.tokens import arguments_of, atoms, join, undressed
from radmoe.grading.units import CURRENCIES, plain_unit, unit_of

LONGEST = 400  # characters of an answer that is taken apart; a longer one is text
_ROUNDS = 6
_SEPARATORS = {",", ";", "\\land", "\\lor"}
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,29})")
_SIGN = re.compile(r"\\(pm|mp)(?![A-Za-z])")
_DECIMAL = re.compile(r"\d*\.\d+")
_INDEXED = re.compile(r"([A-Za-z]|\\[a-z]+)_\{\d+\}")
_MATRIX = re.compile(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", re.DOTALL)
_CASES = re.compile(r"\\begin\{(?:cases|array|gathered|split)\}(.*)\\end\{[a-z]+\}", re.DOTALL)
_BASE = re.compile(r"\(([0-9A-F]+)\)_\{(\d+)\}")
_IN_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_UNIT = r"(?:(?:\\mu ?)?\\text\{[^{}]*\}|\\Omega|\\\$|[\u20ac\u00a3\u00a5\u20b9]|\^\{\\circ\}(?: ?[CF](?![A-Za-z]))?)(?:\^\{-?\d\})?"
_TAIL = re.compile(rf"(?<=.){_UNIT}(?:(?:/|\\cdot ?)?{_UNIT})*\Z")
_NO_VALUE = Shape("text", "")


@lru_cache(maxsize=4096)
def shape_of(answer: str, *, integer: bool = False) -> Shape | None:
    """An answer's structure; None if there is nothing.

    With `integer` the answer is a whole number: of `m + n = 5` too only the last side counts, `7 \\pmod{10}` is 7, and
    units are dropped.
    """
    if _INTEGER.fullmatch(answer):
        return number(Fraction(int(answer)), answer)
    plain = answer
    for _ in range(_ROUNDS if len(answer) <= LONGEST else 0):  # until reading what was written changes nothing
        if (moment := date_or_time(undressed(plain))) is not None:
            return text(moment)
        try:
            shape = _shape(trim(atoms(plain)), integer=integer)
        except RecursionError:
            break
        if integer:
            shape = _whole(shape)
        if not shape.normal:
            return None
        if shape.normal == plain:
            return shape
        plain = shape.normal
    plain = " ".join(answer.split())
    return text(plain) if plain else None


def normal_form(answer: str, *, integer: bool = False) -> str | None:
    """An answer as it is always written; None if there is nothing. The normal form of a normal form is itself."""
    shape = shape_of(answer, integer=integer)
    return None if shape is None else shape.normal


def _whole(shape: Shape) -> Shape:
    """The number in a quantity or a residue, for problems whose answers are whole numbers."""
    if shape.kind == "mod" and shape.parts[0].value is not None:
        return shape.parts[0]
    return in_terms_of(shape, _NO_VALUE)


# -- taking apart ----------------------------------------------------------------------------------------------------


def _shape(expression: list[str], *, integer: bool = False, top: bool = True) -> Shape:
    """The shape of an expression. Only at the `top` may a set be written without braces."""
    expression = relations.turned_brackets(_without_approximation(expression))
    if not expression or not balanced(expression):
        return text(join(expression))
    if len(expression) == 1 and (system := _CASES.fullmatch(expression[0])):
        rows = [[atom for atom in row if atom != "&"] for row in split(atoms(system[1]), {"\\\\"})]
        if not all(relations.name_and_value(row)[0] for row in rows):
            return text(expression[0])
        expression = [atom for row in rows for atom in (*row, "\\land")][:-1]
    if residue := _residue(expression):
        return residue
    if values := _family(expression):
        return values
    if "\\for" in expression:
        return text(join(expression))
    if cases := _cases(expression):
        return cases
    items = [trim(item) for item in split(expression, _SEPARATORS)]
    items = [item for item in items if item]
    if len(items) > 1:
        return _list(items, any(atom == "\\lor" for _, atom in outer(expression)))
    expression = items[0] if items else expression
    if any(atom in relations.RELATION for _, atom in outer(expression)):
        return relations.relation(expression, integer, lambda side: _shape(side, integer=integer))
    return _combined(expression, top) or _signs(expression) or _bracketed(expression, integer, top) or _leaf(expression)


def _without_approximation(expression: list[str]) -> list[str]:
    r"""The expression without a trailing `\approx 0.33` or `(\approx 0.33)`."""
    for at, atom in enumerate(expression):
        opened = atom == "(" and expression[at + 1 : at + 2] and expression[at + 1] in ABOUT
        if at and (opened or (atom in ABOUT and depths(expression)[at] == 0)):
            while at > 1 and expression[at - 1] in _SEPARATORS:
                at -= 1
            return trim(expression[:at])
    return expression


def _residue(expression: list[str]) -> Shape | None:
    r"""`x \equiv 1, 3 \pmod 8`, with residues from 0 up to the modulus; None if it is no such thing."""
    if not expression[-1].startswith("\\pmod{") or sum(atom.startswith("\\pmod{") for atom in expression) != 1:
        return None
    modulus = _shape(trim(atoms("".join(arguments_of(expression[-1])[2]))))
    sides = [trim(side) for side in split(expression[:-1], {"\\equiv"})]
    if len(sides) > 2 or not all(sides) or any(atom in relations.RELATION for _, atom in outer(sides[-1])):
        return None
    if len(sides) == 2 and not re.fullmatch(r"[A-Za-z](_\{[^{}]*\})?", join(sides[0])):
        return None
    value = _shape(sides[-1])
    parts = [_reduced(part, modulus) for part in (value.parts if value.kind == "list" else (value,))]
    return build("mod", (build("list", parts) if len(parts) > 1 else parts[0], modulus))


def _family(expression: list[str]) -> Shape | None:
    r"""All values of a formula under a condition: `k\pi, k \in \mathbb{Z}`, or with brackets or "for" before it."""
    cuts = [at for at, atom in outer(expression) if atom in (",", ";", "\\for")]
    if expression[-1] == ")":
        opened = max(
            (at for at, depth in enumerate(depths(expression)) if depth == 1 and expression[at] == "("), default=0
        )
        formula, condition = expression[:opened], expression[opened + 1 : -1]
    elif cuts:
        formula, condition = expression[: cuts[-1]], expression[cuts[-1] + 1 :]
    else:
        return None
    formula = trim(formula)
    return relations.family(formula, condition, _shape) if formula and balanced(formula) else None


def _cases(expression: list[str]) -> Shape | None:
    """Several cases, each of which names the same variables (`x = 1, y = 2 or x = 2, y = 1`); None for anything else."""
    for sign in ("\\lor", ";", "\\land"):
        groups = [trim(group) for group in split(expression, {sign})]
        if len(groups) < 2 or not all(groups):
            continue
        items = [split(group, _SEPARATORS - {sign}) for group in groups]
        names = [{relations.name_and_value(trim(item))[0] for item in group if item} for group in items]
        if "" not in set().union(*names) and len(set().union(*names)) > 1:
            shapes = [_shape(group, top=False) for group in groups]
            if all(consecutive(shape.names) for shape in shapes) and len({shape.names for shape in shapes}) == 1:
                return build("list", [build("()", (part.parts[1] for part in shape.parts)) for shape in shapes])
            if sign == "\\lor":
                return build("either", shapes)
    return None


def _reduced(part: Shape, modulus: Shape) -> Shape:
    if part.value is None or modulus.value is None or part.value.denominator != 1 or modulus.value < 1:
        return part
    return number(part.value % modulus.value, part.normal)


def _list(items: list[list[str]], either: bool) -> Shape:
    """`x = 2, x = 3` is `2, 3`, and so is `x_1 = 2, x_2 = 3`; `x = 2, y = 3` keeps its names."""
    if condition := relations.conditions(items, either, _shape):
        return condition
    if ["\\ldots"] in items:
        return build("sequence", [_shape(item, top=False) for item in items])
    parts = [relations.name_and_value(item) for item in items]
    names = {name for name, _ in parts if name}
    bases = {match[1] if (match := _INDEXED.fullmatch(name)) else name for name in names}
    if len(names) < 2 or (len(bases) == 1 and all(name for name, _ in parts) and len(names) == len(parts)):
        return build("list", _spliced([_shape(value, top=False) for _, value in parts]))
    shapes = []
    for (name, value), item in zip(parts, items, strict=True):
        shapes.append(build(":=", (text(name), _shape(value, top=False))) if name else _shape(item, top=False))
    return build("list", shapes)


def _spliced(shapes: list[Shape]) -> list[Shape]:
    r"""Members of a list, with both values of a `\pm` in the place of one."""
    return [
        part for shape in shapes for part in (shape.parts if shape.kind == "list" and not shape.names else (shape,))
    ]


def _combined(expression: list[str], top: bool) -> Shape | None:
    r"""A union, or a set without some points; None for anything else."""
    signs = {atom for _, atom in outer(expression)} & {"\\cup", "\\setminus"}
    if not signs and expression[0] == relations.REALS and expression[1:3] == ["-", "\\{"]:
        expression, signs = [expression[0], "\\setminus", *expression[2:]], {"\\setminus"}
    if len(signs) != 1:
        return None
    parts = [_shape(part, top=False) for part in map(trim, split(expression, signs)) if part]
    if signs == {"\\setminus"}:
        removable = len(parts) == 2 and parts[0].kind == "text" and parts[1].kind == "set"
        return relations.without(parts[1:], parts[0].normal) if removable else text(join(expression))
    return relations.union(parts, top) if len(parts) > 1 else None


def _signs(expression: list[str]) -> Shape | None:
    r"""Both values of an expression with one `\pm`, and perhaps a `\mp` that goes with it; None without."""
    plain = join(expression)
    signs = [match[1] for match in _SIGN.finditer(plain)]
    if not signs or (expression[0] == "\\{" and expression[-1] == "\\}"):
        return None
    if len(signs) > 1 and sorted(signs) != ["mp", "pm"]:
        return text(plain)
    either = "+-" if signs[0] == "pm" else "-+"
    both = []
    for sign in (0, 1):
        taken = _SIGN.sub(lambda m: either[sign] if m[1] == signs[0] else either[1 - sign], plain)  # noqa: B023
        both.append(trim(atoms(taken)))
    return build("list", [_shape(part, top=False) for part in both]) if all(both) else text(plain)


def _bracketed(expression: list[str], integer: bool, top: bool) -> Shape | None:
    """An expression that one pair of brackets encloses from end to end; None for any other."""
    if len(expression) > 1 and re.fullmatch("[A-Z]", expression[0]) and expression[1] == "(" and "," in expression:
        expression = expression[1:]  # the name of a point
    if expression[0] not in OPEN or depths(expression).index(0) != len(expression) - 1:
        return None
    inside, brackets = expression[1:-1], expression[0] + expression[-1]
    if brackets == "\\{\\}":
        return _set(inside, integer, top)
    if not inside:
        return text(brackets)
    parts = [trim(part) for part in split(inside, {",", ";"})]
    if len(parts) == 1:
        plain = not any(atom in relations.RELATION or atom == ":" for _, atom in outer(inside))
        return _shape(inside, integer=integer, top=top) if brackets == "()" and plain else None
    if not all(parts):
        return text(join(expression))
    shapes = [_shape(part, top=False) for part in parts]
    if len(shapes) == 2 and [shape.normal for shape in shapes] == ["-\\infty", "\\infty"]:
        return text(relations.REALS)
    return build(brackets, shapes) if brackets in ("()", "(]", "[)", "[]") else text(join(expression))


def _set(inside: list[str], integer: bool, top: bool) -> Shape:
    if not inside:
        return text("\\emptyset")
    if described := relations.described(inside, _shape):
        return described
    if any(atom == ":" or atom in ("\\mid", "|") for _, atom in outer(inside)) and len(split(inside, {",", ";"})) == 1:
        return text(f"\\{{{join(inside)}\\}}")
    listed = _shape(inside, top=False)
    if listed.names:
        return listed
    members = build("set", listed.parts if listed.kind in ("list", "sequence") else (listed,))
    if not top or (len(members.parts) == 1 and (listed.kind == "set" or listed.normal == "\\emptyset")):
        return members
    return members.parts[0] if len(members.parts) == 1 else build("list", members.parts)


# -- values ----------------------------------------------------------------------------------------------------------


def _leaf(expression: list[str]) -> Shape:
    while len(expression) > 1 and LEAD_IN.fullmatch(expression[0] + expression[1] * (expression[1] == ":")):
        value = trim(expression[1:])
        if not value:
            return text(join(expression))
        expression = value
    ratio = split(expression, {":"})
    if len(ratio) > 1 and all(ratio):
        return build(":", [_shape(trim(part), top=False) for part in ratio])
    if len(expression) == 1 and (matrix := _MATRIX.fullmatch(expression[0])):
        return _matrix(matrix[1], expression)
    value, unit = _without_unit(expression)
    shape = _formula(value)
    if not unit or shape.kind == "text":
        return shape if shape.kind != "text" or not unit else _formula(expression)
    known = unit_of(unit)
    return shape if known is None or not known.dimension else with_unit(shape, known, unit)


def _formula(expression: list[str]) -> Shape:
    if expression[0] == "+":
        expression = expression[1:] or expression
    plain = join(expression)
    try:
        tree = parse(expression)
    except (UnreadableError, RecursionError):
        return text(_BASE.sub(r"\1_{\2}", plain))
    value = exact(tree)
    in_percent = value is not None and is_short(value) and expression[-1] == PERCENT
    if value is not None and in_percent and exact(parse(expression[:-1])) == 100 * value:
        return percentage(value)
    plain = _DECIMAL.sub(lambda decimal: written(Fraction(decimal[0])), plain)
    return number(value, plain) if value is not None else Shape("algebra", plain, tree=tree)


def _matrix(inside: str, expression: list[str]) -> Shape:
    rows = [[trim(cell) for cell in split(row, {"&"})] for row in split(atoms(inside), {"\\\\"})]
    if len({len(row) for row in rows}) != 1 or not all(cell for row in rows for cell in row):
        return text(join(expression))
    cells = [_shape(cell, top=False) for row in rows for cell in row]
    return build(f"matrix {len(rows)} {len(rows[0])}", cells)


def _without_unit(expression: list[str]) -> tuple[list[str], str]:
    r"""A value, and the unit or the noun around it: `8\text{ cm}^2`, `90^\circ`, `\$5`. Empty where there is none."""
    if len(expression) > 1 and (leading := plain_unit(_IN_TEXT.sub(r"\1", expression[0]))) and leading in CURRENCIES:
        return expression[1:], leading
    plain = join(expression)
    tail = _TAIL.search(plain)
    if tail is None or "\\text" in plain[: tail.start()] or ("\\circ" in tail[0] and TRIG.intersection(expression)):
        return expression, ""
    unit = plain_unit(_IN_TEXT.sub(r" \1 ", tail[0]))
    if unit_of(unit) is None and COUNTS.search(unit):
        return expression, ""
    value = trim(atoms(plain[: tail.start()]))
    return (value, unit) if value else (expression, "")
