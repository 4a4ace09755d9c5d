"""Programs against their tests: what passes, what fails, and what the reason says."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from radmoe.errors import InputError
from radmoe.grading.programs import Program, judge, judge_many
from radmoe.sandbox import Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

TESTS = [(([3, 1, 2],), 6), (([],), 0), (([5],), 5)]
RIGHT = "def f(xs):\n    return sum(xs)\n"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        yield opened


@pytest.mark.parametrize(
    "program",
    [
        RIGHT,
        "from functools import reduce\nf = lambda xs: reduce(lambda a, b: a + b, xs, 0)",
        "import math, itertools, collections, json, statistics\ndef f(xs):\n    return math.fsum(xs)",
        "def f(xs):\n    print('thinking', xs)\n    return sum(xs)",
        "def f(xs):\n    t = 0\n    while xs:\n        t += xs.pop()\n    return t",
        "def helper(x):\n    return x\n\ndef f(xs):\n    return sum(map(helper, xs))",
    ],
)
def test_a_right_program_passes(sandbox: Sandbox, program: str) -> None:
    verdict = judge(sandbox, program, TESTS)
    assert verdict.passed, verdict
    assert verdict.reason == "passed 3 of 3"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def f(xs):\n    return 6", r"test 2 of 3: f\(\[\]\) did not return 0"),
        ("def f(xs):\n    return [sum(xs)]", "did not return 6"),
        ("def f(xs):\n    return str(sum(xs))", "did not return 6"),
        ("def f(xs):\n    return xs[9]", r"test 1 of 3: f\(\[3, 1, 2\]\) raised IndexError: list index out of range"),
        ("def f(xs:\n    return 6", "SyntaxError"),
        ("def g(xs):\n    return 6", "NameError: it defines no function f"),
        ("f = 7", "TypeError: 'int' object is not callable"),
        ("def f():\n    return 6", "TypeError"),
        ("def f(xs):\n    return f(xs)", "RecursionError"),
        ("def f(xs):\n    return (x for x in xs)", "TypeError: generator is not plain data"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("def f(xs):\n    return '\\ud800' + chr(0)", "did not return"),
        ("\x00", "SyntaxError|ValueError"),
        ("\ud800", "UnicodeEncodeError"),
        ("  ", "there is no program"),
    ],
)
def test_a_wrong_program_fails_and_the_reason_says_where(sandbox: Sandbox, program: str, reason: str) -> None:
    verdict = judge(sandbox, program, TESTS)
    assert not verdict.passed
    assert re.search(reason, verdict.reason), verdict.reason
    assert "\n" not in verdict.reason


def test_calls_cannot_reach_into_each_other_s_arguments_or_the_next_program(sandbox: Sandbox) -> None:
    assert judge(sandbox, "def f(xs):\n    xs.append(1)\n    return len(xs)", [(([],), 1), (([],), 1)]).passed
    assert judge(
        sandbox, "import builtins\nbuiltins.len = lambda x: 6\ndef f(xs): return len(xs)", [(([1],), 6)]
    ).passed
    assert judge(sandbox, "def f(xs):\n    return len(xs)", [(([1],), 1)]).passed


def test_several_arguments_and_other_kinds_of_values(sandbox: Sandbox) -> None:
    tests: list[tuple[tuple[Any, ...], Any]] = [
        ((1, "a"), (1, "a")),
        (([1.5], None), ([1.5], None)),
        (({"k": {1}}, True), ({"k": {1}}, True)),
    ]
    assert judge(sandbox, "def f(*args):\n    return args", tests).passed
    assert not judge(sandbox, "def f(*args):\n    return list(args)", tests).passed


def test_many_programs_come_back_in_order_and_the_same_one_runs_once() -> None:
    wrong = "def f(xs):\n    return -1"
    programs = [RIGHT, wrong] * 20 + [RIGHT + f"\n# {i}" for i in range(10)]
    verdicts = list(judge_many([Program(program, TESTS) for program in programs], jobs=2))
    assert [v.passed for v in verdicts] == [True, False] * 20 + [True] * 10
    assert list(judge_many([])) == []


def test_leaving_a_batch_half_way_ends_its_sandboxes() -> None:
    before = threading.active_count()
    verdicts = judge_many([Program(f"# {i}\n{RIGHT}", TESTS) for i in range(200)], jobs=2)
    assert next(verdicts).passed
    verdicts.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_a_program_that_takes_the_helper_down_twice_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as sandbox:
        monkeypatch.setattr(sandbox, "_read", lambda *_: (_ for _ in ()).throw(EOFError))
        assert judge(sandbox, RIGHT, TESTS).reason == "it took the sandbox down"


def test_options_that_cannot_be_used_are_named(sandbox: Sandbox) -> None:
    with pytest.raises(InputError, match="at least one"):
        judge(sandbox, RIGHT, [])
    with pytest.raises(InputError, match="jobs must be at least 1, got 0"):
        list(judge_many([Program(RIGHT, TESTS)], jobs=0))


def test_another_function_may_be_called(sandbox: Sandbox) -> None:
    assert judge(sandbox, "def g(x):\n    return x", [((1,), 1)], "g").passed
