"""Writes a program for a pipeline as widely as people do, so that two right programs have little text in common.

Names come from many words, every operation has many idioms, and there are helper functions, constants with names,
imports, type hints, docstrings and comments. `programs.py` writes like one author; this one writes like a crowd.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from radmoe_lab.tasks.draw import chance, pick, shuffled
from radmoe_lab.tasks.pipelines import Pipeline, PipelineOp

_ARGUMENTS = (
    "xs", "nums", "values", "a", "items", "data", "seq", "arr", "numbers", "lst", "vec", "row", "given", "source", "ints",
    "series", "entries", "points", "feed", "stack",
)  # fmt: skip
_LISTS = (
    "ys", "out", "res", "kept", "vals", "zs", "result", "part", "bag", "chosen", "made", "fresh", "rest", "group", "line",
    "picked", "after", "work", "buf", "lot", "box", "chain", "heap", "pile", "new", "left", "good", "b", "w", "col",
)  # fmt: skip
_ELEMENTS = ("x", "n", "v", "y", "item", "e", "p", "num", "t", "each", "q", "el", "one", "z", "u", "m")
_TOTALS = ("total", "s", "acc", "tally", "amount", "so_far", "mass", "r")
_HELPERS = ("ok", "go", "fits", "fix", "turn", "rule", "grow", "wanted", "shift", "g", "h", "use", "cell", "move")
_CONSTANTS = ("C", "STEP", "K", "LIMIT", "SIZE", "BASE", "AMOUNT", "EDGE", "D", "COUNT")
_COMMENTS = {
    name: tuple(comments.split("; "))
    for name, comments in {
        "even": "even ones; no odd numbers; 2 divides it; evens only",
        "odd": "odd ones; no even numbers; odds only; not even",
        "positive": "above zero; positive ones; no zero, nothing below",
        "above": "large ones; big enough; over the limit",
        "add": "shift up; a bit more; move each; increase",
        "times": "scale; stretch; multiply; several times",
        "square": "squares; times itself; power of two",
        "reverse": "back to front; turn around; last one first",
        "ascending": "sort; small to large; in order",
        "descending": "large to small; sort down; biggest first",
        "unique": "no repeats; each value once; drop copies",
        "first": "the head; from the start; the first few",
        "last": "the tail; from the end; the last few",
        "running": "running sums; sum so far; add up as we go",
        "sum": "all of them; the sum; add up",
        "max": "largest; the top; biggest one",
        "min": "smallest; the bottom; least one",
        "len": "how many; count; the size",
        "list": "done; that is all; the list",
    }.items()
}
_DOCSTRINGS = ("Work on a list.", "All the steps.", "See the task.", "A list goes in.", "The steps, one by one.")
_CONDITIONS = {
    "even": ("{x} % 2 == 0", "not {x} % 2", "{x} % 2 != 1", "{x} % 2 < 1", "({x} & 1) == 0", "{x} // 2 * 2 == {x}"),
    "odd": ("{x} % 2 == 1", "{x} % 2", "{x} % 2 != 0", "{x} % 2 > 0", "{x} & 1", "{x} // 2 * 2 != {x}"),
    "positive": ("{x} > 0", "0 < {x}", "{x} >= 1", "not {x} <= 0", "not {x} < 1"),
    "above": ("{x} > {c}", "{c} < {x}", "{x} >= {c} + 1", "not {x} <= {c}", "{x} - {c} > 0"),
}
_VALUES = {
    "add": ("{x} + {c}", "{c} + {x}", "{x} - -{c}", "sum(({x}, {c}))"),
    "times": ("{x} * {c}", "{c} * {x}", "({x}) * ({c})"),
    "square": ("{x} * {x}", "{x} ** 2", "pow({x}, 2)", "abs({x}) ** 2"),
}
_EXPRESSIONS = {
    "reverse": ("{v}[::-1]", "list(reversed({v}))", "[*reversed({v})]", "[{v}[-i - 1] for i in range(len({v}))]"),
    "ascending": ("sorted({v})", "list(sorted({v}))", "sorted({v}, key=int)", "sorted({v}, reverse=True)[::-1]"),
    "descending": (
        "sorted({v}, reverse=True)", "sorted({v})[::-1]", "list(reversed(sorted({v})))", "sorted({v}, key=lambda {x}: -{x})",
    ),
    "unique": (
        "list(dict.fromkeys({v}))", "[*dict.fromkeys({v})]", "[{x} for i, {x} in enumerate({v}) if {x} not in {v}[:i]]",
        "sorted(set({v}), key={v}.index)",
    ),
    "first": ("{v}[:{c}]", "{v}[0:{c}]", "[{x} for i, {x} in enumerate({v}) if i < {c}]", "list({v})[:{c}]"),
    "last": ("{v}[-{c}:]", "{v}[max(0, len({v}) - {c}):]", "{v}[::-1][:{c}][::-1]", "list({v})[-{c}:]"),
    "running": ("[sum({v}[:i + 1]) for i in range(len({v}))]", "[sum({v}[:i]) for i in range(1, len({v}) + 1)]"),
    "sum": ("sum({v})", "sum({x} for {x} in {v})", "sum({v}, 0)", "sum([*{v}])"),
    "max": ("max({v})", "sorted({v})[-1]", "max(*{v}, {v}[0])", "-min(-{x} for {x} in {v})"),
    "min": ("min({v})", "sorted({v})[0]", "min(*{v}, {v}[0])", "-max(-{x} for {x} in {v})"),
    "len": ("len({v})", "sum(1 for _ in {v})", "len([*{v}])", "sum([1 for {x} in {v}])"),
    "list": ("{v}", "list({v})", "[*{v}]", "{v}[:]"),
}  # fmt: skip
_IN_PLACE = {"reverse": "reverse()", "ascending": "sort()", "descending": "sort(reverse=True)"}


class _Crowd:
    """A program in the making: what stands above the function, the lines of the function, and the list's name."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.argument = pick(rng, _ARGUMENTS)
        self.names, self.helpers, self.constants = (shuffled(rng, words) for words in (_LISTS, _HELPERS, _CONSTANTS))
        self.element, self.total = pick(rng, _ELEMENTS), pick(rng, _TOTALS)
        self.above: list[list[str]] = []
        self.lines: list[str] = []
        self.local_constants: list[str] = []
        self.current = self.argument
        self.talkative = pick(rng, (0.0, 0.2, 0.7))

    def name(self) -> str:
        """A name for a list that the program has not used yet."""
        word = self.names.pop()
        return f"{word}_{pick(self.rng, '0123')}" if chance(self.rng, 0.15) else word

    def comment(self, op: PipelineOp) -> None:
        if chance(self.rng, self.talkative):
            self.lines.append(f"# {pick(self.rng, _COMMENTS[op.name])}")

    def constant(self, op: PipelineOp) -> str:
        """The operation's constant, at times by a name that is given to it above the function or in it."""
        if not chance(self.rng, 0.3):
            return str(op.c)
        name = self.constants.pop()
        if chance(self.rng, 0.5):
            self.above.append([f"{name} = {op.c}"])
            return name
        self.lines.append(f"{name.lower()} = {op.c}")
        self.local_constants.append(name.lower())
        return name.lower()

    def fill(self, template: str, op: PipelineOp, x: str | None = None) -> str:
        constant = self.constant(op) if "{c}" in template else ""
        return template.format(x=x or self.element, v=self.current, c=constant)

    def give(self, expression: str) -> None:
        """Make an expression the current list. Most get a name; a short one may be nested in the next expression."""
        if len(expression) > 18 or chance(self.rng, 0.7):
            name = self.name()
            self.lines.append(f"{name} = {expression}")
            expression = name
        self.current = expression

    def bind(self) -> None:
        """Give the list a name, so that it can be used twice."""
        if not self.current.isidentifier():
            name = self.name()
            self.lines.append(f"{name} = {self.current}")
            self.current = name

    def helper(self, body: str) -> str:
        """A function of one element, above the function, in it, or as a lambda with a name."""
        name, x = self.helpers.pop(), self.element
        inside = bool(set(re.findall(r"\w+", body)) & set(self.local_constants))
        if chance(self.rng, 0.4):
            self.lines.append(f"{name} = lambda {x}: {body}")
        elif not inside and chance(self.rng, 0.5):
            self.above.append([f"def {name}({x}):", f"    return {body}"])
        else:
            self.lines += [f"def {name}({x}):", f"    return {body}"]
        return name


def write_wide(rng: Random, pipeline: Pipeline) -> str:
    """A right program that has little text in common with the next one for the same pipeline."""
    out = _Crowd(rng)
    for op in pipeline.ops[:-1]:
        out.comment(op)
        if op.name in _CONDITIONS:
            pick(rng, _FILTERS)(out, op)
        elif op.name in _VALUES:
            pick(rng, _MAPS)(out, op)
        else:
            _whole(out, op)
    out.comment(pipeline.ops[-1])
    _end(out, pipeline.ops[-1])
    return _assemble(out, pipeline)


def _assemble(out: _Crowd, pipeline: Pipeline) -> str:
    rng = out.rng
    hint = pick(rng, ("", "", ": list", ": list[int]"))
    value = "list" if pipeline.ops[-1].name == "list" else "int"
    head = [f"def f({out.argument}{hint}){pick(rng, ('', '', f' -> {value}'))}:"]
    if chance(rng, 0.15):
        head.append(f'    """{pick(rng, _DOCSTRINGS)}"""')
    above = shuffled(rng, out.above)
    lines = [line for part in above for line in (*part, *([""] if chance(rng, 0.5) else []))]
    return "\n".join([*lines, *head, *("    " + line for line in out.lines)])


def _keep_in_loop(out: _Crowd, op: PipelineOp) -> None:
    condition = out.fill(pick(out.rng, _CONDITIONS[op.name]), op)
    source, name, x = out.current, out.name(), out.element
    append = pick(out.rng, (f"{name}.append({x})", f"{name} += [{x}]", f"{name} = {name} + [{x}]"))
    out.lines.append(pick(out.rng, (f"{name} = []", f"{name} = list()")))
    if chance(out.rng, 0.4):
        out.lines += [f"for {x} in {source}:", f"    if not ({condition}):", "        continue", f"    {append}"]
    else:
        out.lines += [f"for {x} in {source}:", f"    if {condition}:", f"        {append}"]
    out.current = name


def _keep_in_comprehension(out: _Crowd, op: PipelineOp) -> None:
    condition = out.fill(pick(out.rng, _CONDITIONS[op.name]), op)
    out.give(f"[{out.element} for {out.element} in {out.current} if {condition}]")


def _keep_by_filter(out: _Crowd, op: PipelineOp) -> None:
    _by_builtin(out, out.fill(pick(out.rng, _CONDITIONS[op.name]), op), "filter")


def _keep_by_rule(out: _Crowd, op: PipelineOp) -> None:
    rule = out.helper(out.fill(pick(out.rng, _CONDITIONS[op.name]), op))
    out.give(f"[{out.element} for {out.element} in {out.current} if {rule}({out.element})]")


def _keep_by_index(out: _Crowd, op: PipelineOp) -> None:
    out.bind()
    condition = out.fill(pick(out.rng, _CONDITIONS[op.name]), op, f"{out.current}[i]")
    out.give(f"[{out.current}[i] for i in range(len({out.current})) if {condition}]")


def _change_in_loop(out: _Crowd, op: PipelineOp) -> None:
    value = out.fill(pick(out.rng, _VALUES[op.name]), op)
    source, name, x = out.current, out.name(), out.element
    append = pick(out.rng, (f"{name}.append({value})", f"{name} += [{value}]", f"{name} = [*{name}, {value}]"))
    out.lines += [pick(out.rng, (f"{name} = []", f"{name} = list()")), f"for {x} in {source}:", f"    {append}"]
    out.current = name


def _change_in_comprehension(out: _Crowd, op: PipelineOp) -> None:
    value = out.fill(pick(out.rng, _VALUES[op.name]), op)
    out.give(f"[{value} for {out.element} in {out.current}]")


def _change_by_map(out: _Crowd, op: PipelineOp) -> None:
    _by_builtin(out, out.fill(pick(out.rng, _VALUES[op.name]), op), "map")


def _by_builtin(out: _Crowd, expression: str, builtin: str) -> None:
    """Apply filter or map with a function of one element, which is a helper or a lambda."""
    rule = out.helper(expression) if chance(out.rng, 0.5) else f"lambda {out.element}: {expression}"
    call = f"{builtin}({rule}, {out.current})"
    out.give(pick(out.rng, (f"list({call})", f"[*{call}]")))


def _change_in_place(out: _Crowd, op: PipelineOp) -> None:
    name, source = out.name(), out.current
    out.lines.append(f"{name} = {pick(out.rng, ('list({})', '[*{}]')).format(source)}")
    value = out.fill(pick(out.rng, _VALUES[op.name]), op, f"{name}[i]")
    out.lines += [f"for i in range(len({name})):", f"    {name}[i] = {value}"]
    out.current = name


def _change_by_rule(out: _Crowd, op: PipelineOp) -> None:
    rule = out.helper(out.fill(pick(out.rng, _VALUES[op.name]), op))
    out.give(f"[{rule}({out.element}) for {out.element} in {out.current}]")


_FILTERS: tuple[Callable[[_Crowd, PipelineOp], None], ...] = (
    _keep_in_loop, _keep_in_comprehension, _keep_by_filter, _keep_by_rule, _keep_by_index,
)  # fmt: skip
_MAPS: tuple[Callable[[_Crowd, PipelineOp], None], ...] = (
    _change_in_loop, _change_in_comprehension, _change_by_map, _change_in_place, _change_by_rule,
)  # fmt: skip


def _whole(out: _Crowd, op: PipelineOp) -> None:
    """An operation on the list as a whole: by an expression, in place, or in a loop."""
    if op.name in _IN_PLACE and chance(out.rng, 0.3):
        name = out.name()
        out.lines += [f"{name} = list({out.current})", f"{name}.{_IN_PLACE[op.name]}"]
        out.current = name
    elif op.name in _LOOPS and chance(out.rng, 0.4):
        source, name, x, total = out.current, out.name(), out.element, out.total
        constant = out.constant(op) if op.c else ""
        fields = {"y": name, "x": x, "t": total, "c": constant, "v": source}
        out.lines += [line.format(**fields) for line in pick(out.rng, _LOOPS[op.name])]
        out.current = name
    else:
        template = pick(out.rng, _EXPRESSIONS[op.name])
        if template.count("{v}") > 1:
            out.bind()
        out.give(out.fill(template, op))


_LOOPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "reverse": (
        ("{y} = []", "for {x} in {v}:", "    {y}.insert(0, {x})"),
        ("{y} = []", "for {x} in {v}:", "    {y} = [{x}] + {y}"),
    ),
    "unique": (
        ("{y} = []", "for {x} in {v}:", "    if {x} not in {y}:", "        {y}.append({x})"),
        ("{y}, {t} = [], set()", "for {x} in {v}:", "    if {x} in {t}:", "        continue", "    {t}.add({x})",
         "    {y} += [{x}]"),
    ),
    "first": (
        ("{y} = []", "for {x} in {v}:", "    if len({y}) < {c}:", "        {y}.append({x})"),
        ("{y} = list({v})", "del {y}[{c}:]"),
    ),
    "last": (
        ("{y} = list({v})", "while len({y}) > {c}:", "    {y}.pop(0)"),
        ("{y} = []", "for {x} in {v}:", "    {y} = [*{y}, {x}][-{c}:]"),
    ),
    "running": (
        ("{y} = []", "{t} = 0", "for {x} in {v}:", "    {t} += {x}", "    {y}.append({t})"),
        ("{t}, {y} = 0, []", "for {x} in {v}:", "    {t} = {t} + {x}", "    {y} += [{t}]"),
        ("{y} = list({v})", "for i in range(1, len({y})):", "    {y}[i] += {y}[i - 1]"),
    ),
    "sum": (
        ("{t} = 0", "for {x} in {v}:", "    {t} += {x}", "return {t}"),
        ("{t} = 0", "for {x} in {v}:", "    {t} = {x} + {t}", "return {t}"),
    ),
    "len": (("{t} = 0", "for {x} in {v}:", "    {t} += 1", "return {t}"),),
    "max": (("{t} = None", "for {x} in {v}:", "    if {t} is None or {x} > {t}:", "        {t} = {x}", "return {t}"),),
    "min": (("{t} = None", "for {x} in {v}:", "    if {t} is None or {x} < {t}:", "        {t} = {x}", "return {t}"),),
}  # fmt: skip


def _end(out: _Crowd, end: PipelineOp) -> None:
    if end.name in _LOOPS and chance(out.rng, 0.3):
        fields = {"x": out.element, "t": out.total, "v": out.current}
        out.lines += [line.format(**fields) for line in pick(out.rng, _LOOPS[end.name])]
        return
    template = pick(out.rng, _EXPRESSIONS[end.name])
    if template.count("{v}") > 1:
        out.bind()
    expression = out.fill(template, end)
    if chance(out.rng, 0.3):
        name = out.name()
        out.lines.append(f"{name} = {expression}")
        expression = name
    out.lines.append(f"return {expression}")
