"""Problems of a recorded pool, found by what was asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from radmoe import PoolWriter, open_pool, select
from radmoe.errors import InputError, PoolNotFound
from radmoe_integrations.recorded import RecordedPool
from radmoe_lab.planted import PlantedGroup


@pytest.fixture(scope="module")
def path(made: list[PlantedGroup], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four groups: two questions of which one begins like the other, and one of them asked twice."""
    path = tmp_path_factory.mktemp("asked") / "pool"
    asked = {"a": "What is 2+3?", "b": "What is 2+35?", "b again": "What is 2+35?", "c": None}
    groups = [planted.group for planted in made][:4]
    with PoolWriter(path, shape=groups[0].shape, vocab=groups[0].vocab, model="planted") as writer:
        for (problem, prompt), group in zip(asked.items(), groups, strict=True):
            prompt = prompt and f"<|im_start|>user\n{prompt}<|im_end|>\n"
            for index, rollout in enumerate(group.rollouts):
                writer.add(problem, rollout, kind="math", rollout_index=index, prompt=prompt)
    return str(path)


@pytest.mark.parametrize(
    ("question", "problem"), [("a", "a"), ("c", "c"), ("What is 2+3?", "a"), (" What is 2+35?\n", "b again")]
)
def test_a_problem_is_found_by_its_id_or_by_a_text_of_its_prompt(path: str, question: str, problem: str) -> None:
    assert RecordedPool(path).problem(question) == problem


@pytest.mark.parametrize(("question", "count"), [("2+3", "2"), ("What is 7+7?", "no"), ("", "no"), ("x" * 900, "no")])
def test_a_question_of_none_or_of_several_problems_is_refused_in_one_line(path: str, question: str, count: str) -> None:
    with pytest.raises(InputError, match=f"pool has {count} prompts with '.* name problems by their ids") as error:
        RecordedPool(path).problem(question)
    assert len(str(error.value)) < 400
    assert "\n" not in str(error.value)


def test_no_pool_is_no_pool(tmp_path: Path) -> None:
    with pytest.raises(PoolNotFound):
        RecordedPool(str(tmp_path / "none"))


@pytest.mark.parametrize("preset", ["paper", "strict"])
def test_picks_are_those_of_select(path: str, preset: str) -> None:
    recorded = RecordedPool(path)
    for group in open_pool(path).groups():
        assert recorded.pick(group.problem_id, preset).to_dict() == select(group, preset=preset).to_dict()  # type: ignore[arg-type]


def test_responses_are_what_follows_the_thinking(made: list[PlantedGroup], tmp_path: Path) -> None:
    group = made[0].group
    texts = ["<think>\n1\n</think>\n\nIt is 5.<|im_end|>", "It is 6.", "<think>\nstill"]
    with PoolWriter(tmp_path / "p", shape=group.shape, vocab=group.vocab, model="planted") as writer:
        for index, text in enumerate(texts):
            writer.add("a", group.rollouts[index], kind="math", rollout_index=index, text=text)
    assert RecordedPool(str(tmp_path / "p")).responses("a") == ["It is 5.", "It is 6.", ""]
