"""The reasoning of a demonstration: comparing docstrings with code, and inferring a number from expected results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from radmoe_lab.agent.functions import KINDS, Function, key
from radmoe_lab.agent.repositories import BuggyRepository
from radmoe_lab.agent.running import parse_call, results
from radmoe_lab.agent.sketches import SketchStep
from radmoe_lab.tasks.draw import chance, pick


def body_of(source: str, name: str) -> str:
    """Return the body of a function in a module's text, without docstring and indentation."""
    lines = source.split("\n")
    first = lines.index(f"def {name}(values):") + 2
    last = next((n for n in range(first, len(lines)) if lines[n] and not lines[n].startswith(" ")), len(lines))
    return "\n".join(line[4:] for line in lines[first:last]).rstrip("\n")


def compare(function: Function, source: str) -> tuple[str, bool]:
    """Return the sentence on a function whose code was read, and whether the function is wrong."""
    has = key(body_of(source, function.name))
    if function.vague:
        return f"{function.name}: no number is named, it has {has}.", False
    right = key(KINDS[function.kind].body.format(k=function.k))
    product = "" if function.factors is None else "{} * {} = {}, so it ".format(*function.factors, function.k)
    if has == right:
        return f"{function.name}: {product}should be {right}, fine.", False
    return f"{function.name}: {product}should be {right}, but it has {has}.", True


def compare_entry(repository: BuggyRepository, source: str) -> tuple[str, bool]:
    """The same for the entry function: which functions it should call, and which it calls."""
    wanted = [f"{step.function.name} of {step.module}" for step in repository.steps]
    homes = {line.split()[3]: line.split()[1] for line in source.split("\n") if line.startswith("from ")}
    calls = [line.split("(")[0].split()[-1] for line in source.split("\n") if line.endswith("(values)")]
    have = [f"{name} of {homes.get(name, '?')}" for name in calls]
    if wanted == have:
        return f"It calls {', '.join(have)}, as it should.", False
    return f"It should call {', '.join(wanted)}, but it calls {', '.join(have)}.", True


def find_number(
    rng: Random, repository: BuggyRepository, files: Mapping[str, str], *, tested: bool, careful: bool
) -> str:
    """Reason from a failing case, that of the issue or one that the tests showed, to the right number of the target."""
    assert repository.target is not None
    step = repository.target
    if repository.direct and tested and chance(rng, 0.8):
        case = repository.failing_unit
        before: list[int] = eval(parse_call(case)[2])
        text, kinds = f"{case} should give {_expected(repository, case)}.", []
    else:
        case = repository.failing
        before = eval(parse_call(case)[2])
        place = next(i for i, each in enumerate(repository.steps) if each is step)
        text = f"{case} should give {_expected(repository, case)}."
        for each in repository.steps[:place]:
            before = eval(_value(files, each, before))
            text += f" {each.function.name} gives {before}."
        kinds = [each.function.kind for each in repository.steps[place + 1 :]]
    end = step.function.kind if KINDS[step.function.kind].ends else (kinds[0] if kinds else "")
    right = eval(_expected(repository, case))
    return f"{text} {_arithmetic(step.function, end, before, right, careful=careful)}"


def _arithmetic(function: Function, end: str, before: Sequence[int], right: int | list[int], *, careful: bool) -> str:
    """Write out how the number k of a function follows from its input list and the final result."""
    k, kind = function.k, function.kind
    if isinstance(right, list):
        return f"The first value is {before[0]}. " + _last(kind, right[0], before[0], k)
    if end in ("largest", "smallest"):
        value = (max if end == "largest" else min)(before)
        return f"The {end} is {value}. " + _last(kind, right, value, k)
    total = sum(before)
    said = f"The sum is {total}. " if not careful or len(before) < 2 else f"{_partial_sums(before)}. "
    if kind in ("plus", "times", "mul"):
        return said + _last({"plus": "add", "times": "mul"}.get(kind, kind), right, total, k)
    n = len(before)
    gap = f"{right} - {total} = {right - total}" if kind == "add" else f"{total} - {right} = {total - right}"
    return f"{said}{gap}, and {abs(right - total)} / {n} = {k}, so the number is {k}."


def _last(kind: str, right: int, value: int, k: int) -> str:
    sums = {"add": f"{right} - {value}", "sub": f"{value} - {right}", "mul": f"{right} / {value}"}
    return f"{sums[kind]} = {k}, so the number is {k}."


def _partial_sums(values: Sequence[int]) -> str:
    total, parts = values[0], []
    for value in values[1:]:
        sign = "+" if value >= 0 else "-"
        parts.append(f"{total} {sign} {abs(value)} = {total + value}")
        total += value
    return ", ".join(parts)


def _value(files: Mapping[str, str], step: SketchStep, values: Sequence[int]) -> str:
    (value,) = results(files, [f"{step.module}.{step.function.name}({list(values)!r})"])
    return value


def _expected(repository: BuggyRepository, call: str) -> str:
    cases = [case.split(" == ") for case in (*repository.visible, *repository.hidden)]
    return next(value for case, value in cases if case == call)


def say(rng: Random, *options: str) -> str:
    return pick(rng, options)
