"""Judges programs: they run against hidden tests in a sandbox, and their results are compared outside of it.

Returned values are compared in a spelling in which nothing can pretend to equal something else, and what was printed as
LiveCodeBench compares it. A program that takes its sandbox down has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import NamedTuple

from radmoe.errors import InputError
from radmoe.problems.base import STDIN, Test
from radmoe.sandbox import MEMORY, TIMEOUT_S, Outcome, Sandbox, run_many, spell


@dataclass(frozen=True)
class Verdict:
    """Whether a program passed all its tests, and in one line why or why not."""

    passed: bool
    reason: str


class Program(NamedTuple):
    """A program with its tests, the name that they call, and whether it runs without the usual imports."""

    text: str
    tests: Sequence[Test]
    entry: str = "f"
    bare: bool = False


def judge(sandbox: Sandbox, program: str, tests: Sequence[Test], entry: str = "f", *, bare: bool = False) -> Verdict:
    """Call the program's function with each test's arguments, and compare what it returns.

    A contest's program is run afresh for every test: its `entry` is "Solution.name", or "<stdin>" for a program that
    reads the test's one argument and must print what is expected. Unless it is to be `bare`, it finds the names imported
    that LiveCodeBench's runner imports, and may recurse as deeply as there.
    """
    if not tests:
        raise InputError("a program without tests cannot be judged: give at least one (arguments, expected) pair")
    if not program.strip():
        return Verdict(False, "there is no program")
    if entry != STDIN and "." not in entry:
        return _judge_calls(sandbox.call(program, entry, [arguments for arguments, _ in tests]), tests, entry)
    for number, test in enumerate(tests, 1):
        if wrong := _contest(sandbox, program, test, entry, bare):
            return Verdict(False, f"test {number} of {len(tests)}: {wrong}")
    return Verdict(True, f"passed {len(tests)} of {len(tests)}")


def judge_many(
    programs: Iterable[Program],
    *,
    jobs: int = 1,
    timeout: float = TIMEOUT_S,
    memory: int = MEMORY,
    unconfined: bool = False,
) -> Iterator[Verdict]:
    """Verdicts on many programs, in order.

    A program that comes again with the same tests (the same object) is run once. With `unconfined`, programs run even
    where the system cannot confine them.
    """
    items = list(programs)
    work: dict[tuple[str, int], Callable[[Sandbox], Verdict]] = {}
    for program, tests, entry, bare in items:
        work.setdefault((program, id(tests)), partial(judge, program=program, tests=tests, entry=entry, bare=bare))
    verdicts: dict[tuple[str, int], Verdict] = {}
    pieces = list(work.values())
    with closing(run_many(pieces, jobs=jobs, timeout=timeout, memory=memory, unconfined=unconfined)) as running:
        for program, tests, *_ in items:
            key = program, id(tests)
            if key not in verdicts:  # the unique ones come back in the order in which they are first needed
                verdicts[key] = next(running)
            yield verdicts[key]


def _contest(sandbox: Sandbox, program: str, test: Test, entry: str, bare: bool) -> str:
    """What is wrong with one run of a contest's program; empty where it is right."""
    arguments, expected = test
    if entry == STDIN:
        fed = sandbox.feed(program, str(arguments[0]), most=4 * len(expected), bare=bare)
        return _wrong_output(fed, expected)
    outcome = sandbox.call(program, entry, [arguments], most=4 * len(spell(expected)), bare=bare)
    line = outcome.data.decode("ascii", "replace")
    return outcome.failure(partial=True) or _wrong_call(line, test, entry, exact=False)


def _judge_calls(outcome: Outcome, tests: Sequence[Test], entry: str) -> Verdict:
    """The verdict on a program whose function is called once per test; the sandbox prints one line for each call."""
    if failure := outcome.failure(partial=True):
        return Verdict(False, failure)
    lines = outcome.data.decode("ascii", "replace").split("\n") if outcome.data else []
    for number, (test, line) in enumerate(zip(tests, lines, strict=False), 1):
        if wrong := _wrong_call(line, test, entry, exact=True):
            return Verdict(False, f"test {number} of {len(tests)}: {wrong}")
    if len(lines) < len(tests):
        return Verdict(False, f"it ended before test {len(lines) + 1} was answered")
    if len(lines) > len(tests):
        return Verdict(False, "it answered more than it was asked")
    return Verdict(True, f"passed {len(tests)} of {len(tests)}")


def _wrong_call(line: str, test: Test, entry: str, *, exact: bool) -> str:
    """What is wrong with one returned value; empty where it is right. Unless `exact`, a tuple passes for a list."""
    arguments, expected = test
    if line == spell(expected) or (not exact and type(expected) is list and line == spell(tuple(expected))):
        return ""
    call = _short(f"{entry}({', '.join(map(repr, arguments))})")
    return f"{call} raised {_short(line[1:])}" if line[:1] == "!" else f"{call} did not return {_short(repr(expected))}"


def _wrong_output(outcome: Outcome, expected: str) -> str:
    """What is wrong with what a program printed; empty where it is right.

    As LiveCodeBench compares: line by line without outer blanks. Lines that differ are equal if both are numbers and
    these are equal exactly (1.0 and 1.00, but not 0.3 and 0.30000000000000004).
    """
    if failure := outcome.failure(partial=False):
        return failure
    if outcome.raised:
        _, mark, complaint = outcome.data.rpartition(b"\0!")
        return f"it raised {_short(complaint.decode('ascii', 'replace'))}" if mark else "it exited with an error"
    printed, wanted = (_lines(text) for text in (outcome.data.decode("utf-8", "replace"), expected))
    if len(printed) != len(wanted):
        return f"it printed {len(printed)} lines, not {len(wanted)}"
    for number, (line, right) in enumerate(zip(printed, wanted, strict=True), 1):
        if line != right and not _same_numbers(line, right):
            return f"line {number} is {_short(repr(line))}, not {_short(repr(right))}"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_numbers(a: str, b: str) -> bool:
    try:
        return [Decimal(word) for word in a.split()] == [Decimal(word) for word in b.split()]
    except InvalidOperation:
        return False
