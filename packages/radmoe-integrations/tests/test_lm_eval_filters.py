"""lm-eval's filters on planted pools, loaded as lm-eval loads them; test_harness_docs.py runs lm-eval itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from lm_eval.api.instance import Instance
from lm_eval.filters import build_filter_ensemble
from lm_eval.tasks._yaml_loader import load_yaml

from radmoe import PoolWriter, open_pool, select
from radmoe.errors import InputError, PoolNotFound
from radmoe_lab.planted import PlantedGroup


def filtered(place: Path, name: str, docs: list[dict[str, Any]], **options: Any) -> list[Any]:
    """What is left of "lol" after the filter that a task's file names, for each document."""
    task = place / "task.yaml"
    task.write_text(f"function: !function radmoe_integrations.lm_eval.{name}\n{yaml.dump(options)}")
    component = load_yaml(task)
    ensemble = build_filter_ensemble("mine", [(component.pop("function"), component)])
    instances = [Instance("generate_until", doc, (), i, ("task", i, 1), resps=["lol"]) for i, doc in enumerate(docs)]
    ensemble.apply(instances)
    return [instance.filtered_resps["mine"] for instance in instances]


@pytest.fixture(scope="module")
def docs(shared_pool: Path) -> list[dict[str, Any]]:
    """Documents in another order than the pool's problems, and not of all."""
    return [{"id": problem, "text": "?"} for problem in open_pool(shared_pool).problems[-2::-2]]


@pytest.mark.parametrize("options", [{}, {"preset": "strict"}])
def test_a_document_gets_the_response_of_the_pick(
    shared_pool: Path, docs: list[dict[str, Any]], tmp_path: Path, options: dict[str, str]
) -> None:
    picks = filtered(tmp_path, "Pick", docs, pool=str(shared_pool), key="id", **options)
    whole = filtered(tmp_path, "Rollouts", docs, pool=str(shared_pool), key="id")
    pool = open_pool(shared_pool)
    for doc, pick, rollouts in zip(docs, picks, whole, strict=True):
        group = pool.group(doc["id"])
        assert len(rollouts) == len(group)
        assert pick == [rollouts[select(group, **options).index]]  # type: ignore[arg-type,index]


def test_abstaining_is_an_empty_response(made: list[PlantedGroup], tmp_path: Path) -> None:
    group = made[0].group
    with PoolWriter(tmp_path / "p", shape=group.shape, vocab=group.vocab, model="planted") as writer:
        writer.add("alone", group.rollouts[0], kind="math", rollout_index=0, text="It is 5.")
    assert filtered(tmp_path, "Pick", [{"id": "alone"}], pool=str(tmp_path / "p"), key="id") == [[""]]


def test_what_cannot_be_picked_is_refused_in_one_line(
    shared_pool: Path, docs: list[dict[str, Any]], tmp_path: Path
) -> None:
    pool = str(shared_pool)
    with pytest.raises(InputError, match=r"no field 'question' for key: they have id, text$"):
        filtered(tmp_path, "Pick", docs, pool=pool, key="question")
    with pytest.raises(InputError, match=r"has no prompts with 'another' in them, and no problem of that id"):
        filtered(tmp_path, "Pick", [*docs, {"id": "another"}], pool=pool, key="id")
    with pytest.raises(PoolNotFound, match="there is no pool at"):
        filtered(tmp_path, "Pick", docs, pool="none", key="id")
    with pytest.raises(InputError, match="mine"):
        filtered(tmp_path, "Pick", docs, pool=pool, key="id", preset="mine")
