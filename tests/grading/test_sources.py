"""Where what is right comes from: ids, the pool's record, files, lists of answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import samples
from radmoe.errors import InputError
from radmoe.grading import grade_pool
from radmoe.grading.sources import problems_of, read_answers
from radmoe.pool import open_pool
from radmoe.problems.gold import load_problems
from radmoe_lab.tasks import TASKS, named, problems
from text_pools import write_texts


def test_the_lab_s_problems_are_found_by_their_ids(tmp_path: Path) -> None:
    ids = ["math-2-s7-004", "choice-000", "code", "math-9-000"]
    pool = open_pool(write_texts(tmp_path / "pool", [(problem_id, "x") for problem_id in ids], task="math-2"))
    assert problems_of(pool) == {p.problem_id: p for p in (problems("math-2", seed=7)[4], problems("choice")[0])}
    assert problems_of(pool, task="math-1") == {p.problem_id: p for p in problems("math-1", seed=7)}
    assert problems_of(pool, task="math-1", seed=0) == {p.problem_id: p for p in problems("math-1")}


def test_a_pool_that_names_nothing_known_says_what_to_give(tmp_path: Path) -> None:
    assert problems_of(open_pool(write_texts(tmp_path / "a", [("own", "x")]))) == {}
    own = open_pool(write_texts(tmp_path / "b", [("own", "x")], task="mine"))
    with pytest.raises(
        InputError, match=r"records the task 'mine', and a file chooses only among math-1, .*: give --data FILE"
    ):
        problems_of(own)


def test_the_rows_of_the_recorded_task_may_come_from_any_file(tmp_path: Path) -> None:
    rows = samples.write(tmp_path / "rows.jsonl", samples.CHOICES)
    known = load_problems("gpqa_diamond", rows, seed=7)
    pool = open_pool(write_texts(tmp_path / "pool", [(problem_id, "x") for problem_id in known], task="gpqa_diamond"))
    assert problems_of(pool, data=rows) == known
    assert problems_of(pool, task="gpqa_diamond", data=rows, seed=7) == known
    assert problems_of(pool, data=rows, seed=0) == load_problems("gpqa_diamond", rows)


@pytest.mark.slow
@pytest.mark.parametrize("task", [None, "own", "renamed", "math-2"])
def test_a_file_of_one_s_own_speaks_for_itself(tmp_path: Path, task: str | None) -> None:
    file = samples.write(tmp_path / "own.jsonl", [{"id": "a", "prompt": "?", "answer": 3}])
    pool = open_pool(write_texts(tmp_path / "pool", [("a", "\\boxed{3}")], task=task))
    assert [p.answer for p in problems_of(pool, data=file).values()] == ["3"]


def test_ids_name_their_problems() -> None:
    made = [p for task in TASKS for seed in (0, -3) for p in problems(task, seed=seed, limit=3)]
    assert named(p.problem_id for p in made) == {p.problem_id: p for p in made}
    assert named(["math-1", "math-1-0001x", "nothing-000", "code-99999999"]) == {}


@pytest.mark.parametrize(
    "problem_id", [f"math-1-s{'9' * 5000}-004", f"math-1-{'9' * 5000}", f"gpqa_diamond-rec3-s{'9' * 5000}"]
)
def test_an_id_of_thousands_of_digits_is_an_id_of_nobody_s(tmp_path: Path, problem_id: str) -> None:
    pool = open_pool(write_texts(tmp_path / "pool", [(problem_id, "x")]))
    assert problems_of(pool) == {}
    assert len(problems_of(pool, task="math-1")) == 30


def test_ids_of_very_many_draws_are_refused_before_they_are_drawn() -> None:
    assert len(named([f"math-1-s{seed}-{0:03d}" for seed in range(1, 41)])) == 40
    with pytest.raises(InputError, match="of 3 draws, 30,000 in all, and at most 10,000 are drawn"):
        named([f"math-1-s{seed}-9999" for seed in range(3)])


# -- answers of one's own ---------------------------------------------------------------------------


def test_any_pool_is_graded_against_a_file_of_answers(tmp_path: Path) -> None:
    rows = [("a", 1204), ("b", "C"), ("c", r"\frac{1}{2}"), ("unused", "x")]
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(json.dumps({"problem_id": i, "answer": a}) for i, a in rows) + "\n\n")
    texts = [("a", "\\boxed{1,204}"), ("b", "\\boxed{c}"), ("c", "$\\boxed{ \\frac{1}{2} }$"), ("d", "\\boxed{1}")]
    summary = grade_pool(write_texts(tmp_path / "pool", texts), read_answers(file))
    assert (summary.problems, summary.rollouts, summary.graded, summary.right) == (3, 4, 3, 3)


def test_a_line_may_state_the_kind_of_its_answer(tmp_path: Path) -> None:
    rows = [{"problem_id": "a", "answer": "b", "kind": "choice"}, {"problem_id": "b", "answer": "12", "kind": "text"}]
    file = samples.write(tmp_path / "answers.jsonl", rows)
    path = write_texts(tmp_path / "pool", [("a", "\\boxed{B}"), ("b", "12"), ("b", "The number 12.")])
    assert grade_pool(path, read_answers(file)).right == 2
    file.write_text('{"problem_id": "a", "answer": "b", "kind": "essay"}')
    with pytest.raises(InputError, match=r"answers.jsonl line 1: unknown kind 'essay': use one of math, choice"):
        read_answers(file)


@pytest.mark.parametrize("line", ['{"problem_id": 3, "answer": "x"}', '{"problem_id": "a"}', '{"problem_id": "a", "answer": true}'])  # fmt: skip
def test_a_line_that_is_no_answer_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text('{"problem_id": "a", "answer": 1}\n' + line)
    with pytest.raises(InputError, match=r"answers.jsonl line 2: give \{"):
        read_answers(file)


def test_a_file_without_answers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    with pytest.raises(InputError, match=r"cannot read .*: pass a JSONL file of answers"):
        read_answers(file)
    file.write_text("\n")
    with pytest.raises(InputError, match="holds no answers"):
        read_answers(file)
    file.write_text("{")
    with pytest.raises(InputError, match=r"answers.jsonl line 1 is not JSON"):
        read_answers(file)
    file.write_text('{"problem_id": "a", "answer": " "}')
    with pytest.raises(InputError, match="the answer to 'a' is empty"):
        read_answers(file)
    file.write_text('{"problem_id": "a", "answer": 1}\n' * 2)
    with pytest.raises(InputError, match="line 2: problem 'a' is there already"):
        read_answers(file)
