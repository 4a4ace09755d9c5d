"""Problems of one's own: a JSONL file of prompts, messages or questions, with or without answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import samples
from radmoe.errors import InputError
from radmoe.problems import Question, load_questions
from radmoe.problems.gold import load_problems

CHAT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]


def test_prompts_and_messages_are_asked_as_they_are_and_in_order(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    lines = [
        {"problem_id": "a", "prompt": "one\n", "answer": "1", "kind": "text"},
        {"id": 7, "messages": CHAT},
        {"id": "c", "prompt": "\u00e9", "kind": "agent"},
    ]
    file.write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    asked, task = load_questions(data=file)
    assert task == "mine"
    assert asked == [Question("a", "one\n", "text"), Question("7", CHAT), Question("c", "\u00e9", "agent")]
    assert load_questions(data=file, limit=2)[0] == asked[:2]


def test_a_line_without_an_id_is_named_after_what_it_asks(tmp_path: Path) -> None:
    """So no answer is held against another problem when lines are added, removed or moved."""
    rows = [
        {"prompt": "1 + 1?", "answer": 2},
        {"messages": CHAT, "answer": "hello"},
        {"question": "2 + 2?", "answer": 4},
    ]
    whole = load_problems(data=samples.write(tmp_path / "own.jsonl", rows))
    part = load_problems(data=samples.write(tmp_path / "own.jsonl", rows[:0:-1]))
    assert list(part) == list(whole)[:0:-1]
    assert part.items() <= whole.items()
    assert all(problem_id.startswith("own-") for problem_id in whole)


@pytest.mark.parametrize(
    ("row", "prompt", "kind"),
    [
        ({"question": "1 + 1?"}, "1 + 1?\n\nReason step by step and put the final answer in \\boxed{}.", None),
        ({"problem": "1 + 1?", "kind": "math"}, "1 + 1?\n\nReason step by step and put the final answer in", "math"),
        ({"question": "Which?\nA) 1\nB) 2", "kind": "choice"}, "Which?\nA) 1\nB) 2\n\nReason step by step and put the letter", "choice"),
        ({"question": "Name a city.", "kind": "text"}, "Name a city.", "text"),
        ({"question": "Sum.", "public_test_cases": "[1]"}, "Sum.\n\nWrite a Python program", "code"),
        ({"prompt": "Sum.", "public_test_cases": "[1]"}, "Sum.", "code"),
    ],
)  # fmt: skip
def test_a_question_is_asked_for_an_answer_of_its_kind(
    tmp_path: Path, row: dict[str, Any], prompt: str, kind: str | None
) -> None:
    ((question,), _) = load_questions(data=samples.write(tmp_path / "own.jsonl", [row]))
    assert isinstance(question.content, str)
    assert question.content.startswith(prompt)
    assert question.kind == kind


def test_a_kind_may_be_given_for_lines_that_state_none(tmp_path: Path) -> None:
    rows = [{"id": 1, "question": "Name a city."}, {"id": 2, "question": "Name a river.", "kind": "text"}]
    file = samples.write(tmp_path / "own.jsonl", rows)
    asked, _ = load_questions(data=file, kind="text")
    assert asked == [Question("1", "Name a city.", "text"), Question("2", "Name a river.", "text")]
    with pytest.raises(InputError, match="line 2 is of kind text, --kind code contradicts it: leave --kind out"):
        load_questions(data=file, kind="code")
    with pytest.raises(InputError, match="math-1 row 1 is of kind math, --kind text contradicts it"):
        load_questions("math-1", kind="text", limit=1)


def test_only_lines_with_an_answer_or_tests_can_be_graded(tmp_path: Path) -> None:
    case = json.dumps([{"input": "1", "output": "1"}])
    rows: list[dict[str, Any]] = [
        {"id": "asked", "prompt": "?"},
        {"id": "open", "prompt": "?", "answer": None},
        {"id": "answered", "prompt": "?", "answer": 3, "kind": "text"},
        {"id": "tested", "prompt": "?", "private_test_cases": case},
    ]
    file = samples.write(tmp_path / "own.jsonl", rows)
    answered, tested = load_problems(data=file).values()
    assert (answered.problem_id, answered.task, answered.answer, answered.kind) == ("answered", "own", "3", "text")
    assert (tested.problem_id, tested.tests, tested.kind) == ("tested", ((("1",), "1"),), "code")
    assert len(load_questions(data=file)[0]) == 4
    with pytest.raises(InputError, match=r"own.jsonl has no answers: add answer, or tests, to its lines"):
        load_problems(data=samples.write(file, rows[:2]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", "line 2 is not JSON"),
        ("[1, 2]", r"line 2 is not an object, but \[1, 2\]"),
        ('{"id": "x"}', "line 2 has no prompt or messages or question or problem .*: it has id"),
        ("{}", "line 2 has no prompt .*: it has no fields"),
        ('{"prompt": "a", "messages": []}', "line 2 has both prompt and messages"),
        ('{"prompt": ""}', "line 2: prompt must be a text that is not empty, got ''"),
        ('{"prompt": 3}', "line 2: prompt must be a text"),
        ('{"messages": []}', "line 2: messages must be a list"),
        ('{"messages": [{"role": "user"}]}', "line 2: messages must be a list of objects with role and content"),
        ('{"id": "first", "prompt": "again"}', "line 2: problem 'first' is already on line 1"),
        ('{"id": null, "prompt": "a"}', "line 2: id must be a text or a whole number, got None"),
        ('{"problem_id": true, "prompt": "a"}', "line 2: problem_id must be a text or a whole number, got True"),
        ('{"prompt": "a", "kind": "poem"}', "line 2: unknown kind 'poem': use one of math, choice, code, text, agent"),
        ('{"prompt": "a", "kind": ["math"]}', "line 2: unknown kind"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"id": "first", "prompt": "a"}\n' + line + "\n")
    with pytest.raises(InputError, match=rf"p\.jsonl {message}") as caught:
        load_questions(data=file)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=message):
        load_questions(data=file, limit=1)


def test_no_file_no_text_no_problems(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    with pytest.raises(InputError, match="No such file"):
        load_questions(data=file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        load_questions(data=file)
    file.write_text("\n")
    with pytest.raises(InputError, match="holds no problems: write one object per line"):
        load_questions(data=file)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + b'{"id": "a", "prompt": "x"}\n')
    assert load_questions(data=file)[0] == [Question("a", "x", None)]


def test_what_is_no_file_is_one_line(tmp_path: Path) -> None:
    """A FIFO was waited for, and a device read until the memory was full."""
    os.mkfifo(tmp_path / "fifo.jsonl")
    with (tmp_path / "sparse.jsonl").open("wb") as file:
        file.truncate(20 << 30)
    for name, reason in {
        "fifo.jsonl": "not a regular file",
        "sparse.jsonl": "nearly none on disk",
        ".": "Is a directory",
    }.items():
        with pytest.raises(InputError, match=rf"cannot read .* \(.*{reason}\): pass a JSONL file of problems"):
            load_questions(data=tmp_path / name)
    with pytest.raises(InputError, match=r"cannot read /dev/zero \(not a regular file\)"):
        load_questions(data="/dev/zero")


def test_lines_may_end_as_windows_ends_them(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_bytes(b'{"id": "a", "prompt": "one"}\r\n\r\n{"id": "b", "prompt": "two"}\r')
    assert [question.problem_id for question in load_questions(data=tmp_path / "own.jsonl")[0]] == ["a", "b"]
