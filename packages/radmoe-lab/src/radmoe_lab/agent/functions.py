"""The functions of generated repositories: what each computes, its wordings and code, and its possible bugs.

Every function takes a list of integers. Its docstring states its number or is vague about it; what it should compute
must then be inferred from the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_LOOP_TOTAL = "total, out = 0, []\nfor v in values:\n    {0}\n    out.append({1})\nreturn out"
_LOOP_NEW = "out = []\nfor v in values:\n    if {0}:\n        out.append(v)\nreturn out"


@dataclass(frozen=True)
class Bug:
    """One way to break a function: the family it belongs to, and the body that is wrong. `j` is a number near k."""

    family: str
    body: str


@dataclass(frozen=True)
class Kind:
    """A kind of function: names, precise and vague docstrings, the right body, its bugs, and the range of its number k.

    `ends` says that the function returns a number, so that it can only come last.
    """

    names: tuple[str, ...]
    docs: tuple[str, ...]
    body: str
    bugs: tuple[Bug, ...]
    low: int = 0
    high: int = 0
    vague: tuple[str, ...] = ()
    ends: bool = False


def _each(expression: str) -> str:
    return f"return [{expression} for v in values]"


def _where(condition: str) -> str:
    return f"return [v for v in values if {condition}]"


KINDS: Mapping[str, Kind] = {
    "above": Kind(
        ("keep_big", "only_large", "drop_small"),
        ("Keep the values above {k}.", "Drop everything up to {k}."),
        _where("v > {k}"),
        (Bug("operator", _where("v >= {k}")), Bug("operator", _where("v < {k}")), Bug("constant", _where("v > {j}"))),
        4,
        20,
    ),
    "atleast": Kind(
        ("keep_big", "only_large", "at_least"),
        ("Keep the values of at least {k}.", "Drop everything below {k}."),
        _where("v >= {k}"),
        (Bug("operator", _where("v > {k}")), Bug("operator", _where("v <= {k}")), Bug("constant", _where("v >= {j}"))),
        4,
        20,
    ),
    "below": Kind(
        ("keep_small", "only_low", "drop_big"),
        ("Keep the values below {k}.", "Drop everything from {k} on."),
        _where("v < {k}"),
        (Bug("operator", _where("v <= {k}")), Bug("operator", _where("v > {k}")), Bug("constant", _where("v < {j}"))),
        10,
        28,
    ),
    "atmost": Kind(
        ("keep_small", "only_low", "at_most"),
        ("Keep the values of at most {k}.", "Drop everything above {k}."),
        _where("v <= {k}"),
        (Bug("operator", _where("v < {k}")), Bug("operator", _where("v >= {k}")), Bug("constant", _where("v <= {j}"))),
        10,
        28,
    ),
    "add": Kind(
        ("shift", "raise_all", "add_fee"),
        ("Add {k} to every value.", "Raise every value by {k}."),
        _each("v + {k}"),
        (Bug("operator", _each("v - {k}")), Bug("constant", _each("v + {j}"))),
        3,
        79,
        ("Shift every value up.", "Add the fee to every value."),
    ),
    "sub": Kind(
        ("lower", "take_off", "discount"),
        ("Subtract {k} from every value.", "Lower every value by {k}."),
        _each("v - {k}"),
        (Bug("operator", _each("v + {k}")), Bug("constant", _each("v - {j}"))),
        3,
        49,
        ("Lower every value.", "Take the discount off every value."),
    ),
    "mul": Kind(
        ("scale", "stretch", "convert"),
        ("Multiply every value by {k}.", "Scale every value by {k}."),
        _each("v * {k}"),
        (Bug("operator", _each("v + {k}")), Bug("constant", _each("v * {j}"))),
        3,
        29,
        ("Scale every value.", "Convert every value to small units."),
    ),
    "mod": Kind(
        ("wrap", "remainders", "fold"),
        ("Take every value modulo {k}.", "Wrap every value at {k}."),
        _each("v % {k}"),
        (Bug("constant", _each("v % {j}")), Bug("operator", _each("v // {k}"))),
        4,
        13,
    ),
    "cap": Kind(
        ("cap", "limit", "clip"),
        ("Cap every value at {k}.", "No value is more than {k}."),
        _each("min(v, {k})"),
        (Bug("operator", _each("max(v, {k})")), Bug("constant", _each("min(v, {j})"))),
        8,
        24,
    ),
    "floor": Kind(
        ("lift", "pad", "fill_up"),
        ("Lift every value to at least {k}.", "No value is less than {k}."),
        _each("max(v, {k})"),
        (Bug("operator", _each("min(v, {k})")), Bug("constant", _each("max(v, {j})"))),
        6,
        18,
    ),
    "take": Kind(
        ("first_few", "head", "start_of"),
        ("Keep the first {k} values.", "Only the first {k} values."),
        "return values[:{k}]",
        (Bug("off by one", "return values[:{j}]"), Bug("slice", "return values[{k}:]")),
        2,
        4,
    ),
    "skip": Kind(
        ("skip", "tail", "rest_of"),
        ("Skip the first {k} values.", "Leave the first {k} values out."),
        "return values[{k}:]",
        (Bug("off by one", "return values[{j}:]"), Bug("slice", "return values[:{k}]")),
        1,
        3,
    ),
    "last": Kind(
        ("last_few", "latest", "end_of"),
        ("Keep the last {k} values.", "Only the last {k} values."),
        "return values[-{k}:]",
        (Bug("off by one", "return values[-{j}:]"), Bug("slice", "return values[{k}:]")),
        2,
        4,
    ),
    "rotate": Kind(
        ("rotate", "turn", "swap_ends"),
        ("Move the first {k} values to the end.", "Rotate to the left by {k}."),
        "return values[{k}:] + values[:{k}]",
        (Bug("slice", "return values[:{k}] + values[{k}:]"), Bug("off by one", "return values[{j}:] + values[:{k}]")),
        1,
        3,
    ),
    "sort": Kind(
        ("in_order", "ranked", "sort_up"),
        ("Sort the values, smallest first.", "In rising order."),
        "return sorted(values)",
        (Bug("order", "return sorted(values, reverse=True)"), Bug("missing call", "return values")),
    ),
    "rsort": Kind(
        ("top_first", "falling", "sort_down"),
        ("Sort the values, largest first.", "In falling order."),
        "return sorted(values, reverse=True)",
        (Bug("order", "return sorted(values)"), Bug("order", "return values[::-1]")),
    ),
    "gaps": Kind(
        ("gaps", "changes", "steps"),
        ("Each value minus the one before it.", "Changes from each value to the next."),
        "return [b - a for a, b in zip(values, values[1:])]",
        (
            Bug("variable", "return [a - b for a, b in zip(values, values[1:])]"),
            Bug("operator", "return [b + a for a, b in zip(values, values[1:])]"),
            Bug("off by one", "return [b - a for a, b in zip(values, values[2:])]"),
        ),
    ),
    "running": Kind(
        ("running", "so_far", "add_up"),
        ("The sum of all values up to each one.", "Running totals."),
        _LOOP_TOTAL.format("total += v", "total"),
        (
            Bug("operator", _LOOP_TOTAL.format("total = v", "total")),
            Bug("variable", _LOOP_TOTAL.format("total += v", "v")),
        ),
    ),
    "unique": Kind(
        ("unique", "distinct", "no_repeats"),
        ("Drop repeated values.", "Every value once, in order."),
        _LOOP_NEW.format("v not in out"),
        (Bug("operator", _LOOP_NEW.format("v in out")), Bug("missing case", _LOOP_NEW.format("v not in out[1:]"))),
    ),
    "sum": Kind(
        ("total", "sum_up", "whole"),
        ("The sum of the values.", "All values added up."),
        "return sum(values)",
        (Bug("off by one", "return sum(values[1:])"), Bug("wrong call", "return len(values)")),
        ends=True,
    ),
    "count": Kind(
        ("count", "how_many", "size"),
        ("The number of values.", "How many values there are."),
        "return len(values)",
        (Bug("off by one", "return len(values) - 1"), Bug("wrong call", "return sum(values)")),
        ends=True,
    ),
    "largest": Kind(
        ("largest", "top", "peak"),
        ("The largest value, or 0 if there is none.", "The top value, 0 without values."),
        "return max(values, default=0)",
        (Bug("missing case", "return max(values)"), Bug("wrong call", "return min(values, default=0)")),
        ends=True,
    ),
    "smallest": Kind(
        ("smallest", "lowest", "bottom"),
        ("The smallest value, or 0 if there is none.", "The lowest value, 0 without values."),
        "return min(values, default=0)",
        (Bug("missing case", "return min(values)"), Bug("wrong call", "return max(values, default=0)")),
        ends=True,
    ),
    "spread": Kind(
        ("spread", "width", "span"),
        ("Largest minus smallest, or 0 without values.", "The width of the range, 0 without values."),
        "return max(values) - min(values) if values else 0",
        (
            Bug("missing case", "return max(values) - min(values)"),
            Bug("operator", "return max(values) + min(values) if values else 0"),
        ),
        ends=True,
    ),
    "squares": Kind(
        ("energy", "squares", "power"),
        ("The sum of the squares.", "All squares added up."),
        "return sum(v * v for v in values)",
        (Bug("operator", "return sum(v + v for v in values)"), Bug("variable", "return sum(v for v in values)")),
        ends=True,
    ),
    "plus": Kind(
        ("bill", "with_fee", "invoice"),
        ("The sum of the values plus {k}.", "All values added up, and {k} more."),
        "return sum(values) + {k}",
        (Bug("constant", "return sum(values) + {j}"), Bug("operator", "return sum(values) - {k}")),
        3,
        79,
        ("The sum with the fee.", "What is to be paid."),
        ends=True,
    ),
    "times": Kind(
        ("price", "cost", "worth"),
        ("The sum of the values times {k}.", "All values added up, times {k}."),
        "return sum(values) * {k}",
        (Bug("constant", "return sum(values) * {j}"), Bug("operator", "return sum(values) + {k}")),
        3,
        29,
        ("The price of all values.", "What it all costs."),
        ends=True,
    ),
}


@dataclass(frozen=True)
class Function:
    """A function of a repository. `kind` and `k` say what it should do; `vague` that its docstring names no number.

    With `factors` the docstring gives the number as a product.
    """

    name: str
    kind: str
    k: int
    doc: str
    vague: bool = False
    factors: tuple[int, int] | None = None

    def source(self, body: str | None = None) -> str:
        """The source of the function, with the right body or with another one."""
        lines = (KINDS[self.kind].body.format(k=self.k) if body is None else body).split("\n")
        return (
            "\n".join([f"def {self.name}(values):", f'    """{self.doc}"""', *("    " + line for line in lines)]) + "\n"
        )


def key(body: str) -> str:
    """The part of a body that decides what it computes: a condition, an expression, or the lines of a loop."""
    lines = [line.strip() for line in body.split("\n")]
    if len(lines) > 1:
        return "; ".join(lines[2:-1])
    text = lines[0].removeprefix("return ")
    if text.startswith("[v for v in values if "):
        return text.removeprefix("[v for v in values if ")[:-1]
    if text.startswith("[") and text.endswith(" for v in values]"):
        return text[1 : -len(" for v in values]")]
    return text
