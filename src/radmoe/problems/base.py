"""A question as capture receives it, and a problem as grading knows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from radmoe.types import Kind

Message = dict[str, Any]
Content = str | Sequence[Message]  # a text, or chat messages with role and content each
Test = tuple[tuple[Any, ...], Any]  # the arguments of a call, and the value that it must return

STDIN = "<stdin>"  # the entry of a program that reads a text and prints its answer


@dataclass(frozen=True)
class Question:
    """What capture and selection learn of a problem. `kind` is None if the source does not state it."""

    problem_id: str
    content: Content
    kind: Kind | None = None


@dataclass(frozen=True)
class Gold:
    """The answer or the tests of one problem. The fields are those of `Problem`."""

    answer: str = ""
    tests: tuple[Test, ...] = ()
    entry: str = "f"
    options: tuple[str, ...] = ()
    bare: bool = False


@dataclass(frozen=True)
class Problem:
    """One problem together with what is right. Only grading, and the lab that makes problems up, work with these.

    `task` is the data set. `answer` is the integer, the expression, the letter or the text that is right; for code it
    may be one right program. `tests` are hidden from the model: pairs of arguments and the value that a call must
    return, made of plain values. `entry` is what the tests call: a function, a method written "Solution.name", or,
    written "<stdin>", the program itself, which is fed the one argument. `options` are those of a choice that was
    shuffled, in the order of their letters. `kind` is None where the source does not say it. `integer` says
    whether a math answer is a whole number, as in AIME; None means that the answer itself tells. `meaning` says what a
    text means, where texts are not compared by their words (see `Dataset`). A contest's program finds names imported, as
    LiveCodeBench's runner has it, unless the problem is `bare`.
    """

    problem_id: str
    task: str
    prompt: Content
    answer: str
    tests: tuple[Test, ...] = ()
    entry: str = "f"
    options: tuple[str, ...] = ()
    kind: Kind | None = None
    integer: bool | None = None
    meaning: Callable[[str], str | None] | None = None
    bare: bool = False
