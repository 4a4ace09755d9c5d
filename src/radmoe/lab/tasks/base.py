"""What a task is made of: problems, and worked examples of them to train on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from radmoe.errors import InputError

STYLES = ("low", "medium", "high", "thinking", "instruct")

Test = tuple[tuple[Any, ...], Any]


@dataclass(frozen=True)
class Problem:
    """One problem. `answer` is the integer, the letter, or for code one right program.

    `tests` are hidden: pairs (arguments, value that the function must return), made of plain values. `entry` is what
    they call: a function, a method as "Solution.name", or with "<stdin>" the program itself, fed the one argument.
    `options` are those of a choice that was shuffled, in the order of their letters.
    """

    problem_id: str
    task: str
    prompt: str
    answer: str
    tests: tuple[Test, ...] = ()
    entry: str = "f"
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Example:
    """A problem with a worked answer: what is thought (empty under "instruct"), and what is said."""

    problem: Problem
    reasoning: str
    final: str
    style: str


def check_style(style: str) -> None:
    if style not in STYLES:
        raise InputError(f"unknown style {style!r}: use one of {', '.join(STYLES)}")
