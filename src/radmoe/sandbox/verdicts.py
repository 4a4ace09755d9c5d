"""What a program's outcome in the sandbox is worth: compared here, where the program cannot reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from radmoe.errors import InputError
from radmoe.sandbox.jail import DIED, RAISED, TIMEOUT, TOO_MUCH, UNCONFINED, spell

Test = tuple[tuple[Any, ...], Any]
TOOK_DOWN = -1  # a status beside those of the jail: its helper did not survive the program


@dataclass(frozen=True)
class Verdict:
    """Whether a program passed all its tests, and in one line why or why not."""

    passed: bool
    reason: str


class Outcome(NamedTuple):
    """How a program ended (a status of the jail) and what it wrote, under the limits it had."""

    status: int
    data: bytes
    timeout: float
    most: int

    def refused(self, *, silent: bool) -> str:
        """Why nothing can be compared, or nothing. `silent`: a program that died is refused only if it wrote nothing."""
        if self.status == UNCONFINED:
            raise InputError(
                "this system cannot confine programs (no seccomp filter on it): grade code on Linux, x86_64 or aarch64"
            )
        if self.status == TIMEOUT:
            return f"it ran out of time ({self.timeout:g} s of CPU)"
        if self.status == TOO_MUCH:
            return f"its results exceed {self.most} bytes"
        if self.status == TOOK_DOWN:
            return "it took the sandbox down"
        if self.status == DIED and not (silent and self.data):
            return "it was killed: out of CPU time or memory, or a crash"
        return ""


def judge_calls(outcome: Outcome, tests: Sequence[Test], entry: str) -> Verdict:
    """All calls of one function, one line each."""
    if why := outcome.refused(silent=True):
        return Verdict(False, why)
    lines = outcome.data.decode("ascii", "replace").split("\n") if outcome.data else []
    for number, (test, line) in enumerate(zip(tests, lines, strict=False), 1):
        if wrong := _wrong_call(line, test, entry, exact=True):
            return Verdict(False, f"test {number} of {len(tests)}: {wrong}")
    if len(lines) < len(tests):
        return Verdict(False, f"it ended before test {len(lines) + 1} was answered")
    if len(lines) > len(tests):
        return Verdict(False, "it answered more than it was asked")
    return Verdict(True, f"passed {len(tests)} of {len(tests)}")


def wrong_return(outcome: Outcome, test: Test, entry: str) -> str:
    """What is wrong with one call of a contest's program; nothing where it is right. A tuple passes for a list."""
    line = outcome.data.decode("ascii", "replace")
    return outcome.refused(silent=True) or _wrong_call(line, test, entry, exact=False)


def wrong_output(outcome: Outcome, expected: str) -> str:
    """What is wrong with what a program printed; nothing where it is right.

    As LiveCodeBench compares: line by line without outer blanks; lines that differ are equal if both are numbers and
    these are, exactly (1.0 and 1.00, but not 0.3 and 0.30000000000000004).
    """
    if why := outcome.refused(silent=False):
        return why
    if outcome.status == RAISED:
        _, marked, complaint = outcome.data.rpartition(b"\0!")
        return f"it raised {short(complaint.decode('ascii', 'replace'))}" if marked else "it exited with an error"
    said, wanted = (_lines(text) for text in (outcome.data.decode("utf-8", "replace"), expected))
    if len(said) != len(wanted):
        return f"it printed {len(said)} lines, not {len(wanted)}"
    for number, (line, right) in enumerate(zip(said, wanted, strict=True), 1):
        if line != right and not _same_numbers(line, right):
            return f"line {number} is {short(repr(line))}, not {short(repr(right))}"
    return ""


def short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _wrong_call(line: str, test: Test, entry: str, *, exact: bool) -> str:
    args, expected = test
    if line == spell(expected) or (not exact and type(expected) is list and line == spell(tuple(expected))):
        return ""
    call = short(f"{entry}({', '.join(map(repr, args))})")
    return f"{call} raised {short(line[1:])}" if line[:1] == "!" else f"{call} did not return {short(repr(expected))}"


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_numbers(a: str, b: str) -> bool:
    try:
        return [Decimal(word) for word in a.split()] == [Decimal(word) for word in b.split()]
    except InvalidOperation:
        return False
