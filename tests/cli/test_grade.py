"""`radmoe grade` as typed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from crippled import NO_LANDLOCK, NO_MOUNTS, cripple
from planted_pools import write_pool
from radmoe.cli import grade
from radmoe.errors import InputError
from radmoe.grading.labels import read_labels
from radmoe.problems import load_questions
from radmoe_lab.planted import PlantedGroup
from radmoe_lab.tasks import problems
from text_pools import write_texts

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    app = typer.Typer()
    app.command("grade", epilog=grade.EXAMPLES)(grade.command)
    return lambda *words: CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def answers(made: list[PlantedGroup], tmp_path: Path) -> Path:
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps({"problem_id": m.group.problem_id, "answer": m.truth}) + "\n" for m in made))
    return file


def test_labels_are_written_and_counted(run: Run, pool_path: Path, answers: Path, made: list[PlantedGroup]) -> None:
    result = run(pool_path, "--answers", answers, "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    right = sum(answer == m.truth for m in made for answer in m.answers)
    parseable = sum(answer is not None for m in made for answer in m.answers)
    counts = {"problems": 4, "rollouts": 48, "graded": 48, "parseable": parseable, "unmarked": 0, "right": right}
    assert shown == {"pool": str(pool_path), **counts, "average": pytest.approx(right / 48)}
    labels = read_labels(pool_path)
    for m in made:
        assert [label.answer for label in labels[m.group.problem_id].values()] == m.answers


def test_answers_that_selection_does_not_look_for_are_counted(run: Run, tmp_path: Path) -> None:
    texts = [r"\boxed{8}", r"\fbox{8}", r"\boxed 8", r"\boxed {8}", r"\fbox{7} or \boxed{8}", "8", r"\fbox{8"]
    path = write_texts(tmp_path / "pool", [("p", text) for text in texts], kind="math")
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps({"problem_id": "p", "answer": "8"}))
    assert json.loads(run(path, "--answers", file, "--json").stdout) | {"pool": ""} == {
        "pool": "", "problems": 1, "rollouts": 7, "graded": 7, "parseable": 5, "unmarked": 3, "right": 5, "average": 5 / 7
    }  # fmt: skip
    assert "3 answers stand in rollouts without \\boxed{" in " ".join(run(path, "--answers", file).stdout.split())


def test_a_table_shows_avg_at_n(run: Run, pool_path: Path, answers: Path) -> None:
    result = run(pool_path, "--answers", answers)
    assert result.exit_code == 0, result.output
    assert "Avg@12" in result.stdout
    assert "parseable" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--answers", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["--answers", "x", "--task", "code"], "--answers replaces --task, --data and --seed"),
        (["--answers", "x", "--data", "y"], "--answers replaces --task, --data and --seed"),
        (["--answers", "x", "--seed", "1"], "--answers replaces --task, --data and --seed"),
        (["--task", "code", "--data", "x"], "task 'code' draws its own problems and reads no file"),
        (["--task", "aime_2024", "--data", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["--timeout", "0"], "--timeout must be positive, got 0"),
        (["--task", "poetry"], "unknown task 'poetry': use one of math-1"),
        (["--task", "my.poetry"], "task 'my.poetry' cannot be imported (No module named 'my')"),
        (["--seed", "3"], "not among the 0 known (none): give the --task, --data or --answers"),
        ([], "not among the 0 known (none): give the --task, --data or --answers"),
    ],
)
def test_what_cannot_be_graded_is_one_clear_line(run: Run, pool_path: Path, words: list[str], message: str) -> None:
    result = run(pool_path, *words)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_grading_does_not_change_the_pool_otherwise(
    run: Run, made: list[PlantedGroup], tmp_path: Path, answers: Path
) -> None:
    path = write_pool(tmp_path / "pool", made)
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    assert run(path, "--answers", answers).exit_code == 0
    after = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    assert after.keys() - before.keys() == {path / "labels.parquet"}
    assert all(after[p] == data for p, data in before.items())


def test_a_data_set_is_graded_from_a_file(run: Run, pool_path: Path, made: list[PlantedGroup], tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"problem_id": m.group.problem_id, "question": "?", "answer": f"{m.truth}.0"} for m in made]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run(pool_path, "--task", "aime_2025", "--data", file, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["right"] == sum(answer == m.truth for m in made for answer in m.answers)


def test_a_data_set_of_other_problems_is_one_clear_line(run: Run, pool_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": 60, "question": "?", "answer": "1"}')
    result = run(pool_path, "--task", "aime_2024", "--data", file)
    assert isinstance(result.exception, InputError)
    assert "not among the 1 known ('aime_2024-60'): give the --task" in str(result.exception)


def test_a_pool_without_any_answer_is_told(run: Run, tmp_path: Path, made: list[PlantedGroup]) -> None:
    silent = [replace(m, texts=["I cannot tell."] * len(m.texts)) for m in made]
    path = write_pool(tmp_path / "silent", silent)
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps({"problem_id": m.group.problem_id, "answer": m.truth}) + "\n" for m in made))
    result = run(path, "--answers", file, "--json")
    assert result.exit_code == 0
    assert "has an answer (no \\boxed{...}, fenced block or final response): all 48 count as wrong" in result.stderr
    assert json.loads(result.stdout)["parseable"] == 0


def test_the_pool_s_own_task_is_graded_without_an_option(run: Run, tmp_path: Path) -> None:
    problem = problems("math-2", limit=1)[0]
    texts = [(problem.problem_id, f"\\boxed{{{answer}}}") for answer in (problem.answer, "1000")]
    path = write_texts(tmp_path / "pool", texts, task="math-2", kind="math")
    result = run(path, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["right"] == 1


def test_a_file_of_one_s_own_is_graded_as_it_was_captured(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "capitals.jsonl"
    file.write_text('{"id": "fr", "prompt": "The capital of France?", "answer": "Paris", "kind": "text"}\n')
    questions, task = load_questions(data=file)
    texts = [(question.problem_id, text) for question in questions for text in ("Paris", "Lyon")]
    path = write_texts(tmp_path / "pool", texts, task=task, kind=questions[0].kind)
    result = run(path, "--data", file, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["right"] == 1
    result = run(path)
    assert "records the task 'capitals', and a file chooses only among math-1" in str(result.exception)


def test_a_kind_that_contradicts_the_pool_is_one_clear_line(run: Run, pool_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": "planted-0000", "prompt": "?", "answer": "7", "kind": "text"}\n')
    result = run(pool_path, "--data", file)
    assert isinstance(result.exception, InputError)
    message = str(result.exception)
    assert "problem 'planted-0000' is of kind math, but in rows it is of kind text" in message
    assert "\n" not in message


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
def test_programs_run_unconfined_only_when_told_to(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problems("code", limit=1)[0]
    pool = write_texts(tmp_path / "pool", [(problem.problem_id, "```python\nf = len\n```")], task="code", kind="code")
    cripple(tmp_path, monkeypatch, "kernel", NO_MOUNTS | NO_LANDLOCK)
    refused = run(pool)
    assert isinstance(refused.exception, InputError)
    assert "--unconfined" in str(refused.exception)
    assert run(pool, "--unconfined").exit_code == 0
