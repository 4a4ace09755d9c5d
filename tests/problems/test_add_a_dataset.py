"""The recipe of CONTRIBUTING.md, "Add a data set": a third party's, defined in one place, asked and graded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import samples
from radmoe.errors import InputError
from radmoe.grading import grade_pool
from radmoe.pool import open_pool
from radmoe.problems import Dataset, Gold, Record, load_questions
from radmoe.problems.gold import load_problems
from text_pools import write_texts

ROWS = [{"country": "France", "capital": "Paris"}, {"country": "Norway", "capital": "Oslo"}]


# -- all that a data set takes: how a row is asked, what is right for it, and one entry --------------


def ask(record: Record) -> str:
    return f"What is the capital of {record.text('country')}? Answer with its name alone."


def gold(record: Record) -> Gold:
    return Gold(record.answer("capital"))


CAPITALS = Dataset("capitals", "text", ask, gold, rows=lambda seed: iter(ROWS))
FROM_FILES = Dataset("capitals", "text", ask, gold)  # the same without rows of its own: they come by --data


# -- what follows from that --------------------------------------------------------------------------


def answers(task: str, data: Path | None = None) -> Iterator[tuple[str, str]]:
    """Two rollouts per question, as a model would write them: Paris and Oslo, whatever was asked."""
    questions, _ = load_questions(task, data)
    for question in questions:
        assert isinstance(question.content, str)
        assert question.content.endswith("Answer with its name alone.")
        assert question.kind == "text"
        for city in ("Paris", "Oslo"):
            yield question.problem_id, f"<think>Let me see.</think>\n\n{city}<|im_end|>"


def test_a_dotted_path_is_asked_and_graded_like_a_name(tmp_path: Path) -> None:
    task = f"{__name__}.CAPITALS"
    path = write_texts(tmp_path / "pool", answers(task), task=task, kind="text")
    assert open_pool(path).task == task
    summary = grade_pool(path, load_problems(task))
    assert (summary.problems, summary.graded, summary.parseable, summary.right) == (2, 4, 4, 2)


def test_its_rows_may_come_from_a_file(tmp_path: Path) -> None:
    from radmoe.grading.sources import problems_of

    task, file = f"{__name__}.FROM_FILES", samples.write(tmp_path / "rows.jsonl", ROWS)
    path = write_texts(tmp_path / "pool", answers(task, file), task=task, kind="text")
    assert grade_pool(path, problems_of(open_pool(path), task=task, data=file)).right == 2
    with pytest.raises(InputError, match="capitals is not on the hub: pass --data with a JSONL file of its rows"):
        load_questions(task)


def test_a_row_that_lacks_a_column_is_named(tmp_path: Path) -> None:
    file = samples.write(tmp_path / "rows.jsonl", [*ROWS, {"state": "Ohio"}])
    with pytest.raises(InputError, match=r"rows.jsonl line 3 has no country: it has state"):
        load_questions(f"{__name__}.FROM_FILES", file)
