"""Problems of one's own: a JSONL file, one problem per line, that needs no entry in the table of data sets.

A line has `prompt` (a text) or `messages` (role and content each), which are asked as they are; or `question` or
`problem`, to which the usual request for a boxed answer or a program is added. `problem_id` or `id` names it. `kind`,
`answer`, and LiveCodeBench's `public_test_cases`, `private_test_cases`, `metadata` and `starter_code` are optional.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from radmoe.errors import InputError
from radmoe.problems.base import Content, Gold
from radmoe.problems.dataset import TEST_COLUMNS, Dataset, Record, Row
from radmoe.problems.datasets import BENCHMARKS, BOXED, LETTER, ask_program, gold_answer, gold_tests

_QUESTION = ("question", "problem", "question_content")
_EXAMPLE = '{"id": "1", "prompt": "...", "answer": "8"}'


def read_rows(path: str | Path, holds: str = "problems", example: str = _EXAMPLE) -> Iterator[tuple[int, Row]]:
    """The objects of a JSONL file with their line numbers. Blank lines are skipped; a bad line is an InputError.

    `holds` and `example` say in messages what such a file holds, and what a line of it looks like.
    """
    file = Path(path)
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(f"cannot read {file} ({reason}): pass a JSONL file of {holds}") from None
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
    """What a file without a task holds: a benchmark, told by the file's name or by GPQA's columns, or one's own problems."""
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
        return ask_program(record)
    request = {"choice": LETTER, "math": BOXED, None: BOXED}.get(record.kind)
    return f"{question}\n\n{request}" if request else question


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
    if any(record.row.get(column) for column in TEST_COLUMNS):
        return gold_tests(record)
    return None if record.row.get("answer") is None else gold_answer(record)
