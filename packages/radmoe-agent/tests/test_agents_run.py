"""The real mini-swe-agent, in real bash, with the routing of a real model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from radmoe.engines.replay import replay
from radmoe.errors import InputError
from radmoe.pool import Profile, open_pool
from radmoe.selection.steps import count_steps
from radmoe_agent.candidates import read_candidates
from radmoe_agent.instances import Instance
from scripted_agents import CONFIG, FORGETFUL, SUBMIT, engine, mend, run_script, step

pytestmark = pytest.mark.slow

SCRIPT = {
    "one": [[mend(""), step(SUBMIT)], [step("cat sums.py"), mend(" + 0"), step(SUBMIT)]],
    "two": [[step(SUBMIT)], [mend(" - 1"), "no command", "```\n", step(SUBMIT)]],
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agents") / "out"
    run_script(path, SCRIPT, profile=Profile())
    return path


def test_run_directories_are_those_of_mini_swe_agent(out: Path) -> None:
    preds = json.loads((out / "run_00" / "preds.json").read_text())
    assert set(preds) == {"one", "two"}
    assert "-    return sum(xs) + 1\n+    return sum(xs)\n" in preds["one"]["model_patch"]
    body = json.loads((out / "run_01" / "one" / "one.traj.json").read_text())
    assert body["trajectory_format"].startswith("mini-swe-agent")
    assert body["info"]["exit_status"] == "Submitted"
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", *["assistant", "user"] * 2, "assistant", "exit"]
    assert "return sum(xs) + 1" in body["messages"][3]["content"]


def test_steps_and_boundaries_are_counted_apart(out: Path) -> None:
    pool = open_pool(out / "pool")
    assert pool.verify() == []
    counts = [count_steps(rollout, pool.vocab) for rollout in pool.group("two").rollouts]
    assert counts[0] == (1, 1, 0)
    assert counts[1] == (4, 2, 2)
    assert pool.kinds == {"one": "agent", "two": "agent"}


def test_routing_is_that_of_every_step_as_its_own_request(out: Path, tmp_path: Path) -> None:
    again = replay(out / "pool", engine(), tmp_path / "again").agreement
    assert again is not None
    assert again.of > 1000
    assert again.share > 0.999


def test_a_history_that_only_grows_is_never_tokenised_again(out: Path) -> None:
    pool = open_pool(out / "pool")
    assert [step.kept for step in pool.group("one").rollouts[1].steps] == [None] * 3
    kept = [step.kept for step in pool.group("two").rollouts[1].steps]
    assert kept[0] is kept[1] is None  # an answer without a command is not part of the history
    assert kept[2] is not None
    assert kept[3] is not None


def test_reasoning_that_the_template_drops_is_dropped_from_the_requests(tmp_path: Path) -> None:
    done = run_script(tmp_path, {"one": SCRIPT["one"]}, template=FORGETFUL, profile=Profile())
    assert done.retokenised == 3
    rollout = open_pool(tmp_path / "pool").group("one").rollouts[1]
    assert rollout.steps[1].kept is not None
    assert "</think>" not in engine().tokenizer.decode(rollout.steps[2].given)
    again = replay(tmp_path / "pool", engine(FORGETFUL), tmp_path / "again").agreement
    assert again is not None
    assert again.share > 0.999


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    first = run_script(tmp_path, SCRIPT, n=1)
    assert (first.ran, first.trajectories, first.submitted, first.lost) == (2, 2, 2, 0)
    before = open_pool(tmp_path / "pool").group("one").rollouts[0].token_ids
    second = run_script(tmp_path, SCRIPT)
    assert (second.ran, second.trajectories) == (2, 4)
    assert np.array_equal(open_pool(tmp_path / "pool").group("one").rollouts[0].token_ids, before)
    assert run_script(tmp_path, SCRIPT).ran == 0


@pytest.mark.parametrize("size", [0, 100])
def test_predictions_that_a_kill_cut_short_are_written_again(tmp_path: Path, size: int) -> None:
    """mini-swe-agent writes them in place, after each trajectory."""
    run_script(tmp_path, SCRIPT, n=1)
    file = tmp_path / "run_00" / "preds.json"
    before = file.read_text()
    file.write_text(before[:size])
    (tmp_path / "run_00" / "three").mkdir()
    (tmp_path / "run_00" / "three" / "three.traj.json").write_text('{"info": ')
    assert run_script(tmp_path, SCRIPT).trajectories == 4
    assert json.loads(file.read_text()) == json.loads(before)


def test_a_pool_can_keep_the_rows_of_boundaries_alone(tmp_path: Path) -> None:
    run_script(tmp_path, SCRIPT)
    pool = open_pool(tmp_path / "pool")
    rollout = pool.group("two").rollouts[1]
    assert rollout.positions is not None
    boundary = pool.vocab.added["</think>"]
    at = np.flatnonzero(rollout.token_ids == boundary).tolist()
    assert rollout.positions.tolist() == sorted([*at, *rollout.starts[[1, 2]].tolist()])


def test_a_request_that_cannot_be_answered_is_tried_again(tmp_path: Path) -> None:
    broken = {"one": [[mend("")], SCRIPT["one"][1]]}  # the script ends before the agent does
    first = run_script(tmp_path, broken)
    assert (first.lost, first.failure) == (1, "IndexError: list index out of range")
    assert [one.usable for one in read_candidates(tmp_path)["one"]] == [False, True]
    second = run_script(tmp_path, SCRIPT, only=1)
    assert (second.ran, second.lost, second.failure) == (1, 0, None)
    assert [one.usable for one in read_candidates(tmp_path)["one"]] == [True, True]


def test_a_conversation_longer_than_the_context_ends_the_trajectory(tmp_path: Path) -> None:
    run_script(tmp_path, {"one": [[step("seq 3000"), step(SUBMIT)]]})
    (one,) = read_candidates(tmp_path)["one"]
    assert one.status == "ContextExceeded"
    assert one.problem == "its patch is empty (it ended with ContextExceeded)"
    assert len(open_pool(tmp_path / "pool").group("one")) == 1


def test_an_agent_that_never_submits_reaches_its_limit(tmp_path: Path) -> None:
    run_script(tmp_path, {"one": [[step("true")] * 9]}, step_limit=3)
    (one,) = read_candidates(tmp_path)["one"]
    assert one.status == "LimitsExceeded"
    assert len(open_pool(tmp_path / "pool").group("one").rollouts[0].steps) == 3


def test_prompts_that_cannot_be_rendered_are_named(tmp_path: Path) -> None:
    broken = CONFIG | {"agent": {**CONFIG["agent"], "instance_template": "{{x}}"}}
    done = run_script(tmp_path, {"one": [[step(SUBMIT)]]}, config=broken)
    assert (done.lost, done.failure) == (1, "UndefinedError: 'x' is undefined")
    (one,) = read_candidates(tmp_path)["one"]
    assert one.problem == "its patch is empty (it ended with UndefinedError: 'x' is undefined)"
    assert "UndefinedError" in (tmp_path / "minisweagent.log").read_text()


def test_commands_can_run_in_an_environment_of_mini_swe_agent(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    setup = "echo 'return sum(xs) + 1' > sums.py; git init -q .; git add -A"
    config = CONFIG | {"run": {"env_startup_command": setup}, "environment": {"env": {"MINE": "yes"}, "cwd": str(work)}}
    command = "echo $MINE; " + mend("").split("\n")[2]
    script = {"one": [[step(command), step(SUBMIT)]]}
    run_script(tmp_path, script, config=config, environment="local", issues=[Instance("one", "total adds 1")])
    (one,) = read_candidates(tmp_path)["one"]
    assert "-return sum(xs) + 1\n+return sum(xs)\n" in one.patch
    body = json.loads((tmp_path / "run_00" / "one" / "one.traj.json").read_text())
    assert body["messages"][3]["content"] == "0\nyes\n"
    assert body["info"]["config"]["environment_type"].endswith("LocalEnvironment")
    with pytest.raises(InputError, match="one has neither repository nor files, which confined commands need"):
        run_script(tmp_path / "confined", script, issues=[Instance("one", "total adds 1")])


def test_limits_are_those_of_the_configuration_unless_given(tmp_path: Path) -> None:
    limits = {"agent": {**CONFIG["agent"], "step_limit": 2}, "environment": {"timeout": 1}}
    script = {"one": [[step("sleep 300")] * 4]}
    run_script(tmp_path / "own", script, config=CONFIG | limits)
    run_script(tmp_path / "given", script, config=CONFIG | limits, step_limit=1)
    for name, steps in (("own", 2), ("given", 1)):
        (one,) = read_candidates(tmp_path / name)["one"]
        assert one.notes == (f"{steps} commands were stopped",)
    with pytest.raises(InputError, match="the configuration has no agent with system_template"):
        run_script(tmp_path / "none", script, config={})
