"""Generated repositories with one planted bug: modules of small functions, visible tests, an issue, and hidden tests.

What decides the symptom and the right change (the chain of functions, their numbers, the bug) is a repository's content;
its hash says whether it is a test repository, so that no demonstration shows one. Names, wording, the other functions
and the inputs of the tests are drawn apart from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

from radmoe.errors import InputError
from radmoe.lab.agent.functions import KINDS, Bug, Function
from radmoe.lab.agent.running import CHECK, call_text, cases_file, results
from radmoe.lab.tasks.draw import between, chance, is_test, pick, seeded, shuffled
from radmoe.problems import DEFAULT_SEED

SIZE = 600  # test repositories under one seed, unless another number is asked for
TASK = "repo"

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
_PUZZLES = 0.45  # share of the repositories in which the right number is to be found by arithmetic
_MOST = 100_000  # test repositories that one seed gives out


@dataclass(frozen=True)
class Edit:
    """Lines `first` to `first + removed - 1` of a file (from 1 on) become `lines`; removing none inserts before `first`."""

    file: str
    first: int
    removed: int
    lines: tuple[str, ...]

    def apply(self, files: Mapping[str, str]) -> dict[str, str]:
        old = files[self.file].split("\n")
        old[self.first - 1 : self.first - 1 + self.removed] = self.lines
        return {**files, self.file: "\n".join(old)}


@dataclass(frozen=True)
class Step:
    """One call of the entry function: a function of a module."""

    module: str
    function: Function


@dataclass(frozen=True)
class Repository:
    """A repository as the agent finds it (`files`), the issue, and what the agent does not see.

    `fixed` are the files without the bug, `hidden` the hidden tests as "module.name([..]) == value". `target` is the
    function that is wrong, None where the entry itself is. `failing` is the case of the issue. `number_open` says that
    no docstring names the target's number, and `direct` that a visible test of the target alone fails.
    """

    repository_id: str
    files: dict[str, str]
    fixed: dict[str, str]
    issue: str
    visible: tuple[str, ...]
    hidden: tuple[str, ...]
    family: str
    entry: str
    steps: tuple[Step, ...]  # as they should be
    modules: dict[str, tuple[Function, ...]]
    target: Step | None
    edit: Edit  # that mends it
    failing: str
    failing_unit: str
    direct: bool
    number_open: bool
    content: str


def repositories(*, seed: int = DEFAULT_SEED, limit: int = SIZE) -> list[Repository]:
    """The first test repositories of a seed, all different."""
    if not 1 <= limit <= _MOST:
        raise InputError(f"limit must lie between 1 and {_MOST}, got {limit}")
    return list(islice(stream(seed=seed), limit))


def stream(*, seed: int = DEFAULT_SEED) -> Iterator[Repository]:
    """Test repositories without end, no two of the same content. Ids under another seed than the default name it."""
    rng, seen = seeded("repositories", seed), set[str]()
    prefix = TASK if seed == DEFAULT_SEED else f"{TASK}-s{seed}"
    while True:
        repository = draw_repository(rng, f"{prefix}-{len(seen):04d}", test=True)
        if repository.content not in seen:
            seen.add(repository.content)
            yield repository


def repository_named(repository_id: str) -> Repository:
    """A test repository by its id, such as repo-0007 or repo-s3-0007."""
    head, _, number = repository_id.rpartition("-")
    seed = DEFAULT_SEED if head == TASK else head.removeprefix(f"{TASK}-s")
    if not (number.isdecimal() and str(seed).isdecimal() and head.startswith(TASK)) or int(number) >= _MOST:
        raise InputError(f"no repository {repository_id!r}: ids are {TASK}-0000, or {TASK}-s3-0000 under another seed")
    repository = next(islice(stream(seed=int(seed)), int(number), None))
    if repository.repository_id != repository_id:
        raise InputError(f"no repository {repository_id!r}: did you mean {repository.repository_id}?")
    return repository


def draw_repository(rng: Random, repository_id: str, *, test: bool) -> Repository:
    """A test repository, or one to train on. A draw whose bug shows in no test is thrown away."""
    while True:
        sketch = _sketch(rng)
        content = sketch.content()
        if is_test(content) == test:
            repository = _finish(rng, repository_id, sketch, content)
            if repository is not None:
                return repository


@dataclass(frozen=True)
class _Sketch:
    """What a repository is before its texts and tests are drawn. `broken` is the body of the target, or of the entry."""

    entry: str
    steps: tuple[Step, ...]
    modules: dict[str, tuple[Function, ...]]
    family: str
    target: int  # place in steps, -1 where the entry is wrong
    broken: str
    fixed_entry: str
    broken_entry: str

    def content(self) -> str:
        chain = [(step.function.kind, step.function.k) for step in self.steps]
        mistake = self.broken if self.target >= 0 else [self.family, *self._entry_mistake()]
        return json.dumps([chain, self.target, mistake])

    def _entry_mistake(self) -> list[str]:
        """The calls or modules that the broken entry has, with kinds for names, so that wording does not count."""
        kinds = {step.function.name: f"{step.function.kind}{step.function.k}" for step in self.steps}
        words = self.broken_entry.replace("(", " ").split()
        return [kinds[word] for word in words if word in kinds]


def _function(rng: Random, kind: str, taken: set[str]) -> Function | None:
    names = [name for name in KINDS[kind].names if name not in taken]
    if not names:
        return None
    name = pick(rng, names)
    taken.add(name)
    doc = pick(rng, KINDS[kind].docs)
    if kind in _PRODUCTS and chance(rng, 0.6):
        a, b = between(rng, 3, 9), between(rng, 11, 29)
        return Function(name, kind, a * b, doc.format(k=f"{a} times {b}"), factors=(a, b))
    k = between(rng, KINDS[kind].low, KINDS[kind].high)
    return Function(name, kind, k, doc.format(k=k))


def _sketch(rng: Random) -> _Sketch:
    taken: set[str] = set()
    length = 2 if chance(rng, 0.65) else 3
    puzzle = chance(rng, _PUZZLES)
    kinds = shuffled(rng, _LIST_KINDS)[:length] + ([pick(rng, _END_KINDS)] if chance(rng, 0.88) else [])
    if puzzle:
        kinds = _puzzle_chain(rng, length)
    others = shuffled(rng, _LIST_KINDS + _END_KINDS)[: between(rng, 1, 2)]
    functions = [made for kind in kinds + others if (made := _function(rng, kind, taken)) is not None]
    chain, spare = functions[: len(kinds)], functions[len(kinds) :]
    if len(chain) < len(kinds):
        return _sketch(rng)
    names = shuffled(rng, _MODULES)[:2]
    homes = [pick(rng, names) for _ in chain]
    if len(set(homes)) == 1:
        homes[-1] = names[0] if homes[-1] == names[1] else names[1]
    steps = [Step(home, function) for home, function in zip(homes, chain, strict=True)]
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
    return _Sketch(entry, tuple(steps), frozen, family, target, broken, right, wrong)


def _puzzle_chain(rng: Random, length: int) -> list[str]:
    """Kinds of a chain in which a number can be found from what comes out: it is the last that changes values."""
    last = pick(rng, sorted(_INVERTIBLE))
    if KINDS[last].ends:
        return [*shuffled(rng, _LIST_KINDS)[: length - 1], last]
    others = [kind for kind in _LIST_KINDS if kind not in _INVERTIBLE]
    end = pick(rng, ("sum", "sum", "largest", "smallest", ""))
    return [*shuffled(rng, others)[: length - 1], last, *([end] if end else [])]


def _opposite(kind: str) -> str:
    """Another kind for a function without a number: of a twin, which must not compute the same."""
    others = {"sort": "rsort", "largest": "smallest", "smallest": "largest", "count": "sum"}
    return others.get(kind, "count" if KINDS[kind].ends else "sort")


def _number_near(rng: Random, k: int) -> int:
    """Another number near k, and at least 1."""
    while True:
        j = k + pick(rng, (-1, 1)) * between(rng, 1, max(1, min(9, k // 2)))
        if j >= 1 and j != k:
            return j


def _broken_function(
    rng: Random, steps: list[Step], modules: dict[str, list[Function]], target: int, *, puzzle: bool
) -> tuple[str, str, list[Step], dict[str, list[Function]]]:
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
    changed = {
        f: replace(f, doc=pick(rng, KINDS[f.kind].vague), vague=True) for f in sorted(vague, key=lambda f: f.name)
    }
    modules = {name: [changed.get(f, f) for f in members] for name, members in modules.items()}
    steps = [Step(s.module, changed.get(s.function, s.function)) for s in steps]
    return bug.family, bug.body.format(k=function.k, j=j), steps, modules


def _entry_source(entry: str, steps: list[Step], also: list[str] | None = None) -> str:
    imports = sorted({f"from {step.module} import {step.function.name}" for step in steps} | set(also or []))
    said = ", ".join(f"{step.function.name} of {step.module}" for step in steps)
    lines = [f"    values = {step.function.name}(values)" for step in steps[:-1]]
    body = [f"def {entry}(values):", f'    """Apply {said}."""', *lines]
    return "\n".join([*imports, "", "", *body, f"    return {steps[-1].function.name}(values)"]) + "\n"


def _broken_entry(
    rng: Random, mode: str, entry: str, steps: list[Step], modules: dict[str, list[Function]], twin: int, spare: str
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


def _module_source(functions: tuple[Function, ...], target: Function | None, broken: str) -> str:
    return "\n\n".join(f.source(broken if f is target else None) for f in functions)


def _finish(rng: Random, repository_id: str, sketch: _Sketch, content: str) -> Repository | None:
    """The texts and tests of a sketch; None where its bug does not show."""
    target = sketch.steps[sketch.target] if sketch.target >= 0 else None
    function = target.function if target else None
    fixed = {f"{name}.py": _module_source(members, None, "") for name, members in sketch.modules.items()}
    files = {f"{name}.py": _module_source(members, function, sketch.broken) for name, members in sketch.modules.items()}
    fixed[f"{sketch.entry}.py"], files[f"{sketch.entry}.py"] = sketch.fixed_entry, sketch.broken_entry
    edit = _edit_between(files, fixed)
    if edit is None:
        return None
    entry_calls = [call_text(sketch.entry, sketch.entry, _values(rng, sketch)) for _ in range(8)]
    entry_calls.append(call_text(sketch.entry, sketch.entry, []))
    wrong = [i for i in _different(files, fixed, entry_calls) if not (function and function.vague and i == 8)]
    if not wrong:
        return None
    failing = entry_calls[wrong[0]]
    units = {
        f"{name}.{f.name}": [call_text(name, f.name, _near(rng, f)) for _ in range(3)]
        for name, members in sketch.modules.items()
        for f in members
    }
    failing_unit, direct = "", False
    if target is not None:
        own = units[f"{target.module}.{target.function.name}"]
        broken = _different(files, fixed, own)
        failing_unit = own[broken[0]] if broken else ""
        direct = bool(failing_unit) and chance(rng, 0.3)
    open_numbers = {f"{name}.{f.name}" for name, members in sketch.modules.items() for f in members if f.vague}
    calls = [failing, *([failing_unit] if direct else [])]
    calls += [entry_calls[i] for i in range(8) if entry_calls[i] != failing][: between(rng, 0, 1)]
    for owner, own in units.items():
        if owner != (f"{target.module}.{target.function.name}" if target else "") and (
            owner in open_numbers or chance(rng, 0.5)
        ):
            calls.append(next((call for call in own if not call.endswith("([])")), own[0]))
    hidden = [*dict.fromkeys([*entry_calls, *(call for own in units.values() for call in own)])]
    visible = shuffled(rng, calls)
    expected = dict(zip([*visible, *hidden], results(fixed, [*visible, *hidden]), strict=True))
    cases = tuple(f"{call} == {expected[call]}" for call in visible)
    issue = _issue(rng, sketch, failing, results(files, [failing])[0], expected[failing])
    shared = {"check.py": CHECK, "tests.py": cases_file(cases)}
    return Repository(
        repository_id,
        dict(sorted({**files, **shared}.items())),
        dict(sorted({**fixed, **shared}.items())),
        issue,
        cases,
        tuple(f"{call} == {expected[call]}" for call in hidden),
        sketch.family,
        sketch.entry,
        sketch.steps,
        sketch.modules,
        target,
        edit,
        failing,
        failing_unit,
        direct,
        bool(function and function.vague),
        content,
    )


def _edit_between(files: dict[str, str], fixed: dict[str, str]) -> Edit | None:
    for file, text in files.items():
        if text != fixed[file]:
            old, new = text.split("\n"), fixed[file].split("\n")
            head = next(i for i in range(len(old)) if i >= len(new) or old[i] != new[i])
            tail = 0
            while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
                tail += 1
            return Edit(file, head + 1, len(old) - head - tail, tuple(new[head : len(new) - tail]))
    return None


def _different(files: dict[str, str], fixed: dict[str, str], calls: list[str]) -> list[int]:
    pairs = zip(results(files, calls), results(fixed, calls), strict=True)
    return [i for i, (wrong, right) in enumerate(pairs) if wrong != right]


def _values(rng: Random, sketch: _Sketch) -> list[int]:
    values = [between(rng, 1, 30) for _ in range(between(rng, 3, 5))]
    if sketch.target >= 0 and chance(rng, 0.5):  # a value on the edge, if it gets there unchanged
        function = sketch.steps[sketch.target].function
        if function.k:
            values[between(rng, 0, len(values) - 1)] = min(30, function.k)
    return values


def _near(rng: Random, function: Function) -> list[int]:
    """Inputs of one function alone: now and then none, mostly with a value on its edge."""
    if chance(rng, 0.12):
        return []
    values = [between(rng, 1, 30) for _ in range(between(rng, 2, 4))]
    if function.k and chance(rng, 0.7):
        values[between(rng, 0, len(values) - 1)] = max(1, min(30, function.k + between(rng, -1, 1)))
    if function.kind == "unique":
        values[-1] = values[0]
    return values


def _issue(rng: Random, sketch: _Sketch, failing: str, got: str, right: str) -> str:
    verb = "raises" if got.isalpha() and got.endswith("Error") else "gives"
    text = pick(
        rng,
        (
            f"{failing} {verb} {got}, but it should give {right}.",
            f"I expected {right} from {failing}, but it {verb} {got}.",
            f"Wrong result: {failing} {verb} {got} instead of {right}.",
        ),
    )
    if chance(rng, 0.2):
        text += f" Perhaps it is in {pick(rng, [f'{name}.py' for name in sketch.modules])}."
    elif chance(rng, 0.2):
        text += " Everything else seems fine."
    return text
