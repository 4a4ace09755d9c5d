"""`radmoe grade` as typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from planted_pools import write_pool
from radmoe.cli import grade
from radmoe.errors import InputError
from radmoe.grading.labels import read_labels
from radmoe.lab.planted import PlantedGroup

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
    counts = {"problems": 4, "rollouts": 48, "graded": 48, "parseable": parseable, "right": right}
    assert shown == {"pool": str(pool_path), **counts, "average": pytest.approx(right / 48)}
    labels = read_labels(pool_path)
    for m in made:
        assert [label.answer for label in labels[m.group.problem_id].values()] == m.answers


def test_a_table_shows_avg_at_n(run: Run, pool_path: Path, answers: Path) -> None:
    result = run(pool_path, "--answers", answers)
    assert result.exit_code == 0, result.output
    assert "Avg@12" in result.stdout
    assert "parseable" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--answers", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["--answers", "x", "--task", "code"], "--answers replaces --task"),
        (["--answers", "x", "--dataset", "aime_2024"], "--answers replaces --task, --dataset"),
        (["--task", "code", "--data", "x"], "--dataset and --data replace --task"),
        (["--dataset", "aime"], "unknown dataset 'aime': use one of aime_2024"),
        (["--dataset", "aime_2024", "--data", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["--timeout", "0"], "--timeout must be positive, got 0"),
        (["--task", "poetry"], "unknown task 'poetry': use one of math-1"),
        ([], "not among the 0 known (none): give the --dataset, --task or --answers"),
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


def test_a_dataset_is_graded_from_a_file(run: Run, pool_path: Path, made: list[PlantedGroup], tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"problem_id": m.group.problem_id, "question": "?", "answer": f"{m.truth}.0"} for m in made]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run(pool_path, "--dataset", "aime_2025", "--data", file, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["right"] == sum(answer == m.truth for m in made for answer in m.answers)


def test_a_dataset_of_other_problems_is_one_clear_line(run: Run, pool_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": 60, "question": "?", "answer": "1"}')
    result = run(pool_path, "--dataset", "aime_2024", "--data", file)
    assert isinstance(result.exception, InputError)
    assert "not among the 1 known ('aime_2024-60'): give the --dataset" in str(result.exception)


def test_a_pool_without_any_answer_is_told(run: Run, tmp_path: Path, made: list[PlantedGroup]) -> None:
    silent = [replace(m, texts=["I cannot tell."] * len(m.texts)) for m in made]
    path = write_pool(tmp_path / "silent", silent)
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps({"problem_id": m.group.problem_id, "answer": m.truth}) + "\n" for m in made))
    result = run(path, "--answers", file, "--json")
    assert result.exit_code == 0
    assert "has an answer (no \\boxed{...} or fenced block): all 48 count as wrong" in result.stderr
    assert json.loads(result.stdout)["parseable"] == 0
