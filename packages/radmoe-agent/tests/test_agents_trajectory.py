"""Requests become steps that can be put together again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.engines.replay.run import passes
from radmoe.errors import InputError, RolloutError
from radmoe.types import Rollout
from radmoe_agent.instances import Instance, load_instances
from radmoe_agent.trajectory import Turn, joined, steps_of

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=6)


def rollout(tokens: list[int], positions: list[int] | None = None) -> Rollout:
    rows = len(tokens) if positions is None else len(positions)
    return Rollout(
        np.array(tokens), np.zeros((rows, 2, 1), int), positions=None if positions is None else np.array(positions)
    )


@pytest.mark.slow
@given(st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=5))
def test_every_request_can_be_read_off_the_steps(requests: list[tuple[list[int], list[int]]]) -> None:
    steps = steps_of(requests)
    tokens = np.array([token for _, answer in requests for token in answer], np.int32)
    before: list[int] = []
    for step, (prompt, answer) in zip(steps, requests, strict=True):
        request = [*(before if step.kept is None else before[: step.kept]), *step.given]
        assert request == prompt
        before = [*prompt, *answer]
    at, every = 0, passes(steps, tokens)
    for one in every:
        sequence = [*one.prompt, *one.tail]
        assert [sequence[len(one.prompt) + place] for place in one.places] == tokens[at : at + len(one.places)].tolist()
        at += len(one.places)
    assert at == len(tokens)


def test_turns_are_joined_with_their_rows() -> None:
    turns = [Turn((1, 2), rollout([3, 4], [1]), "stop"), Turn((1, 2, 3, 4, 5), rollout([6, 7, 8], [0, 2]), "stop")]
    made = joined(turns)
    assert made.token_ids.tolist() == [3, 4, 6, 7, 8]
    assert made.positions is not None
    assert made.positions.tolist() == [1, 2, 4]
    assert [(step.given, step.start, step.kept) for step in made.steps] == [((1, 2), 0, None), ((5,), 2, None)]


def test_a_trajectory_has_steps_and_one_set_of_columns() -> None:
    with pytest.raises(RolloutError, match="a trajectory without a step has no routing"):
        joined([])
    one = rollout([1])
    other = Rollout(one.token_ids, one.expert_ids, np.ones((1, 2, 1), np.float16))
    with pytest.raises(RolloutError, match="1 of 2 steps have a column that the others lack"):
        joined([Turn((1,), one, "stop"), Turn((2,), other, "stop")])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (None, "has no instances.jsonl"),
        ('{"instance_id": "a"}', "problem_statement must be a text, got None"),
        (
            '{"instance_id": "a", "problem_statement": "x", "repository": "r", "files": {"a": ""}}',
            "has both repository and files",
        ),
        ('{"instance_id": "a", "problem_statement": "x", "repository": "none"}', "there is no directory"),
        ('{"instance_id": "../a", "problem_statement": "x", "files": {"a": ""}}', "names a directory too"),
        ('{"instance_id": "a", "problem_statement": "x", "files": {"../a": ""}}', "lies outside of its repository"),
        ('{"instance_id": "a", "problem_statement": "x", "files": {"a": 1}}', "files must be texts by their paths"),
        ('{"instance_id": "a", "problem_statement": "x", "files": {"a": ""}}\n' * 2, "has 'a' more than once"),
    ],
)
def test_a_broken_folder_of_instances_is_one_line(tmp_path: Path, lines: str | None, message: str) -> None:
    if lines is not None:
        (tmp_path / "instances.jsonl").write_text(lines)
    with pytest.raises(InputError, match=message):
        load_instances(tmp_path)


@pytest.mark.parametrize("path", ["../home/.ssh", "/etc", "link", "link/.ssh", "r/../../home", "r/away"])
def test_a_repository_lies_in_the_folder_that_names_it(tmp_path: Path, path: str) -> None:
    """Whoever wrote a folder would otherwise choose what of this machine is copied for an agent."""
    folder = tmp_path / "folder"
    (folder / "r").mkdir(parents=True)
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "home")
    (folder / "r" / "away").symlink_to("/usr")
    row = {"instance_id": "a", "problem_statement": "x", "repository": path}
    (folder / "instances.jsonl").write_text(json.dumps(row))
    with pytest.raises(
        InputError, match=f"line 1: the repository '{path}' lies outside of .*folder: put it, or a copy"
    ):
        load_instances(folder)
    (folder / "instances.jsonl").write_text(json.dumps(row | {"repository": "r"}))
    assert load_instances(folder)[0].repository == folder / "r"


def test_instances_have_a_directory_or_files(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "instances.jsonl").write_text(
        '{"instance_id": "a", "problem_statement": "x", "repository": "r"}\n'
        '{"instance_id": "b", "problem_statement": "y", "files": {"c.py": "1"}, "more": 2}\n'
        '{"instance_id": "c", "problem_statement": "z", "image_name": "i:1"}\n'
    )
    a, b, c = load_instances(tmp_path)
    assert c == Instance("c", "z", image="i:1")
    assert a == Instance("a", "x", tmp_path / "r")
    assert b == Instance("b", "y", None, {"c.py": "1"})
    assert load_instances(tmp_path, limit=1) == [a]
