"""Tests of a program in a file of one's own.

A line has `tests`, a list of objects. `{"input": "1 2\\n", "output": "3\\n"}` feeds a program that reads standard input and
prints. `{"args": [1, 2], "expected": 3}` calls the function or method that `entry` names ("add" or "Solution.add"). Either
way programs are graded as LiveCodeBench's are: each test in a fresh process, which finds the names that LiveCodeBench's runner
imports and has its recursion limit. With `"environment": "bare"` a program finds what any Python program does.
"""

from __future__ import annotations

import re
from typing import Any

from radmoe.errors import InputError
from radmoe.problems.base import STDIN, Gold, Test
from radmoe.problems.dataset import OWN_TESTS, Row

EXAMPLE = '"tests": [{"input": "1 2", "output": "3"}]'
_CALLS = '"tests": [{"args": [1, 2], "expected": 3}], "entry": "add"'
ENVIRONMENTS = ("livecodebench", "bare")
_ENTRY = re.compile(r"(?:Solution\.)?[A-Za-z_]\w*")


def entry_of(row: Row, where: str) -> str | None:
    """Return the function or method that a line names; None if it names none."""
    entry = row.get("entry")
    if entry is None:
        return None
    if not isinstance(entry, str) or not _ENTRY.fullmatch(entry):
        raise InputError(f"{where}: entry must be a function's name or Solution.name, got {entry!r}")
    return entry


def is_bare(row: Row, where: str) -> bool:
    """Whether a line asks for an environment without LiveCodeBench's imports and recursion limit."""
    environment = row.get("environment", ENVIRONMENTS[0])
    if environment not in ENVIRONMENTS:
        raise InputError(f"{where}: environment must be one of {', '.join(ENVIRONMENTS)}, got {_short(environment)}")
    return bool(environment == "bare")


def read_tests(row: Row, where: str) -> Gold:
    """Return a line's tests and what they call. Raises an InputError that names the first malformed test."""
    cases, entry = row[OWN_TESTS], entry_of(row, where)
    if not isinstance(cases, list) or not cases:
        raise InputError(f"{where}: tests must be a list of at least one object, such as {EXAMPLE} or {_CALLS}")
    reads = {"input", "output"} <= _fields(cases[0])
    tests = tuple(
        _reading(case, f"{where}: test {number}") if reads else _calling(case, f"{where}: test {number}")
        for number, case in enumerate(cases, 1)
    )
    if reads and entry is not None:
        raise InputError(
            f"{where}: entry {entry!r} is for tests with args and expected, and these have input and output: leave entry out"
        )
    if not reads and entry is None:
        raise InputError(f"{where}: tests with args and expected need the name of what they call, such as {_CALLS}")
    return Gold(tests=tests, entry=STDIN if entry is None else f"Solution.{entry.rpartition('.')[2]}")


def _fields(case: Any) -> set[str]:
    return set(case) if isinstance(case, dict) else set()


def _reading(case: Any, where: str) -> Test:
    if _fields(case) != {"input", "output"}:
        raise InputError(
            f"{where} must have input and output, as the first one has, and nothing else, got {_short(case)}"
        )
    for name in ("input", "output"):
        if not isinstance(case[name], str):
            raise InputError(f"{where}: {name} must be a text, got {_short(case[name])}")
    return (case["input"],), case["output"]


def _calling(case: Any, where: str) -> Test:
    if _fields(case) != {"args", "expected"}:
        raise InputError(
            f"{where} must have input and output, or args and expected as the first one, and nothing else, got {_short(case)}"
        )
    if not isinstance(case["args"], list):
        raise InputError(f"{where}: args must be the list of arguments, got {_short(case['args'])}")
    return tuple(case["args"]), case["expected"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
