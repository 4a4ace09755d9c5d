"""Writes a program for a pipeline: one of very many right ones, with loops, comprehensions or builtins."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import MappingProxyType

from radmoe_lab.tasks.draw import chance, favour, pick
from radmoe_lab.tasks.pipelines import Pipeline, PipelineOp

_ARGUMENTS = ("xs", "nums", "values", "a", "items")
_LISTS = ("ys", "out", "res", "kept", "vals", "zs", "result", "part")
_ELEMENTS = ("x", "n", "v", "y", "item")
_TOTALS = ("total", "s", "acc")

_CONDITIONS = {
    "even": ("{x} % 2 == 0", "not {x} % 2", "{x} % 2 != 1"),
    "odd": ("{x} % 2 == 1", "{x} % 2", "{x} % 2 != 0"),
    "positive": ("{x} > 0", "0 < {x}", "{x} >= 1"),
    "above": ("{x} > {c}", "{c} < {x}", "{x} >= {d}"),
}
_VALUES = {
    "add": ("{x} + {c}", "{c} + {x}"),
    "times": ("{x} * {c}", "{c} * {x}"),
    "square": ("{x} * {x}", "{x} ** 2"),
}
_EXPRESSIONS = {
    "reverse": ("{v}[::-1]", "list(reversed({v}))"),
    "ascending": ("sorted({v})", "sorted(list({v}))"),
    "descending": ("sorted({v}, reverse=True)", "sorted({v})[::-1]", "list(reversed(sorted({v})))"),
    "unique": ("list(dict.fromkeys({v}))", "list(dict.fromkeys({v}).keys())"),
    "first": ("{v}[:{c}]", "{v}[0:{c}]"),
    "last": ("{v}[-{c}:]",),
    "sum": ("sum({v})", "sum({x} for {x} in {v})"),
    "max": ("max({v})", "sorted({v})[-1]"),
    "min": ("min({v})", "sorted({v})[0]"),
    "len": ("len({v})", "sum(1 for _ in {v})"),
    "list": ("{v}",),
}
_IN_PLACE = {"reverse": "reverse()", "ascending": "sort()", "descending": "sort(reverse=True)"}


class _Writer:
    """The lines written so far, and the expression that holds the list."""

    def __init__(self, rng: Random, constants: Mapping[PipelineOp, str]) -> None:
        self.rng = rng
        self.constants = constants
        self.argument = favour(rng, _ARGUMENTS)
        self.names = list(_LISTS)
        self.habit = pick(rng, ("loop", "comprehension", "builtin", "any"))
        self.element = favour(rng, _ELEMENTS)
        self.lines: list[str] = []
        self.current = self.argument

    def fresh(self) -> str:
        """A name that the program has not used yet."""
        return self.names.pop(int(self.rng.random() ** 2 * len(self.names)))

    def bind(self) -> None:
        """Give the current expression a name."""
        if not self.current.isidentifier():
            name = self.fresh()
            self.lines.append(f"{name} = {self.current}")
            self.current = name

    def form(self) -> str:
        loose = self.habit == "any" or chance(self.rng, 0.25)
        return pick(self.rng, ("loop", "comprehension", "builtin")) if loose else self.habit

    def put(self, expression: str) -> None:
        """Make an expression the current one. A long one gets a name; a short one may stay, to be nested in the next."""
        self.current = expression
        if len(expression) > 30 or chance(self.rng, 0.6):
            self.bind()

    def fill(self, template: str, op: PipelineOp) -> str:
        name = self.constants.get(op)
        following = f"{name} + 1" if name else str(op.c + 1)
        return template.format(x=self.element, v=self.current, c=name or op.c, d=following)


def write(rng: Random, pipeline: Pipeline, constants: Mapping[PipelineOp, str] = MappingProxyType({})) -> str:
    """A right program. The same pipeline is rarely written the same way twice.

    `constants` names the constants of some operations; the caller defines these names.
    """
    out = _Writer(rng, constants)
    body = list(pipeline.ops[:-1])
    while body:
        op = body.pop(0)
        if op.name in _CONDITIONS:
            then = body.pop(0) if body and body[0].name in _VALUES and chance(rng, 0.7) else None
            _each(out, op, then)
        elif op.name in _VALUES:
            _each(out, None, op)
        elif op.name == "running":
            _running(out)
        elif op.name == "unique" and out.form() == "loop":
            _unique(out)
        elif op.name in _IN_PLACE and chance(rng, 0.2):
            name = out.fresh()
            out.lines += [f"{name} = list({out.current})", f"{name}.{_IN_PLACE[op.name]}"]
            out.current = name
        else:
            out.put(out.fill(favour(rng, _EXPRESSIONS[op.name]), op))
    _end(out, pipeline.ops[-1])
    return f"def f({out.argument}):\n" + "\n".join("    " + line for line in out.lines)


def _each(out: _Writer, keep: PipelineOp | None, change: PipelineOp | None) -> None:
    """Keep some elements, change them, or both in one go."""
    x = out.element
    condition = out.fill(favour(out.rng, _CONDITIONS[keep.name]), keep) if keep else ""
    value = out.fill(favour(out.rng, _VALUES[change.name]), change) if change else x
    form = out.form()
    if form == "loop":
        name = out.fresh()
        out.lines += [f"{name} = []", f"for {x} in {out.current}:"]
        if condition:
            out.lines.append(f"    if {condition}:")
        out.lines.append(f"{'        ' if condition else '    '}{name}.append({value})")
        out.current = name
    elif form == "builtin":
        inner = f"filter(lambda {x}: {condition}, {out.current})" if condition else out.current
        if change:
            inner = f"map(lambda {x}: {value}, {inner})"
        out.put(f"list({inner})")
    else:
        out.put(f"[{value} for {x} in {out.current}{' if ' + condition if condition else ''}]")


def _running(out: _Writer) -> None:
    if out.form() == "comprehension":
        out.bind()
        out.put(f"[sum({out.current}[:i + 1]) for i in range(len({out.current}))]")
        return
    name, total, x = out.fresh(), favour(out.rng, _TOTALS), out.element
    start = [f"{name} = []", f"{total} = 0"]
    out.lines += start if chance(out.rng, 0.5) else start[::-1]
    out.lines += [f"for {x} in {out.current}:", f"    {total} += {x}", f"    {name}.append({total})"]
    out.current = name


def _unique(out: _Writer) -> None:
    name, x = out.fresh(), out.element
    out.lines += [
        f"{name} = []",
        f"for {x} in {out.current}:",
        f"    if {x} not in {name}:",
        f"        {name}.append({x})",
    ]
    out.current = name


def _end(out: _Writer, end: PipelineOp) -> None:
    if end.name in ("sum", "len") and out.form() == "loop" and chance(out.rng, 0.6):
        total = "count" if end.name == "len" else "total"
        step = "1" if end.name == "len" else out.element
        out.lines += [
            f"{total} = 0",
            f"for {out.element} in {out.current}:",
            f"    {total} += {step}",
            f"return {total}",
        ]
    else:
        out.lines.append("return " + out.fill(favour(out.rng, _EXPRESSIONS[end.name]), end))
