"""Agents on a real Ray cluster of two nodes: the trajectories of one process, whatever happens to the workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed (pip install 'radmoe[ray]'): agents on a cluster are left out")

import ray_cluster
import scripted_agents
import scripted_harmony
import tiny_moe
from available import needs_namespaces
from command_line import error, radmoe
from radmoe.errors import InputError
from radmoe.pool import Profile, open_pool
from radmoe.pool.work import Progress
from radmoe.system.cluster import Crew
from radmoe_agent.candidates import read_candidates
from radmoe_agent.instances import Instance
from radmoe_agent.run import AgentPlan, run_agents, run_agents_on, trajectory_names
from ray_cluster import Killer, content
from scripted_agents import SUBMIT, engine, mend, sampled_plan, step
from scripted_harmony import FINAL, bash

pytestmark = [needs_namespaces, pytest.mark.slow]

NAMES = ("one", "two", "three")
SLOWLY = {
    name: [[step(f"sleep 1; echo {name} {run}"), mend(f" + {run}"), step(SUBMIT)] for run in range(3)] for name in NAMES
}
HARMONY = {name: [[bash("ls"), scripted_harmony.mend(f" + {run}"), FINAL] for run in range(2)] for name in NAMES}


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with ray_cluster.cluster(2) as made:
        yield Crew(f"ray://{made.address}", 2)


def on(crew: Crew, make_plan: Callable[[], AgentPlan], out: Path, n: int, **options: Any) -> Any:
    return run_agents_on(crew, make_plan, trajectory_names(scripted_agents.instances(*NAMES), n), out, **options)


def files(out: Path) -> dict[str, Any]:
    """What a run leaves beside its pool, without times."""
    left: dict[str, Any] = {"candidates": read_candidates(out)}
    for path in out.glob("run_*/preds.json"):
        left[str(path.relative_to(out))] = json.loads(path.read_text())
    for path in out.glob("run_*/*/*.traj.json"):
        messages = json.loads(path.read_text())["messages"]
        left[str(path.relative_to(out))] = [(one["role"], one["content"]) for one in messages]
    return left


@pytest.mark.parametrize(("harness", "script"), [(scripted_agents, SLOWLY), (scripted_harmony, HARMONY)])
def test_workers_go_on_to_what_one_process_leaves(crew: Crew, tmp_path: Path, harness: Any, script: Any) -> None:
    n = len(script["one"])
    alone = run_agents(harness.script_plan(script, profile=Profile()), tmp_path / "alone")
    run_agents(harness.script_plan(script, n=1, profile=Profile()), tmp_path / "p")
    seen: list[Progress] = []
    make_plan = partial(harness.script_plan, script, profile=Profile())
    done = on(crew, make_plan, tmp_path / "p", n, progress=seen.append)
    assert (done.ran, done.trajectories, done.steps) == (3 * n - 3, 3 * n, alone.steps)
    assert (done.lost, done.failure, done.given_up) == (0, None, ())
    assert seen[-1][:2] == (3 * n - 3, 3 * n - 3)
    assert files(tmp_path / "p") == files(tmp_path / "alone")
    assert content(tmp_path / "p" / "pool") == content(tmp_path / "alone" / "pool")
    assert open_pool(tmp_path / "p" / "pool").verify() == []


def test_a_killed_worker_costs_no_trajectory(crew: Crew, tmp_path: Path) -> None:
    run_agents(scripted_agents.script_plan(SLOWLY, profile=Profile()), tmp_path / "alone")
    make_plan = partial(scripted_agents.script_plan, SLOWLY, batch_size=1, profile=Profile())
    with Killer(every=2.5, most=1) as killer:
        done = on(crew, make_plan, tmp_path / "p", 3)
    assert killer.killed == 1
    assert (done.ran, done.lost, done.given_up) == (9, 0, ())
    assert files(tmp_path / "p") == files(tmp_path / "alone")
    assert content(tmp_path / "p" / "pool") == content(tmp_path / "alone" / "pool")
    assert not list((tmp_path / "p").glob(".*"))


def tokens(out: Path) -> dict[tuple[str, int], list[int]]:
    groups = list(open_pool(out / "pool").groups())
    return {(group.problem_id, i): one.token_ids.tolist() for group in groups for i, one in enumerate(group.rollouts)}


def test_a_worker_whose_engine_dies_is_replaced(crew: Crew, tmp_path: Path) -> None:
    plan = sampled_plan()
    try:
        run_agents(plan, tmp_path / "alone")
    finally:
        plan.responder.close()
    done = on(crew, partial(sampled_plan, tmp_path / "dead"), tmp_path / "p", 4)
    assert (tmp_path / "dead").exists()
    assert (done.ran, done.lost, done.given_up) == (12, 0, ())
    assert tokens(tmp_path / "p") == tokens(tmp_path / "alone")


def test_workers_that_do_not_see_the_repositories_are_given_up(crew: Crew, tmp_path: Path) -> None:
    issues = [Instance("one", "mend", tmp_path / "gone")]
    with pytest.raises(InputError, match=r"one: there is no .*/gone here: give a --data that all nodes see"):
        on(crew, partial(scripted_agents.script_plan, SLOWLY, issues=issues), tmp_path / "p", 1)
    assert not (tmp_path / "p").exists()


def test_the_command_runs_on_a_cluster_what_it_runs_here(crew: Crew, tmp_path: Path) -> None:
    tiny_moe.save(tmp_path / "tiny", max_position_embeddings=2048)
    engine().tokenizer.save_pretrained(tmp_path / "tiny")
    rows = [{"instance_id": name, "problem_statement": "mend", "files": {"a.py": "x = 1\n"}} for name in NAMES]
    (tmp_path / "instances.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mini.yaml").write_text('agent: {system_template: "Mend.", instance_template: "{{task}}"}\n')
    words = [
        "agent",
        "run",
        "--model",
        tmp_path / "tiny",
        "--data",
        tmp_path,
        "--config",
        tmp_path / "mini.yaml",
        "-n",
        2,
    ]
    words += ["--max-tokens", 16, "--steps", 2, "--threads", 1]
    radmoe(*words, "--out", tmp_path / "alone")
    shared = radmoe(*words, "--out", tmp_path / "p", "--on", crew.on, "--workers", 2)
    assert "3 issues x 2 trajectories, 6 of them run now" in shared.stdout
    assert tokens(tmp_path / "p") == tokens(tmp_path / "alone")
    nobody = error(radmoe(*words, "--out", tmp_path / "q", "--on", "ray://127.0.0.1:9", expect=2))
    assert "no Ray cluster can be used at 127.0.0.1:9" in nobody
    assert not (tmp_path / "q").exists()
    lonely = error(radmoe(*words, "--out", tmp_path / "q", "--workers", 2, expect=2))
    assert lonely.endswith("--workers belongs to --on ray: give both, or neither")
