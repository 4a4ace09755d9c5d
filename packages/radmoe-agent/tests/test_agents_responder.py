"""Whoever answers, an agent's trajectory depends on nothing but its names and what it was given."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tiny_moe
from fake_server import FakeServer
from radmoe.engines.base import Engine, Sampling
from radmoe.engines.http.engine import VllmHttpEngine
from radmoe.errors import EngineError, InputError
from radmoe.pool import Profile, open_pool
from radmoe_agent.candidates import read_candidates
from radmoe_agent.responder import EngineResponder, ScriptedResponder
from radmoe_agent.run import AgentPlan, run_agents
from scripted_agents import CONFIG, engine, instances, sampled_plan

SAMPLING = Sampling(temperature=1.0, max_tokens=12, topk_logprobs=2)
PROMPT = [5, 6, 7, 8, 9]


class Plain:
    """The engine without its continuous batching."""

    concurrent = False
    batcher = Engine.batcher

    def __init__(self) -> None:
        self.under_way = threading.Lock()

    def __getattr__(self, name: str) -> object:
        return getattr(engine(), name)

    def generate(self, *arguments: object, **options: object) -> object:
        assert self.under_way.acquire(blocking=False), "two requests at a time"
        try:
            return list(engine().generate(*arguments, **options))  # type: ignore[arg-type]
        finally:
            self.under_way.release()


def test_a_shared_batch_and_requests_one_by_one_give_the_same_answers() -> None:
    batched = EngineResponder(engine(), SAMPLING, batch_size=4)
    keys = [(f"issue/{i}", i % 3) for i in range(6)]
    try:
        with ThreadPoolExecutor(4) as pool:
            ours = list(pool.map(lambda one: batched.respond(PROMPT, key=one[0], rollout_index=one[1]), keys))
    finally:
        batched.close()
    plain: Engine = Plain()  # type: ignore[assignment]
    alone = EngineResponder(plain, SAMPLING, profile=Profile())
    with ThreadPoolExecutor(4) as pool:
        theirs = list(pool.map(lambda one: alone.respond(PROMPT, key=one[0], rollout_index=one[1]), keys))
    alone.close()
    for a, b in zip(ours, theirs, strict=True):
        assert np.array_equal(a.rollout.token_ids, b.rollout.token_ids)
        assert a.rollout.expert_ids.shape == (len(a.rollout), 3, 4)
    assert len({one.rollout.token_ids.tobytes() for one in ours}) > 1


@pytest.mark.slow
def test_a_sampled_run_is_the_same_with_any_number_under_way(tmp_path: Path) -> None:
    tokens = []
    for workers in (1, 3):
        responder = EngineResponder(engine(), SAMPLING, batch_size=workers)
        plan = AgentPlan(instances("one", "two"), responder, CONFIG, n=2, batch_size=workers, step_limit=4)
        try:
            done = run_agents(plan, tmp_path / str(workers))
        finally:
            responder.close()
        assert done.failure is None
        pool = open_pool(tmp_path / str(workers) / "pool")
        tokens.append([rollout.token_ids.tolist() for group in pool.groups() for rollout in group.rollouts])
        assert {one.status for one in read_candidates(tmp_path / str(workers))["one"]} <= {
            "RepeatedFormatError",
            "LimitsExceeded",
        }
    assert tokens[0] == tokens[1]


def test_an_engine_that_is_dead_ends_the_run_and_no_trajectory_is_lost(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="2 requests in a row were not answered, the last one for: the GPU fell off"):
        run_agents(sampled_plan(tmp_path / "dead"), tmp_path / "out")
    plan = sampled_plan()
    try:
        done = run_agents(plan, tmp_path / "out")
    finally:
        plan.responder.close()
    assert (done.trajectories, done.ran, done.lost) == (12, 11, 0)


def test_a_script_needs_an_engine_that_replays() -> None:
    class Served:
        name, replays = "vllm-http", False

    with pytest.raises(InputError, match="vllm-http cannot run a pass over given tokens"):
        ScriptedResponder(Served(), lambda key, run: "")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("plugin", [False, True])
def test_a_server_answers_agents_side_by_side(plugin: bool, tmp_path: Path) -> None:
    checkpoint = tiny_moe.save(tmp_path / "tiny", max_position_embeddings=2048)
    engine().tokenizer.save_pretrained(checkpoint)
    profile = Profile(readouts=("step@union",))
    with FakeServer(engine(), root=str(checkpoint), plugin=plugin).running() as server:
        served = VllmHttpEngine(server.url)
        try:
            responder = EngineResponder(served, SAMPLING, profile=profile)
            plan = AgentPlan(
                instances("one", "two"), responder, CONFIG, n=2, batch_size=4, step_limit=3, profile=profile
            )
            done = run_agents(plan, tmp_path / "out")
        finally:
            served.close()
    assert (done.lost, done.failure) == (0, None)
    pool = open_pool(tmp_path / "out" / "pool")
    assert pool.verify() == []
    assert pool.has_weights == plugin
    (rollout, _) = pool.group("one").rollouts
    assert rollout.positions is not None
    assert len(rollout.positions) >= len(rollout.steps) == 3
