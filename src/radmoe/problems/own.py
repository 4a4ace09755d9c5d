"""Problems of one's own: a JSONL file, one problem per line, that needs no entry in the table of data sets.

A line has `prompt` (a text) or `messages` (role and content each), which are asked as they are; or `question` or
`problem`, to which the usual request for a boxed answer or a program is added. `problem_id` or `id` names it. `kind`,
`answer`, `starter_code`, `tests` with `entry` (`own_tests.py`), LiveCodeBench's `public_test_cases`, `private_test_cases` and
`metadata`, and `environment`, in which programs run, are optional.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from radmoe.errors import InputError
from radmoe.problems.base import Content, Gold
from radmoe.problems.dataset import OWN_TESTS, TEST_COLUMNS, Dataset, Record, Row
from radmoe.problems.datasets import BENCHMARKS, BOXED, LETTER, ask_program, gold_answer, gold_tests
from radmoe.problems.own_tests import EXAMPLE, entry_of, is_bare, read_tests
from radmoe.system.foreign import read_file

_QUESTION = ("question", "problem", "question_content")
_EXAMPLE = '{"id": "1", "prompt": "...", "answer": "8"}'


def read_rows(path: str | Path, holds: str = "problems", example: str = _EXAMPLE) -> Iterator[tuple[int, Row]]:
    """Read the objects of a JSONL file with their line numbers. Blank lines are skipped; a bad line is an InputError.

    `holds` and `example` say in messages what such a file holds, and what a line of it looks like.
    """
    file, wanted = Path(path), f"a JSONL file of {holds}"
    try:
        text = read_file(file, wanted).decode("utf-8-sig")  # an editor may have put a byte order mark first
    except UnicodeDecodeError:
        raise InputError(f"cannot read {file} (not UTF-8): pass {wanted}") from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    empty = True
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file} line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{file} line {number} is not an object, but {line.strip()[:40]}")
        empty = False
        yield number, row
    if empty:
        raise InputError(f"{file} holds no {holds}: write one object per line, such as {example}")


def dataset_of_file(stem: str, first_row: Row) -> Dataset:
    """Decide what a file without a task holds: a benchmark, recognised by the file's name or by GPQA's columns, or
    one's own problems.
    """
    if stem in BENCHMARKS:
        return BENCHMARKS[stem]
    if "Correct Answer" in first_row:
        return BENCHMARKS["gpqa_diamond"]
    return Dataset(stem, None, _ask, _gold)


def _ask(record: Record) -> Content:
    row = record.row
    if "prompt" in row and "messages" in row:
        raise InputError(f"{record.where} has both prompt and messages: leave one of them out")
    if "prompt" in row:
        if not isinstance(row["prompt"], str) or not row["prompt"]:
            raise InputError(f"{record.where}: prompt must be a text that is not empty, got {row['prompt']!r}")
        return row["prompt"]
    if "messages" in row:
        return _messages(record)
    question = record.text("prompt", "messages", *_QUESTION)
    if record.kind == "code":
        entry = entry_of(record.row, record.where)
        return (
            ask_program(record) if entry is None or record.row.get("starter_code") else _ask_function(question, entry)
        )
    request = {"choice": LETTER, "math": BOXED, None: BOXED}.get(record.kind)
    return f"{question}\n\n{request}" if request else question


def _ask_function(question: str, entry: str) -> str:
    owner, _, name = entry.rpartition(".")
    wanted = f"a class {owner} with a method named {name}" if owner else f"a function named {name}"
    return f"{question}\n\nWrite {wanted} in Python that solves this. Give the whole program in one ```python block."


def _messages(record: Record) -> Content:
    messages = record.row["messages"]
    if not (
        isinstance(messages, list)
        and messages
        and all(isinstance(message, dict) and "role" in message and "content" in message for message in messages)
    ):
        raise InputError(f"{record.where}: messages must be a list of objects with role and content")
    return messages


def _gold(record: Record) -> Gold | None:
    row = record.row
    contest = [column for column in TEST_COLUMNS if row.get(column)]
    if row.get(OWN_TESTS) is not None:
        if contest:
            raise InputError(f"{record.where} has both tests and {contest[0]}: leave one of them out")
        return replace(read_tests(row, record.where), bare=is_bare(row, record.where))
    if contest:
        return replace(gold_tests(record), bare=is_bare(row, record.where))
    if row.get("answer") is None:
        return None
    if record.kind == "code":
        raise InputError(
            f"{record.where} is of kind code, and an answer cannot tell whether a program is right: add tests, such as {EXAMPLE}"
        )
    return gold_answer(record)
