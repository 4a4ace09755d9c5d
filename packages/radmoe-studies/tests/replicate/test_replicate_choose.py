"""The model chooses among its own answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from radmoe.capture import Plan, capture_pool
from radmoe.engines.base import Completion, Job, Sampling
from radmoe.pool import open_pool
from radmoe.problems import Question
from radmoe_studies.replicate.choose import choices, choose, named
from radmoe_studies.replicate.setup import Setup
from weightless_engine import WeightlessEngine

pytestmark = pytest.mark.slow  # a real tokenizer is read


class Decided(WeightlessEngine):
    """Answers every question by naming a response."""

    says, asked, choices = "The most consistent response is Response 1", "", 0

    def _completion(self, job: Job) -> Completion:
        self.choices += 1
        self.asked = self.tokenizer.decode(list(job.prompt))
        return super()._completion(job)._replace(text=f"<think>\nResponse 0?\n</think>\n\n{self.says}")


@pytest.fixture
def setup() -> Setup:
    return Setup(Decided("gpt-oss-20b"), Sampling(0.7, 0.9, 32_768, 3), None, None, 32)  # type: ignore[arg-type]


QUESTION = Question("one", "What is 1 + 2?", "math")
TEXTS = ["<think>\nthree\n</think>\n\nIt is 3.", "<think>\nI never stop", "<think>\nfour\n</think>\n\nIt is 4."]


def test_the_model_sees_final_responses_alone_and_names_one(setup: Setup) -> None:
    made = choose(setup, QUESTION, TEXTS)
    engine: Any = setup.engine
    assert (made.pick, made.shown) == (2, 2)  # the second of those that have a response
    assert "Response 0: It is 3.\n\nResponse 1: It is 4.\n\n" in engine.asked
    assert "never stop" not in engine.asked
    assert "three" not in engine.asked
    assert made.tokens > len(setup.ids(QUESTION.content))


def test_what_does_not_fit_the_context_is_not_shown(setup: Setup) -> None:
    setup.engine.context = 400
    made = choose(setup, QUESTION, [f"<think>\n</think>\n\n{i}: {'word ' * 20}" for i in range(40)])
    assert 2 <= made.shown < 12
    assert made.pick == 1


def test_a_choice_that_names_nothing_shown_is_none(setup: Setup) -> None:
    setup.engine.says = "All are fine."  # type: ignore[attr-defined]
    assert choose(setup, QUESTION, TEXTS).pick == -1
    assert choose(setup, QUESTION, ["<think>\nno end"]) == replace(
        choose(setup, QUESTION, TEXTS), pick=-1, shown=0, tokens=0
    )
    assert named("Response 3 or Response 1.", 4) == 1
    assert named("Response **2**", 2) is None


def test_choices_that_were_made_are_not_asked_again_though_a_line_was_cut_off(setup: Setup, tmp_path: Path) -> None:
    questions = [Question(f"q{i}", f"What is {i} + 1?", "math") for i in range(3)]
    plan = Plan(questions, WeightlessEngine("gpt-oss-20b"), Sampling(0.7, 0.9, 200, 0), n=4)
    capture_pool(plan, tmp_path / "pool")
    pool, kept = open_pool(tmp_path / "pool"), tmp_path / "kept.jsonl"
    engine: Any = setup.engine
    whole = choices(setup, pool, questions, kept, lambda done, of: None)
    assert engine.choices == 3
    kept.write_text(kept.read_text()[:-10])
    for _ in range(2):
        assert choices(setup, pool, questions, kept, lambda done, of: None) == whole
        assert engine.choices == 4
    assert "What is 2 + 1" in engine.asked
