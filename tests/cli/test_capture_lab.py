"""Capture of the lab's own tasks from the shipped models, as a stranger types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import error, lines, radmoe
from radmoe.grading.labels import read_labels
from radmoe.pool import open_pool
from radmoe_lab.tasks import problems

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "P"
    radmoe("capture", "--model", "lab-qwen", "--task", "math-2", "-n", 4, "--limit", 3, "--seed", 90210, "--out", path)
    return path


def test_another_seed_draws_fresh_problems_which_are_graded(captured: Path) -> None:
    pool, asked = open_pool(captured), problems("math-2", seed=90210, limit=3)
    assert pool.problems == [problem.problem_id for problem in asked]
    assert not {problem.prompt for problem in asked} & {problem.prompt for problem in problems("math-2")}
    labels = read_labels(captured)
    truth = {problem.problem_id: problem.answer for problem in asked}
    marks = [(label.answer == truth[name], label.correct) for name, row in labels.items() for label in row.values()]
    assert len(marks) == 12
    assert all(same == correct for same, correct in marks)
    assert any(correct for _, correct in marks)


def test_a_pool_says_how_it_was_made(captured: Path) -> None:
    pool = open_pool(captured)
    assert (pool.model, pool.task, set(pool.kinds.values())) == ("lab-qwen", "math-2", {"math"})
    assert (pool.sampling["engine"], pool.sampling["dtype"], pool.sampling["seed"]) == (
        "transformers",
        "float32",
        90210,
    )
    assert (pool.sampling["temperature"], pool.sampling["top_p"]) == (0.7, 0.9)


def test_select_takes_it_as_it_is(captured: Path) -> None:
    rows = lines(radmoe("select", captured, "--json"))
    assert len(rows) == 3
    assert all(len(row["density"]) == 4 for row in rows)


@pytest.mark.parametrize(("model", "style"), [("lab-oss", "high"), ("lab-next", "instruct")])
def test_every_model_answers_in_its_styles_and_code_is_selected_at_its_fence(
    model: str, style: str, tmp_path: Path
) -> None:
    done = radmoe(
        *("capture", "--model", model, "--style", style, "--task", "code", "-n", 3, "--limit", 2),
        *("--out", tmp_path / "p", "--json"),
    )
    facts = json.loads(done.stdout)
    assert (facts["rollouts"], facts["sampled"]) == (6, 6)
    assert 0 <= facts["average"] <= 1
    assert any(row["located"].count(True) >= 2 for row in lines(radmoe("select", tmp_path / "p", "--json")))


def test_errors_are_one_line_and_leave_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "p"
    lab = ("capture", "--model", "lab-qwen", "--out", out)
    for arguments, said in (
        ((), "give the problems: --task math-2"),
        (("--task", "math-9"), "unknown task 'math-9'"),
        (("--task", "math-1", "--style", "high"), "lab-qwen has no style 'high': use one of thinking, instruct"),
        (("--task", "math-1", "--raw", "--style", "thinking"), "which raw leaves out"),
        (("--task", "math-1", "--device", "cuda:99"), "device 'cuda:99' cannot be used here"),
        (("--task", "math-1", "--device", "toaster"), "device 'toaster' cannot be used here"),
        (("--task", "math-1", "--engine", "ollama"), "unknown engine 'ollama'"),
        (("--task", "math-1", "--engine", "vllm-http"), "vllm-http needs --url"),
        (("--task", "math-1", "--url", "http://localhost:1"), "--url is of vllm-http and sglang-http"),
    ):
        assert said in error(radmoe(*lab, *arguments, expect=2))
    assert not out.exists()


def test_rollouts_that_exist_are_replayed(captured: Path, tmp_path: Path) -> None:
    command = ("replay", captured, "--model", "lab-qwen", "--out", tmp_path / "r")
    assert "12 rollouts, 12 replayed now; 100.0% of expert sets as captured" in radmoe(*command).stdout
    assert "12 rollouts, 0 replayed now" in radmoe(*command).stdout
