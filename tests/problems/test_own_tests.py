"""Programs of one's own problems: their tests, what is asked, and what a bad line says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import samples
from radmoe.errors import InputError
from radmoe.grading import grade_pool
from radmoe.grading.labels import read_labels
from radmoe.problems import load_questions
from radmoe.problems.base import STDIN
from radmoe.problems.gold import load_problems
from text_pools import write_texts

READS = [{"input": "2 3\n", "output": "5\n"}, {"input": "0 0", "output": "0"}]
CALLS = [{"args": [[3, 1]], "expected": [1, 3]}, {"args": [[]], "expected": []}]


def test_tests_feed_a_program_or_call_a_function(tmp_path: Path) -> None:
    rows = [
        {"id": "reads", "prompt": "Add.", "tests": READS},
        {"id": "calls", "prompt": "Sort.", "tests": CALLS, "entry": "order"},
        {"id": "method", "prompt": "Sort.", "tests": CALLS, "entry": "Solution.order"},
    ]
    reads, calls, method = load_problems(data=samples.write(tmp_path / "own.jsonl", rows)).values()
    assert (reads.kind, reads.entry, reads.tests) == ("code", STDIN, ((("2 3\n",), "5\n"), (("0 0",), "0")))
    assert (calls.kind, calls.entry, calls.tests) == ("code", "Solution.order", ((([3, 1],), [1, 3]), (([],), [])))
    assert (method.entry, method.tests) == (calls.entry, calls.tests)


@pytest.mark.parametrize(
    ("row", "request_"),
    [
        ({"tests": READS}, "Write a Python program that solves this. It reads from standard input"),
        ({"tests": CALLS, "entry": "order"}, "Write a function named order in Python that solves this."),
        ({"tests": CALLS, "entry": "Solution.order"}, "Write a class Solution with a method named order in Python"),
        ({"tests": CALLS, "entry": "order", "starter_code": "def order(xs):"}, "```python\ndef order(xs):\n```"),
    ],
)
def test_a_question_asks_for_what_the_tests_call_and_shows_none(
    tmp_path: Path, row: dict[str, Any], request_: str
) -> None:
    ((question,), _) = load_questions(data=samples.write(tmp_path / "own.jsonl", [{"question": "Do it."} | row]))
    assert isinstance(question.content, str)
    assert question.content.startswith("Do it.\n\n")
    assert request_ in question.content
    assert "5" not in question.content
    assert question.kind == "code"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tests": []}, "tests must be a list of at least one object, such as .*input.* or .*args"),
        ({"tests": "x"}, "tests must be a list"),
        ({"tests": {"input": "1", "output": "1"}}, "tests must be a list"),
        (
            {"tests": [1]},
            "test 1 must have input and output, or args and expected as the first one, and nothing else, got 1",
        ),
        ({"tests": [{"input": "1"}]}, r"test 1 must have input and output, or args .* got \{'input': '1'\}"),
        ({"tests": [READS[0], {"input": "1", "output": 1}]}, "test 2: output must be a text, got 1"),
        ({"tests": [READS[0], CALLS[0]]}, "test 2 must have input and output, as the first one has, and nothing else"),
        ({"tests": [{"args": 3, "expected": 3}], "entry": "f"}, "test 1: args must be the list of arguments, got 3"),
        ({"tests": CALLS}, 'need the name of what they call, such as .*"entry": "add"'),
        ({"tests": CALLS, "entry": "a b"}, "entry must be a function's name or Solution.name, got 'a b'"),
        ({"tests": CALLS, "entry": 3}, "entry must be a function's name or Solution.name, got 3"),
        ({"tests": READS, "entry": "f"}, "entry 'f' is for tests with args and expected, .* leave entry out"),
        ({"tests": READS, "public_test_cases": "[1]"}, "has both tests and public_test_cases: leave one of them out"),
        (
            {"kind": "code", "answer": "print(5)"},
            "an answer cannot tell whether a program is right: add tests, such as",
        ),
    ],
)
def test_tests_that_cannot_be_used_are_named(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    file = samples.write(
        tmp_path / "own.jsonl", [{"id": "first", "prompt": "?", "answer": 1}, {"prompt": "?"} | fields]
    )
    with pytest.raises(InputError, match=f"own.jsonl line 2.*{message}") as caught:
        load_problems(data=file)
    assert "\n" not in str(caught.value)


def test_a_line_may_choose_the_environment_of_its_programs(tmp_path: Path) -> None:
    contest = {"public_test_cases": '[{"input": "1", "output": "1", "testtype": "stdin"}]'}
    rows = [
        {"id": "usual", "prompt": "Add.", "tests": READS},
        {"id": "named", "prompt": "Add.", "tests": READS, "environment": "livecodebench"},
        {"id": "bare", "prompt": "Add.", "tests": READS, "environment": "bare"},
        {"id": "contest", "prompt": "Add.", "environment": "bare"} | contest,
    ]
    problems = load_problems(data=samples.write(tmp_path / "own.jsonl", rows))
    assert [problem.bare for problem in problems.values()] == [False, False, True, True]
    path = samples.write(tmp_path / "wrong.jsonl", [{"prompt": "Add.", "tests": READS, "environment": "humaneval"}])
    with pytest.raises(InputError, match="line 1: environment must be one of livecodebench, bare, got 'humaneval'"):
        load_problems(data=path)


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
def test_the_environment_of_a_line_is_that_of_its_grading(tmp_path: Path) -> None:
    program = "```python\nprint(sum(map(int, stdin.read().split())))\n```"
    rows = [
        {"id": name, "prompt": "Add.", "tests": READS} | ({"environment": name} if name == "bare" else {})
        for name in ("usual", "bare")
    ]
    path = write_texts(tmp_path / "pool", [("usual", program), ("bare", program)], kind="code")
    grade_pool(path, load_problems(data=samples.write(tmp_path / "own.jsonl", rows)))
    labels = read_labels(path)
    assert (labels["usual"][0].correct, labels["bare"][0].correct) == (True, False)
