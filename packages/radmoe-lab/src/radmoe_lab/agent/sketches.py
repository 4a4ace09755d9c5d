"""What a repository is before its texts and tests are drawn: modules, the chain of functions, and the bug."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from random import Random

from radmoe_lab.agent.functions import KINDS, Bug, Function
from radmoe_lab.tasks.draw import between, chance, pick, shuffled

_MODULES = (
    "clean",
    "score",
    "rows",
    "prices",
    "stock",
    "units",
    "grades",
    "orders",
    "levels",
    "marks",
    "rates",
    "items",
)
_TWINS = ("spare", "legacy", "backup", "draft")  # modules with a second function of the same name
_ENTRIES = ("report", "summary", "digest", "daily", "weekly", "export", "outcome", "final")
_LIST_KINDS = tuple(name for name, kind in KINDS.items() if not kind.ends)
_END_KINDS = tuple(name for name, kind in KINDS.items() if kind.ends)
_INVERTIBLE = {"add", "sub", "mul", "plus", "times"}  # whose number follows from what comes out
_PRODUCTS = {"add", "sub", "plus"}  # whose number a docstring may give as a product
LEVELS = (1, 2, 3)  # how large numbers are: from easy to out of a small model's reach
_PUZZLES = 0.5  # share of the repositories in which the right number is to be found by arithmetic


@dataclass(frozen=True)
class SketchStep:
    """One call of the entry function: a function of a module."""

    module: str
    function: Function


@dataclass(frozen=True)
class Sketch:
    """What a repository is before its texts and tests are drawn. `broken` is the body of the target, or of the entry."""

    entry: str
    steps: tuple[SketchStep, ...]
    modules: dict[str, tuple[Function, ...]]
    family: str
    target: int  # place in steps, -1 where the entry is wrong
    broken: str
    fixed_entry: str
    broken_entry: str
    level: int

    def content(self) -> str:
        chain = [(step.function.kind, step.function.k) for step in self.steps]
        mistake = self.broken if self.target >= 0 else [self.family, *self._entry_mistake()]
        return json.dumps([chain, self.target, mistake])

    def _entry_mistake(self) -> list[str]:
        """The calls or modules that the broken entry has, with kinds for names, so that wording does not count."""
        kinds = {step.function.name: f"{step.function.kind}{step.function.k}" for step in self.steps}
        words = self.broken_entry.replace("(", " ").split()
        return [kinds[word] for word in words if word in kinds]


def _function(rng: Random, kind: str, taken: set[str], level: int) -> Function | None:
    names = [name for name in KINDS[kind].names if name not in taken]
    if not names:
        return None
    name = pick(rng, names)
    taken.add(name)
    doc = pick(rng, KINDS[kind].docs)
    if kind in _PRODUCTS and chance(rng, 0.6):
        a, b = between(rng, 3, 9 * level), between(rng, 11, 29)
        return Function(name, kind, a * b, doc.format(k=f"{a} times {b}"), factors=(a, b))
    k = between(rng, KINDS[kind].low, KINDS[kind].high * (level if kind in _INVERTIBLE else 1))
    return Function(name, kind, k, doc.format(k=k))


def draw_sketch(rng: Random) -> Sketch:
    taken: set[str] = set()
    length = 2 if chance(rng, 0.65) else 3
    puzzle, level = chance(rng, _PUZZLES), pick(rng, LEVELS)
    kinds = shuffled(rng, _LIST_KINDS)[:length] + ([pick(rng, _END_KINDS)] if chance(rng, 0.88) else [])
    if puzzle:
        kinds = _puzzle_chain(rng, length)
    others = shuffled(rng, _LIST_KINDS + _END_KINDS)[: between(rng, 1, 2)]
    functions = [made for kind in kinds + others if (made := _function(rng, kind, taken, level)) is not None]
    chain, spare = functions[: len(kinds)], functions[len(kinds) :]
    if len(chain) < len(kinds):
        return draw_sketch(rng)
    names = shuffled(rng, _MODULES)[:2]
    homes = [pick(rng, names) for _ in chain]
    if len(set(homes)) == 1:
        homes[-1] = names[0] if homes[-1] == names[1] else names[1]
    steps = [SketchStep(home, function) for home, function in zip(homes, chain, strict=True)]
    modules = {name: [step.function for step in steps if step.module == name] for name in names}
    for function in spare:
        modules[pick(rng, names)].append(function)
    modules = {name: shuffled(rng, members) for name, members in modules.items()}
    entry = pick(rng, _ENTRIES)
    mode = ""
    if not puzzle and chance(rng, 0.25):
        mode = pick(rng, ("missing step", "order", "wrong call", "import"))
    twin_of = between(rng, 0, len(steps) - 1)
    if mode == "import" or chance(rng, 0.2):
        twin_module, original = pick(rng, _TWINS), steps[twin_of].function
        other = _number_near(rng, original.k) if original.k else original.k
        kind = original.kind if other != original.k else _opposite(original.kind)
        twin = Function(original.name, kind, other, KINDS[kind].docs[0].format(k=other))
        modules[twin_module] = [twin]
    else:
        twin_module = ""
    target, family, broken = -1, mode, ""
    right = _entry_source(entry, steps)
    wrong = right
    if mode:
        wrong = _broken_entry(rng, mode, entry, steps, modules, twin_of, twin_module)
        if mode == "wrong call":
            right = _entry_source(entry, steps, also=[line for line in wrong.split("\n") if line.startswith("from")])
    else:
        places = [i for i, step in enumerate(steps) if step.function.kind in _INVERTIBLE]
        target = places[-1] if puzzle else between(rng, 0, len(steps) - 1)
        family, broken, steps, modules = _broken_function(rng, steps, modules, target, puzzle=puzzle)
    frozen = {name: tuple(members) for name, members in modules.items()}
    return Sketch(entry, tuple(steps), frozen, family, target, broken, right, wrong, level)


def _puzzle_chain(rng: Random, length: int) -> list[str]:
    """Draw the kinds of the functions of a chain whose result tells the number that is to be guessed.

    It is the number of the last function that changes values.
    """
    last = pick(rng, sorted(_INVERTIBLE))
    if KINDS[last].ends:
        return [*shuffled(rng, _LIST_KINDS)[: length - 1], last]
    others = [kind for kind in _LIST_KINDS if kind not in _INVERTIBLE]
    end = pick(rng, ("sum", "sum", "largest", "smallest", ""))
    return [*shuffled(rng, others)[: length - 1], last, *([end] if end else [])]


def _opposite(kind: str) -> str:
    """Return another kind for a function without a number; the two compute different results."""
    others = {"sort": "rsort", "largest": "smallest", "smallest": "largest", "count": "sum"}
    return others.get(kind, "count" if KINDS[kind].ends else "sort")


def _number_near(rng: Random, k: int) -> int:
    """Draw another number near k, at least 1."""
    while True:
        j = k + pick(rng, (-1, 1)) * between(rng, 1, max(1, min(9, k // 2)))
        if j >= 1 and j != k:
            return j


def _broken_function(
    rng: Random, steps: list[SketchStep], modules: dict[str, list[Function]], target: int, *, puzzle: bool
) -> tuple[str, str, list[SketchStep], dict[str, list[Function]]]:
    """Break a function of the chain. In a puzzle its number is wrong, and its docstring does not name it."""
    function = steps[target].function
    bug: Bug = pick(rng, KINDS[function.kind].bugs)
    if puzzle:
        bug = next(each for each in KINDS[function.kind].bugs if each.family == "constant")
    j = function.k + pick(rng, (-1, 1)) if bug.family == "off by one" else _number_near(rng, max(function.k, 2))
    if bug.family == "off by one" and j < 1:
        j = function.k + 1
    vague = {function} if puzzle else set()
    chain = [step.function for step in steps]
    others = [f for each in modules.values() for f in each if f not in chain and KINDS[f.kind].vague]
    vague |= {f for f in others if chance(rng, 0.4)}
    ordered = sorted(vague, key=lambda f: (f.name, f.k, f.kind))  # a twin has the name of its original
    changed = {f: replace(f, doc=pick(rng, KINDS[f.kind].vague), vague=True) for f in ordered}
    modules = {name: [changed.get(f, f) for f in members] for name, members in modules.items()}
    steps = [SketchStep(s.module, changed.get(s.function, s.function)) for s in steps]
    return bug.family, bug.body.format(k=function.k, j=j), steps, modules


def _entry_source(entry: str, steps: list[SketchStep], also: list[str] | None = None) -> str:
    imports = sorted({f"from {step.module} import {step.function.name}" for step in steps} | set(also or []))
    said = ", ".join(f"{step.function.name} of {step.module}" for step in steps)
    lines = [f"    values = {step.function.name}(values)" for step in steps[:-1]]
    body = [f"def {entry}(values):", f'    """Apply {said}."""', *lines]
    return "\n".join([*imports, "", "", *body, f"    return {steps[-1].function.name}(values)"]) + "\n"


def _broken_entry(
    rng: Random,
    mode: str,
    entry: str,
    steps: list[SketchStep],
    modules: dict[str, list[Function]],
    twin: int,
    spare: str,
) -> str:
    right = _entry_source(entry, steps)
    lines = right.split("\n")
    places = [n for n, line in enumerate(lines) if line.startswith("    values = ")]
    if mode == "missing step":
        del lines[pick(rng, places)]
    elif mode == "order":
        n = pick(rng, places[:-1]) if len(places) > 1 else places[0]
        if len(places) > 1:
            lines[n], lines[n + 1] = lines[n + 1], lines[n]
    elif mode == "import":
        step = steps[twin]
        old = f"from {step.module} import {step.function.name}"
        lines[lines.index(old)] = f"from {spare} import {step.function.name}"
    else:
        used = {step.function.name for step in steps}
        others = [
            (name, f)
            for name, members in modules.items()
            for f in members
            if f.name not in used and not KINDS[f.kind].ends
        ]
        if others:
            home, other = pick(rng, others)
            n = pick(rng, places)
            lines[n] = f"    values = {other.name}(values)"
            head = sorted({*(line for line in lines if line.startswith("from")), f"from {home} import {other.name}"})
            lines = [*head, *(line for line in lines if not line.startswith("from"))]
    return "\n".join(lines)
