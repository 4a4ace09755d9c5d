"""Generated repositories with one planted bug: modules of small functions, visible tests, an issue, and hidden tests.

What decides the symptom and the right change (the chain of functions, their numbers, the bug) is a repository's content;
its hash says whether it is a test repository, so that no demonstration shows one. Names, wording, the other functions
and the inputs of the tests are drawn apart from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from random import Random

from radmoe.errors import InputError
from radmoe.problems import DEFAULT_SEED
from radmoe_lab.agent.functions import Function
from radmoe_lab.agent.running import CHECK, call_text, cases_file, results
from radmoe_lab.agent.sketches import Sketch, SketchStep, draw_sketch
from radmoe_lab.tasks.draw import between, chance, is_test, pick, seeded, shuffled

SIZE = 600  # test repositories under one seed, unless another number is asked for
TASK = "repo"

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
class BuggyRepository:
    """A repository as the agent finds it (`files`), the issue, and what the agent does not see.

    `fixed` are the files without the bug, `hidden` the hidden tests as "module.name([..]) == value". `target` is the
    function that is wrong, None where the entry itself is. `failing` is the case of the issue. `number_open` says that
    no docstring names the target's number, and `direct` that a visible test of the target alone fails. `level` says how
    large the numbers are.
    """

    repository_id: str
    files: dict[str, str]
    fixed: dict[str, str]
    issue: str
    visible: tuple[str, ...]
    hidden: tuple[str, ...]
    family: str
    entry: str
    steps: tuple[SketchStep, ...]  # as they should be
    modules: dict[str, tuple[Function, ...]]
    target: SketchStep | None
    edit: Edit  # that mends it
    failing: str
    failing_unit: str
    direct: bool
    number_open: bool
    level: int
    content: str


def repositories(*, seed: int = DEFAULT_SEED, limit: int = SIZE) -> list[BuggyRepository]:
    """Return the first test repositories of a seed, all different."""
    if not 1 <= limit <= _MOST:
        raise InputError(f"limit must lie between 1 and {_MOST}, got {limit}")
    return list(islice(stream(seed=seed), limit))


def stream(*, seed: int = DEFAULT_SEED) -> Iterator[BuggyRepository]:
    """Yield test repositories without end, no two with the same content. Their ids contain the seed unless it is the
    default.
    """
    rng, seen = seeded("repositories", seed), set[str]()
    prefix = TASK if seed == DEFAULT_SEED else f"{TASK}-s{seed}"
    while True:
        repository = draw_repository(rng, f"{prefix}-{len(seen):04d}", test=True)
        if repository.content not in seen:
            seen.add(repository.content)
            yield repository


def repository_named(repository_id: str) -> BuggyRepository:
    """Return a test repository by its id, such as repo-0007 or repo-s3-0007."""
    head, _, number = repository_id.rpartition("-")
    seed = DEFAULT_SEED if head == TASK else head.removeprefix(f"{TASK}-s")
    if not (number.isdecimal() and str(seed).isdecimal() and head.startswith(TASK)) or int(number) >= _MOST:
        raise InputError(f"no repository {repository_id!r}: ids are {TASK}-0000, or {TASK}-s3-0000 under another seed")
    repository = next(islice(stream(seed=int(seed)), int(number), None))
    if repository.repository_id != repository_id:
        raise InputError(f"no repository {repository_id!r}: did you mean {repository.repository_id}?")
    return repository


def draw_repository(rng: Random, repository_id: str, *, test: bool) -> BuggyRepository:
    """Draw a test repository or a training repository. A draw whose bug no test shows is discarded."""
    while True:
        sketch = draw_sketch(rng)
        content = sketch.content()
        if is_test(content) == test:
            repository = _finish(rng, repository_id, sketch, content)
            if repository is not None:
                return repository


def _module_source(functions: tuple[Function, ...], target: Function | None, broken: str) -> str:
    return "\n\n".join(f.source(broken if f is target else None) for f in functions)


def _finish(rng: Random, repository_id: str, sketch: Sketch, content: str) -> BuggyRepository | None:
    """Draw the texts and tests of a sketch. None if its bug does not show."""
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
    return BuggyRepository(
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
        sketch.level,
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


def _values(rng: Random, sketch: Sketch) -> list[int]:
    values = [between(rng, 1, 30 * pick(rng, (1, sketch.level))) for _ in range(between(rng, 3, 4 + sketch.level // 2))]
    if sketch.target >= 0 and chance(rng, 0.5):  # a value on the edge, if it gets there unchanged
        function = sketch.steps[sketch.target].function
        if function.k:
            values[between(rng, 0, len(values) - 1)] = min(30, function.k)
    return values


def _near(rng: Random, function: Function) -> list[int]:
    """Draw inputs for one function: sometimes an empty list, mostly one with a value at the function's boundary."""
    if chance(rng, 0.12):
        return []
    values = [between(rng, 1, 30) for _ in range(between(rng, 2, 4))]
    if function.k and chance(rng, 0.7):
        values[between(rng, 0, len(values) - 1)] = max(1, min(30, function.k + between(rng, -1, 1)))
    if function.kind == "unique":
        values[-1] = values[0]
    return values


def _issue(rng: Random, sketch: Sketch, failing: str, got: str, right: str) -> str:
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
