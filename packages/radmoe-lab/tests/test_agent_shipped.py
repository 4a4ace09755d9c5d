"""The shipped agent and its trajectories: in range, judged rightly, and replayed to what the GPU saw."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from radmoe.engines import EngineOptions, open_engine
from radmoe.errors import InputError
from radmoe.pool import open_pool
from radmoe_agent.importer import import_requests
from radmoe_lab.agent.loop import BOUNDARY
from radmoe_lab.agent.records import AgentTrajectory, judged, read_trajectories
from radmoe_lab.agent.repositories import repositories
from radmoe_lab.agent.source import lab_source
from radmoe_lab.agent.verdicts import RESOLVED
from radmoe_lab.models import shipped_trajectories, weights
from radmoe_lab.sample import checksums

NAME = "lab-agent-qwen"


@pytest.fixture(scope="module")
def trajectories() -> list[AgentTrajectory]:
    return read_trajectories(shipped_trajectories(NAME))[1]


@pytest.mark.slow
def test_they_were_sampled_with_the_shipped_weights_at_their_temperature() -> None:
    header, _ = read_trajectories(shipped_trajectories(NAME))
    assert header["checkpoint"] == checksums(weights(NAME))
    assert sum(path.stat().st_size for path in weights(NAME).iterdir()) < 15 << 20
    engine = open_engine("transformers", NAME, EngineOptions())
    assert header["sampling"]["temperature"] == engine.suggested("temperature", 0.0)


def test_there_are_16_of_each_and_most_repositories_are_mixed(trajectories: list[AgentTrajectory]) -> None:
    right: dict[str, list[bool]] = {}
    for one in trajectories:
        right.setdefault(one.repository_id, []).append(one.verdict == RESOLVED)
    assert {len(each) for each in right.values()} == {16}
    assert sum(0 < sum(each) < 16 for each in right.values()) >= 300
    assert 0.25 < np.mean([one.verdict == RESOLVED for one in trajectories]) < 0.75


@pytest.mark.slow
def test_the_verdicts_are_those_of_the_hidden_tests(trajectories: list[AgentTrajectory]) -> None:
    some = [one for one in trajectories if one.number % 4 == 0 and one.repository_id < "repo-0060"]
    again = judged(some, repositories(limit=60), jobs=len(os.sched_getaffinity(0)))
    assert [one.verdict for one in again] == [one.verdict for one in some]
    assert len({one.verdict for one in some}) >= 3


@pytest.mark.slow
def test_a_replay_meets_the_experts_and_logprobs_of_the_gpu(
    trajectories: list[AgentTrajectory], tmp_path: Path
) -> None:
    engine = open_engine("transformers", NAME, EngineOptions())
    done = import_requests(lab_source(shipped_trajectories(NAME), engine, limit=1), engine, tmp_path, topk_logprobs=20)
    assert (done.instances, done.trajectories, done.refused) == (1, 16, 0)
    boundary = engine.tokenizer.convert_tokens_to_ids(BOUNDARY)
    pool = open_pool(tmp_path / "pool")
    equal = []
    for rollout, sampled in zip(pool.group(pool.problems[0]).rollouts, trajectories, strict=False):
        starts = [step.start for step in rollout.steps]
        for step, start, stop in zip(sampled.steps, starts, [*starts[1:], len(rollout.token_ids)], strict=True):
            own = slice(start, stop)
            assert np.array_equal(rollout.token_ids[own], step.tokens)
            assert rollout.sampled_logprobs is not None
            assert float(rollout.sampled_logprobs[own].sum()) == pytest.approx(step.logprob, abs=0.01)
            if step.boundary is not None:
                last = start + int(np.flatnonzero(step.tokens == boundary)[-1])
                equal.append((np.sort(rollout.rows(last, last + 1)[0][0], -1) == step.boundary).all(-1))
    assert len(equal) > 60
    assert np.mean(equal) > 0.999  # of (boundary, layer) sets, float32 on both sides


def test_an_agent_without_shipped_trajectories_is_said() -> None:
    with pytest.raises(
        InputError, match=r"no trajectories of lab-qwen ship with radmoe-lab: those of lab-agent-qwen do"
    ):
        shipped_trajectories("lab-qwen")
