"""An answer taken apart: what kind of thing it is, its parts, and how it is always written.

Also here: an expression (a list of atoms) cut at its outer signs, and a shape brought to the terms of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise

from radmoe.grading.exact import written
from radmoe.grading.syntax import Tree, variables
from radmoe.grading.units import Unit

UNORDERED = ("list", "set", "union", "either", "=")
OPEN, CLOSE = {"(", "[", "\\{"}, {")", "]", "\\}"}
ABOUT = {"\\approx", "\\simeq", "\\doteq"}
PERCENT = "\\%"
_LEADING = {"=", "+", "\\cdot", "\\therefore", "\\implies", "\\Rightarrow", ":", "\\sim", *ABOUT}
_TRAILING = {"\\cdot", ".", ",", ";", ":", "\\\\", "\\."}
_BETWEEN = {
    "list": ", ", "sequence": ", ", "family": ", ", "union": " \\cup ", "either": " \\lor ", ":=": "=", ":": ":",
    "=": " = ",
}  # fmt: skip
_AROUND = {
    "set": "\\{*\\}", "interval": "x\\in(*)", "()": "(*)", "(]": "(*]", "[)": "[*)", "[]": "[*]",
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    r"""An answer taken apart.

    `normal` is how the answer is always written. `kind` is one of

    - number, algebra and text, which have no parts: a number has a `value`, algebra a `tree`, and both may have a `unit`;
    - list, set, union, `either` (several cases, each with names) and =, whose parts have no order;
    - a pair of brackets, `interval` (one that was written as such), `:`, `\setminus`, `mod`, `family`, `sequence`, a
      matrix with its size, and relations such as `<` and `<\leq`, whose parts do;
    - `:=`, a name and its value.
    """

    kind: str
    normal: str
    parts: tuple[Shape, ...] = ()
    value: Fraction | None = None
    tree: Tree | None = None
    unit: Unit | None = None
    unit_text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of a list in which every part has one; empty for anything else."""
        named = self.kind == "list" and all(part.kind == ":=" for part in self.parts)
        return tuple(part.parts[0].normal for part in self.parts) if named else ()

    @property
    def bare(self) -> str:
        """How a number or a formula is written without its unit."""
        return self.normal.removesuffix(self.unit_text)


def text(plain: str) -> Shape:
    """An answer that is compared as it is written."""
    return Shape("text", plain)


def number(value: Fraction, plain: str) -> Shape:
    """A rational number. One with many digits stays as it was written: `2^{99}`."""
    return Shape("number", written(value) if is_short(value) else plain, value=value)


def is_short(value: Fraction) -> bool:
    """Whether a number has few enough digits to be written out in an answer's normal form."""
    return value.numerator.bit_length() + value.denominator.bit_length() < 120


def percentage(value: Fraction) -> Shape:
    """A number written in percent. The sign is kept until the gold answer shows whether the problem asks for percent."""
    return Shape("number", written(100 * value) + PERCENT, value=value)


def with_unit(shape: Shape, unit: Unit, name: str) -> Shape:
    """A number or a formula with a unit behind it, in place of the one it may have."""
    suffix = f"\\text{{{name}}}"
    return replace(shape, normal=shape.bare + suffix, unit=unit, unit_text=suffix)


def build(kind: str, parts: Iterable[Shape]) -> Shape:
    """A shape of these parts, written as its kind is written."""
    shapes = tuple(parts)
    if kind in UNORDERED:
        shapes = tuple(sorted(shapes, key=lambda part: part.normal))
    if kind == "set":
        shapes = tuple({part.normal: part for part in shapes}.values())
    return Shape(kind, _written(kind, [part.normal for part in shapes]), shapes)


def _written(kind: str, parts: list[str]) -> str:
    if kind in _BETWEEN:
        return _BETWEEN[kind].join(parts)
    if kind in _AROUND:
        return _AROUND[kind].replace("*", ", ".join(parts))
    if kind == "mod":
        return f"{parts[0]}\\pmod{{{parts[1]}}}"
    if kind.startswith("matrix"):
        columns = int(kind.rpartition(" ")[2])
        rows = "\\\\".join("&".join(parts[at : at + columns]) for at in range(0, len(parts), columns))
        return f"\\begin{{pmatrix}}{rows}\\end{{pmatrix}}"
    signs = (f" {sign} " for sign in kind.split())
    return parts[0] + "".join(sign + part for sign, part in zip(signs, parts[1:], strict=True))


# -- a shape in the terms of another ---------------------------------------------------------------------------------


def consecutive(names: tuple[str, ...]) -> bool:
    """Whether names are letters that follow each other in the alphabet, so that their values need no names."""
    return len(names) > 1 and all(
        len(a) == len(b) == 1 and ord(b) == ord(a) + 1 and a.isalpha() for a, b in pairwise(names)
    )


def alone(equation: Shape) -> Shape | None:
    """The other side of an equation `y = ...` in which `y` occurs only once; None for other equations."""
    if equation.kind != "=" or len(equation.parts) != 2:
        return None
    sides = [part for part in equation.parts if part.tree is not None or part.value is not None]
    names = [side.tree[1] if side.tree is not None and side.tree[0] == "v" else None for side in sides]
    if len(sides) != 2 or (names[0] is None) == (names[1] is None):
        return None
    name, other = (names[0], sides[1]) if names[0] is not None else (names[1], sides[0])
    return None if other.tree is not None and name in variables(other.tree) else other


def in_terms_of(shape: Shape, gold: Shape) -> Shape:
    """An answer rewritten so that it can be compared with a gold answer that is more or less specific.

    Where the gold answer has no unit, units are dropped; where it has one, an answer without gets it. Percent signs are
    dropped where the gold answer has none and is no share (`_percent_dropped`). And `(1, 2)` is
    an interval where the gold answer is one, a point where it is one, and otherwise what is an interval, or a point
    with named coordinates, becomes `(1, 2)`. So equality is transitive among the answers to one problem.
    """
    if PERCENT in shape.normal:
        shape = _percent_dropped(shape, gold)
    units = {part.unit: part for part in _leaves(gold) if part.unit is not None}
    if not units:
        shape = _changed(shape, lambda leaf: replace(leaf, normal=leaf.bare, unit=None, unit_text=""))
    elif len(units) == 1:
        ((unit, leaf),) = units.items()
        name = leaf.unit_text[6:-1]
        shape = _changed(shape, lambda leaf: leaf if leaf.unit or leaf.kind == "text" else with_unit(leaf, unit, name))
    if gold.kind != "=" and (value := alone(shape)) is not None:
        return value
    if gold.kind == "interval":
        return build("interval", shape.parts) if shape.kind == "()" and len(shape.parts) == 2 else shape
    if gold.names:
        same_size = shape.kind == "()" and len(shape.parts) == len(gold.names)
        return named(gold.names, shape.parts) if same_size and consecutive(gold.names) else shape
    if shape.kind == "interval":
        return build("()", shape.parts)
    return build("()", (part.parts[1] for part in shape.parts)) if consecutive(shape.names) else shape


def _percent_dropped(shape: Shape, gold: Shape) -> Shape:
    r"""An answer without percent signs where the gold answer is a number, or numbers, without unit or percent sign.

    Of a gold answer from 1 up the problem has said that it wants percent: `20\%` is 20, unless 20 hundredths are the gold
    answer itself (`800\%` is 8). If the gold answer is a share, as 0.2 is, `20\%` is that share.
    """
    numbers = [leaf for leaf in _leaves(gold) if leaf.value is not None]
    if not numbers or PERCENT in gold.normal or any(leaf.unit is not None for leaf in _leaves(gold)):
        return shape
    values = {leaf.value for leaf in numbers} - {Fraction(0)}
    whole = bool(values) and all(abs(value) >= 1 for value in values if value is not None)

    def plain(leaf: Shape) -> Shape:
        if leaf.value is None or not leaf.bare.endswith(PERCENT):
            return leaf
        value = 100 * leaf.value if whole and leaf.value not in values else leaf.value
        return number(value, written(value))

    return _changed(shape, plain)


def named(names: Iterable[str], values: Iterable[Shape]) -> Shape:
    """A list of names with their values."""
    return build("list", [build(":=", (text(name), value)) for name, value in zip(names, values, strict=True)])


def _leaves(shape: Shape) -> Iterator[Shape]:
    if not shape.parts:
        yield shape
    for part in shape.parts:
        yield from _leaves(part)


def _changed(shape: Shape, change: Callable[[Shape], Shape]) -> Shape:
    """The shape, with `change` applied to every number and formula in it."""
    if shape.parts:
        return build(shape.kind, (_changed(part, change) for part in shape.parts))
    return change(shape) if shape.kind in ("number", "algebra") else shape


# -- expressions -----------------------------------------------------------------------------------------------------


def depths(expression: list[str]) -> list[int]:
    """How many brackets are open behind each atom."""
    return list(accumulate((atom in OPEN) - (atom in CLOSE) for atom in expression))


def balanced(expression: list[str]) -> bool:
    return min(depths(expression), default=0) >= 0 and (depths(expression) or [0])[-1] == 0


def outer(expression: list[str]) -> Iterator[tuple[int, str]]:
    """Atoms outside all brackets, and where they stand. A closing bracket counts as outside."""
    return ((at, expression[at]) for at, depth in enumerate(depths(expression)) if depth == 0)


def split(expression: list[str], signs: Container[str]) -> list[list[str]]:
    """The expression, split at every outer atom that is one of `signs`."""
    cuts = [-1, *(at for at, atom in outer(expression) if atom in signs), len(expression)]
    return [expression[a + 1 : b] for a, b in pairwise(cuts)]


def trim(expression: list[str]) -> list[str]:
    """The expression without meaningless signs at its ends."""
    start, stop = 0, len(expression)
    while start < stop and expression[start] in _LEADING:
        start += 1
    while start < stop and expression[stop - 1] in _TRAILING:
        stop -= 1
    return expression[start:stop]
