"""From a plan to a pool with a real model: resumable, in the order asked, and without a word on correctness."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tiny_moe
from radmoe.capture import CaptureInterrupted, Plan, Progress, capture_pool
from radmoe.engines.base import Engine, Sampling
from radmoe.errors import PoolMismatch
from radmoe.pool import Pool, Profile, merge_pools, open_pool, schema
from radmoe.problems import Question

QUESTIONS = [Question(f"q{i}", f"So the sum is {i}", ("math", "code", None)[i % 3]) for i in range(6)]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_moe.engine("qwen3-moe")


@pytest.fixture(scope="module")
def plan(engine: Engine) -> Plan:
    return Plan(QUESTIONS, engine, Sampling(max_tokens=12, seed=3), n=4, task="sums", batch_size=8)


@pytest.fixture(scope="module")
def whole(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Pool:
    path = tmp_path_factory.mktemp("whole") / "pool"
    capture_pool(plan, path)
    return open_pool(path)


def tokens(pool: Pool) -> dict[tuple[str, int], list[int]]:
    return {
        (group.problem_id, index): rollout.token_ids.tolist()
        for group in pool.groups()
        for index, rollout in zip(pool.rollout_indices(group.problem_id), group.rollouts, strict=True)
    }


def test_the_pool_says_what_was_captured(plan: Plan, whole: Pool) -> None:
    assert whole.problems == [question.problem_id for question in QUESTIONS]
    assert whole.kinds == {question.problem_id: question.kind for question in QUESTIONS}
    assert (whole.task, whole.style, len(whole)) == ("sums", None, 24)
    assert "n" not in whole.sampling
    assert whole.sampling["seed"] == 3
    assert whole.verify() == []
    assert not (whole.path / schema.LABELS).exists()
    engine = tiny_moe.engine("qwen3-moe")
    prompt = plan.engine.tokenizer(whole.runs(["prompt"])["prompt"][0].as_py())["input_ids"]
    problem = whole.runs(["problem_id"])["problem_id"][0].as_py()
    rollout = whole.group(problem).rollouts[0]
    ids, _ = engine.teacher_forced([*prompt, *rollout.token_ids.tolist()])
    stored, _ = rollout.rows(0, len(rollout))
    assert np.array_equal(np.sort(stored, -1), np.sort(ids[len(prompt) - 1 : -1], -1))


def test_progress_counts_rollouts_and_problems(plan: Plan, tmp_path: Path) -> None:
    seen: list[Progress] = []
    done = capture_pool(plan, tmp_path / "p", progress=seen.append)
    assert [p.rollouts for p in seen] == list(range(1, 25))
    assert (seen[-1].problems, seen[-1].of_problems, seen[-1].of_rollouts) == (6, 6, 24)
    assert seen[-1].tokens == done.tokens > 24
    assert "6 problems x 4 rollouts" in str(done)


def test_a_capture_that_goes_on_samples_what_is_missing(plan: Plan, whole: Pool, tmp_path: Path) -> None:
    first = capture_pool(replace(plan, problems=QUESTIONS[:3], places=None, n=2), tmp_path / "p")
    again = capture_pool(replace(plan, problems=QUESTIONS[:3], places=None, n=2), tmp_path / "p")
    more = capture_pool(plan, tmp_path / "p")
    assert (first.sampled, again.sampled, again.tokens, more.sampled) == (6, 0, 0, 18)
    assert tokens(open_pool(tmp_path / "p")) == tokens(whole)
    with pytest.raises(PoolMismatch, match="was made with task = 'sums', this writer has 'other'"):
        capture_pool(replace(plan, task="other"), tmp_path / "p")


def test_a_resume_under_another_version_goes_on_and_is_told_apart(plan: Plan, tmp_path: Path) -> None:
    capture_pool(replace(plan, n=1), tmp_path / "p")
    engine, before = plan.engine, dict(plan.engine.versions)
    try:
        engine.versions["torch"] = "99.0"
        capture_pool(replace(plan, n=2), tmp_path / "p")
    finally:
        engine.versions.update(before)
    pool = open_pool(tmp_path / "p")
    assert len(pool) == 12
    assert [where["versions"]["torch"] for where in pool.provenance.values()] == [before["torch"], "99.0"]


def test_an_interrupt_says_how_many_rollouts_are_safe(plan: Plan, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.rollouts == 5:
            raise KeyboardInterrupt

    with pytest.raises(CaptureInterrupted, match=r"5 rollouts are safe in .*/p: run the same command to go on"):
        capture_pool(plan, tmp_path / "p", progress=interrupt)
    assert len(Pool.recover(tmp_path / "p")) == 5
    assert capture_pool(plan, tmp_path / "p").sampled == 19


def test_parts_captured_apart_merge_into_the_whole(plan: Plan, whole: Pool, tmp_path: Path) -> None:
    for number in (3, 1, 2):
        capture_pool(plan.part(number, 3), tmp_path / str(number))
    merged = merge_pools([tmp_path / str(number) for number in (3, 1, 2)], tmp_path / "all")
    assert merged.problems == whole.problems
    assert tokens(merged) == tokens(whole)


def test_only_what_is_kept_is_in_the_pool(plan: Plan, tmp_path: Path) -> None:
    capture_pool(replace(plan, weights=False, profile=Profile(True, (0, 2), ("boundary@4",))), tmp_path / "p")
    pool = open_pool(tmp_path / "p")
    assert not pool.has_weights
    assert pool.shape.layers == 2
    assert pool.profile.readouts == ("boundary@4",)
    assert pool.verify() == []


@pytest.mark.slow
def test_capturing_loads_no_gold_and_no_grading() -> None:
    code = (
        "import sys, radmoe.capture; "
        "print([m for m in sys.modules if m.startswith(('radmoe.grading', 'radmoe.problems.gold', 'radmoe_lab'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
