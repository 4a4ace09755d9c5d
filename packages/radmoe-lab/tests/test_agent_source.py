"""Trajectories that the lab sampled are replayed with the tokens that were sampled."""

from __future__ import annotations

import io
import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from radmoe.errors import InputError
from radmoe.pool import open_pool
from radmoe.problems import DEFAULT_SEED
from radmoe_agent.candidates import read_candidates
from radmoe_agent.importer import import_requests
from radmoe_lab.agent.records import AgentStep, AgentTrajectory, write_trajectories
from radmoe_lab.agent.repositories import repositories
from radmoe_lab.agent.source import lab_source
from radmoe_lab.packed_arrays import unpack_arrays
from scripted_agents import SUBMIT, engine, step


def answer(text: str, **options: object) -> AgentStep:
    ids = engine().tokenizer(text + "<|im_end|>", add_special_tokens=False)["input_ids"]
    return AgentStep(np.array(ids, np.uint16), "stop", -1.0, **options)  # type: ignore[arg-type]


@pytest.fixture
def sampled(tmp_path: Path) -> Path:
    first, second = (one.repository_id for one in repositories(limit=2))
    look = answer(step("ls"), observation="exit 0\ncheck.py\n")
    made = [
        AgentTrajectory(first, 0, (look, answer(step(SUBMIT))), "Submitted", "+1\n", "resolved"),
        AgentTrajectory(first, 1, (answer("no command", action=False), look), "LimitsExceeded", "", "no patch"),
        AgentTrajectory(second, 0, (answer(step(SUBMIT)),), "Submitted", "+2\n", "not judged"),
    ]
    write_trajectories(tmp_path / "file", {"seed": DEFAULT_SEED, "model": "lab"}, made)
    return tmp_path / "file"


def test_requests_are_those_that_were_answered(sampled: Path, tmp_path: Path) -> None:
    done = import_requests(lab_source(sampled, engine()), engine(), tmp_path / "in")
    assert (done.instances, done.trajectories, done.replayed, done.refused, done.steps) == (2, 3, 3, 0, 5)
    pool = open_pool(tmp_path / "in" / "pool")
    assert (pool.task, pool.sampling["tokens"]) == ("repo", "sampled")
    first = repositories(limit=1)[0]
    rollout, refused = pool.group(first.repository_id).rollouts
    decode = engine().tokenizer.decode
    assert first.issue in decode(rollout.steps[0].given)
    assert "check.py" in decode(rollout.steps[1].given)
    assert [step.kept is None for step in rollout.steps] == [True, True]
    assert [step.kept is None for step in refused.steps] == [True, False]  # what had no command is not gone on from
    listed = read_candidates(tmp_path / "in")[first.repository_id]
    assert [one.problem for one in listed] == [None, "its patch is empty (it ended with LimitsExceeded)"]
    assert listed[0].model == "lab"


def test_some_repositories_of_a_file_can_be_taken(sampled: Path, tmp_path: Path) -> None:
    done = import_requests(lab_source(sampled, engine(), limit=1), engine(), tmp_path / "in")
    assert (done.instances, done.trajectories) == (1, 2)
    with pytest.raises(InputError, match="limit must be at least 1"):
        lab_source(sampled, engine(), limit=0)


def test_answers_without_a_command_end_a_trajectory_only_in_a_row(tmp_path: Path) -> None:
    (name,) = (one.repository_id for one in repositories(limit=1))
    lost, look = answer("no command", action=False), answer(step("ls"), observation="exit 0\ncheck.py\n")
    steps = (lost, lost, look, lost, lost, answer(step(SUBMIT)))
    made = AgentTrajectory(name, 0, steps, "Submitted", "+1\n", "resolved")
    write_trajectories(tmp_path / "file", {"seed": DEFAULT_SEED, "model": "lab"}, [made])
    done = import_requests(lab_source(tmp_path / "file", engine()), engine(), tmp_path / "in")
    assert (done.trajectories, done.steps, done.refused) == (1, 6, 0)


def test_trajectories_that_cannot_be_replayed_are_listed_and_the_rest_goes_on(tmp_path: Path) -> None:
    names = [one.repository_id for one in repositories(limit=4)]
    strange = AgentStep(np.array([60_000], np.uint16), "stop", -1.0)
    nothing = AgentStep(np.array([], np.uint16), "stop", -1.0)
    made = [
        AgentTrajectory(names[0], 0, (answer(step(SUBMIT)),), "Submitted", "+1\udcff\n"),
        AgentTrajectory(names[0], 1, (strange,), "Submitted", "+2\n"),
        AgentTrajectory(names[1], 0, (answer(step("ls"), observation="x"), nothing), "Submitted", "+3\n"),
        AgentTrajectory("repo-s7-0001", 0, (answer(step(SUBMIT)),), "Submitted", "+4\n"),  # of another seed
    ]
    write_trajectories(tmp_path / "file", {"seed": DEFAULT_SEED, "model": "lab"}, made)
    done = import_requests(lab_source(tmp_path / "file", engine()), engine(), tmp_path / "in")
    assert (done.trajectories, done.replayed, done.refused) == (4, 1, 3)
    assert open_pool(tmp_path / "in" / "pool").verify() == []


@pytest.mark.parametrize(
    "header", [{"seed": "x"}, {"seed": 0, "repositories": ["repo-99999999"]}, {"seed": 0, "repositories": [7]}]
)
def test_a_header_that_names_what_the_lab_does_not_have_is_one_line(tmp_path: Path, header: dict[str, object]) -> None:
    write_trajectories(tmp_path / "file", {"seed": 0}, [])
    arrays = unpack_arrays((tmp_path / "file").read_bytes())
    arrays["header"] = np.frombuffer(json.dumps({"format": 1, "repositories": []} | header).encode(), np.uint8)
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    (tmp_path / "file").write_bytes(lzma.compress(stream.getvalue()))
    with pytest.raises(InputError, match="a seed or a repository that the lab does not have"):
        lab_source(tmp_path / "file", engine())
