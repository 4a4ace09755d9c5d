"""A plan refuses what cannot be captured before anything is sampled."""

from __future__ import annotations

import pytest

import tiny_moe
from radmoe.capture import Plan, sampling_for
from radmoe.engines.base import Engine, Sampling
from radmoe.engines.kept_rows import profile_for
from radmoe.errors import InputError, ReadoutError
from radmoe.pool import Profile
from radmoe.problems import Question

QUESTIONS = [Question(f"q{i}", f"So the sum is {i}", "math") for i in range(5)]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_moe.engine("qwen3-moe")


def plan(engine: Engine, questions: list[Question] = QUESTIONS, **options: object) -> Plan:
    return Plan(questions, engine, Sampling(max_tokens=8), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("questions", "options", "message"),
    [
        (QUESTIONS, {"n": 0}, "at least 1 rollout per problem, got n = 0"),
        (QUESTIONS, {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ([], {}, "at least one problem"),
        ([*QUESTIONS, QUESTIONS[2]], {}, "the plan has problem 'q2' more than once: ids must be distinct"),
        (
            QUESTIONS,
            {"raw": True, "style": "thinking"},
            "style 'thinking' is told to the chat template, which raw leaves",
        ),
        (QUESTIONS, {"places": (1, 2)}, "5 problems but 2 places"),
        (
            [Question("x", "y", None)],
            {"profile": Profile(readouts=("delimiter@16",))},
            "depends on its kind: give a kind",
        ),
        (
            [Question("x", "y", "text")],
            {"profile": Profile(readouts=("delimiter@16",))},
            "kind 'text' has no delimiter",
        ),
        ([Question("x", "y", "text")], {"profile": Profile(readouts=("closing@16",))}, "no row follows for closing@16"),
        (
            [Question("x", "y", None)],
            {"profile": Profile(readouts=("closing@-16",))},
            "closes an answer depends on its kind",
        ),
    ],
)
def test_what_cannot_be_captured_is_refused(
    engine: Engine, questions: list[Question], options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan(engine, questions, **options)


def test_parts_share_the_problems_and_keep_their_places(engine: Engine) -> None:
    parts = [plan(engine).part(number, 3) for number in (1, 2, 3)]
    assert [[q.problem_id for q in part.problems] for part in parts] == [["q0", "q3"], ["q1", "q4"], ["q2"]]
    assert [part.places for part in parts] == [(0, 3), (1, 4), (2,)]
    with pytest.raises(InputError, match="part 4 of 3 does not exist: use 1 to 3"):
        plan(engine).part(4, 3)
    with pytest.raises(InputError, match="part 6 of 9 has no problem: there are only 5"):
        plan(engine).part(6, 9)


def test_a_profile_is_made_for_an_engine(engine: Engine) -> None:
    assert profile_for(engine).to_json() == {"sort_experts": False, "layers": None, "readouts": None}
    compact = profile_for(engine, weights=False, readouts=("delimiter@16",), layers="0,2")
    assert (compact.sort_experts, compact.layers, compact.readouts) == (True, (0, 2), ("delimiter@16",))
    with pytest.raises(ReadoutError, match="layer subset '9' leaves layers"):
        profile_for(engine, layers="9")


def test_settings_that_are_not_given_are_the_models_own(engine: Engine) -> None:
    assert sampling_for(engine, temperature=0.3, seed=4) == Sampling(0.3, 1.0, 2048, 4, 20)
    assert sampling_for(engine, max_tokens=9, topk_logprobs=0).topk_logprobs == 0
