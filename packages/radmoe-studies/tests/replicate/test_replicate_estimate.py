"""The estimate: lengths from trials that cut rollouts off, and the arithmetic of hours and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from radmoe.engines.base import Completion, Job, Sampling, uniforms
from radmoe.pool import Profile
from radmoe.problems import Question
from radmoe.types import Rollout, RouterShape
from radmoe_studies.replicate import estimate as module
from radmoe_studies.replicate.estimate import Trial, estimate, mean_length, row_bytes, run_trial
from radmoe_studies.replicate.setup import Setup
from weightless_engine import WeightlessEngine

QUESTIONS = [Question(f"q{i}", "What is 1 + 2?", "math") for i in range(40)]
PROFILE = Profile(readouts=("delimiter@16",))

pytestmark = pytest.mark.slow  # a real tokenizer is read


class Lengths(WeightlessEngine):
    """Rollouts of lengths that are known: drawn from an exponential law with this mean, or without end."""

    mean: float | None = 800.0
    most = 0  # rollouts that were asked for at once

    def run(self, jobs: Sequence[Job], batch_size: int, profile: Any) -> Iterator[Completion]:
        self.most = max(self.most, len(jobs))
        return (self._made(job) for job in jobs)

    def _made(self, job: Job) -> Completion:
        chance = uniforms(job.sampling.seed, job.key, job.rollout_index, 1)[0]
        whole = np.inf if self.mean is None else 1 - self.mean * np.log(1 - chance)
        T = int(min(whole, job.limit))
        ids = np.zeros((T, self.shape.layers, self.shape.top_k), np.int16) + np.arange(self.shape.top_k, dtype=np.int16)
        made = Rollout(np.full(T, 100, np.int32), ids, None, None, None)
        return Completion(job.prompt_index, job.rollout_index, made, "", "stop" if whole < job.limit else "length")


@pytest.fixture(scope="module")
def setup() -> Setup:
    engine = Lengths("gpt-oss-20b")
    return Setup(engine, Sampling(0.7, 0.9, 32_768, 3), PROFILE, None, 32)


def test_the_mean_of_an_exponential_law_is_found_though_most_were_cut_off() -> None:
    rng = np.random.default_rng(0)
    lengths, cap = rng.exponential(8_000, 4_000), 2_000
    trial = Trial(4_000, cap, int(np.minimum(lengths, cap).sum()), int((lengths < cap).sum()), 1.0, None, True)
    low, mean, high = mean_length(trial, 32_768)
    assert mean == pytest.approx(np.minimum(lengths, 32_768).mean(), rel=0.05)
    assert low < 2_000 < mean < high < 32_768


def test_where_no_rollout_ended_only_bounds_are_known() -> None:
    assert mean_length(Trial(16, 1_000, 16_000, 0, 1.0, None, True), 32_768) == (1_000, 32_768, 32_768)
    assert mean_length(Trial(4, 1_000, 2_000, 4, 1.0, None, True), 32_768) == (500, 500, 500)


def test_trials_run_as_long_as_they_may_and_as_wide_as_the_capture(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WIDE_SECONDS", 0.0)  # the wide one has time for its first round alone
    told: list[str] = []
    made = estimate(setup, QUESTIONS, 8, told.append)
    assert " of 32 rollouts ended within 64 tokens, " in told[0]
    assert "of 16 rollouts ended within" in told[-1]
    assert setup.engine.most == 32  # type: ignore[attr-defined]
    assert made.rollouts == 320
    assert made.tokens == pytest.approx(800, rel=0.7)  # sixteen rollouts
    assert made.hours == made.rollouts * made.tokens / made.speed / 3600
    per_row = 24 * 4 * 2  # int16 ids, no weights
    assert made.routing == pytest.approx(320 * made.tokens * per_row)
    assert made.windows == 0  # no rollout that ended has a box
    assert made.texts == pytest.approx(320 * made.tokens * (4 + 4 + 20 * 2))


def test_rollouts_without_end_give_bounds_and_the_windows_that_are_assumed(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lengths, "mean", None)
    monkeypatch.setattr(module, "DEEP_SECONDS", 0.0)
    monkeypatch.setattr(module, "WIDE_SECONDS", 0.0)
    made = estimate(setup, QUESTIONS, 1, lambda line: None)
    assert (made.low, made.tokens, made.high) == (64, 32_768, 32_768)
    assert made.windows == 40 * 32 * 24 * 4 * 2
    assert "40 rollouts of about 32,768 tokens" in str(made)


def test_questions_of_a_trial_are_spread_over_all(setup: Setup) -> None:
    trial = run_trial(setup, QUESTIONS, 100, 0.0, lambda line: None)
    assert (trial.rollouts, trial.cap) == (100, 64)
    assert row_bytes(RouterShape(48, 128, 8), weights=True) == 1_536
