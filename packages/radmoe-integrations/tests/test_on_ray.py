"""Captures on a real Ray cluster of three nodes: the same pool whatever happens to the workers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "ray", reason="Ray is not installed (pip install 'radmoe[ray]'): captures on a cluster are left out"
)

import ray_cluster
from radmoe.capture import CaptureInterrupted, Progress, capture_pool
from radmoe.engines.replay import agreement, replay
from radmoe.errors import ClusterError, InputError, PoolBusy, PoolMismatch
from radmoe.pool import PoolWriter, open_pool
from radmoe.system.cluster import Crew
from radmoe_integrations.on_ray import capture_on_ray, fill_on_ray
from ray_cluster import Killer, content, cursed_plan, make_plan, poisoned_plan

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster.cluster(3) as made:
        yield made


@pytest.fixture(scope="module")
def crew(cluster: Any) -> Crew:
    return Crew(f"ray://{cluster.address}", 3)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pool that one process makes of the plan."""
    path = tmp_path_factory.mktemp("alone") / "pool"
    capture_pool(make_plan(), path)
    return path


def other_node(cluster: Any) -> str:
    """A node that is not the head."""
    return str(cluster.list_all_nodes()[-1].node_id)


def test_workers_make_the_pool_of_one_process_and_go_on(crew: Crew, alone: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    first = capture_on_ray(partial(make_plan, 5), tmp_path / "p", crew, progress=seen.append)
    assert (first.sampled, first.rollouts, first.given_up) == (60, 60, ())
    assert seen[-1][:4] == (60, 60, 12, 12)
    assert seen[-1].tokens == first.tokens > 60
    more = capture_on_ray(make_plan, tmp_path / "p", crew)
    again = capture_on_ray(make_plan, tmp_path / "p", crew)
    assert (more.sampled, again.sampled) == (36, 0)
    pool = open_pool(tmp_path / "p")
    assert pool.verify() == []
    assert pool.problems == open_pool(alone).problems
    assert content(tmp_path / "p") == content(alone)
    with pytest.raises(PoolMismatch, match=r"was made with sampling.max_tokens = 12, this writer has 13"):
        capture_on_ray(partial(make_plan, max_tokens=13), tmp_path / "p", crew)


def test_a_pool_whose_workers_are_killed_is_the_undisturbed_one(
    crew: Crew, alone: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Killer(every=2.0, most=4) as killer:
        capture_on_ray(partial(make_plan, seconds=0.3), tmp_path / "p", crew)
    assert killer.killed >= 2
    assert capfd.readouterr().out == ""
    pool = open_pool(tmp_path / "p")
    assert pool.verify() == []
    assert sum(shard.meta["runs"] for shard in pool.shards.values()) == len(pool)  # nothing was made twice
    assert content(tmp_path / "p") == content(alone)


@pytest.mark.parametrize(
    ("curse", "reason"),
    [
        ("dies", "was given up: lost 3 times in a row, the last time by: The actor died unexpectedly"),
        ("another version", "was given up: it has versions.waiting = '[12]', the first worker '[12]'"),
        ("other weights", r"was given up: it has checkpoint = (None|'0123'), the first worker (None|'0123'): install"),
        ("no GPU", "was given up: no GPU is visible here"),
    ],
)
def test_a_worker_that_cannot_work_is_given_up_by_name_and_the_rest_goes_on(
    cluster: Any, crew: Crew, alone: Path, tmp_path: Path, curse: str, reason: str
) -> None:
    done = capture_on_ray(partial(cursed_plan, other_node(cluster), curse), tmp_path / "p", crew)
    assert done.given_up
    assert all(re.match(rf"worker \d {reason}", line) for line in done.given_up)
    assert content(tmp_path / "p") == content(alone)


def test_a_problem_that_kills_every_worker_ends_the_capture_and_the_others_are_safe(crew: Crew, tmp_path: Path) -> None:
    with pytest.raises(
        ClusterError, match=r"no worker is left, and what was made is safe: worker \d was given up: lost 3"
    ):
        capture_on_ray(poisoned_plan, tmp_path / "p", crew)
    left = capture_on_ray(make_plan, tmp_path / "p", crew).sampled
    assert 8 <= left <= 8 + crew.workers  # a last piece has one rollout beside one that kills


def test_an_interrupted_capture_goes_on(crew: Crew, alone: Path, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.rollouts > 10:
            raise KeyboardInterrupt

    with pytest.raises(CaptureInterrupted, match=r"\d+ rollouts are safe in .*/p: run the same command to go on"):
        capture_on_ray(partial(make_plan, seconds=0.2), tmp_path / "p", crew, progress=interrupt)
    assert 0 < capture_on_ray(make_plan, tmp_path / "p", crew).sampled < 90
    assert content(tmp_path / "p") == content(alone)


def test_a_pool_has_one_capture_at_a_time(crew: Crew, alone: Path, tmp_path: Path) -> None:
    refused: list[str] = []

    def another(progress: Progress) -> None:
        if not refused:
            with pytest.raises(PoolBusy) as caught:
                capture_pool(make_plan(), tmp_path / "p")
            refused.append(str(caught.value))

    capture_on_ray(make_plan, tmp_path / "p", crew, progress=another)
    assert re.search("is being written by process", refused[0])
    assert content(tmp_path / "p") == content(alone)
    plan = make_plan()
    with PoolWriter(tmp_path / "q", shape=plan.engine.shape, vocab=plan.engine.vocab, model="waiting"):  # noqa: SIM117
        with pytest.raises(PoolBusy, match="is being written by process"):
            capture_on_ray(make_plan, tmp_path / "q", crew)


def test_what_no_node_has_is_said_before_anything_starts(crew: Crew, tmp_path: Path) -> None:
    with pytest.raises(
        ClusterError, match=r"a worker needs 1 CPU and 1 GPU, and no node .*the most are 1 CPU and 0 GPU"
    ):
        capture_on_ray(make_plan, tmp_path / "p", Crew(crew.on, 2, gpus_per_worker=1))
    with pytest.raises(InputError, match="an adaptive capture looks at its pool after every few rollouts"):
        capture_on_ray(ray_cluster.adaptive_plan, tmp_path / "p", crew)
    assert not (tmp_path / "p").exists()


def test_a_replay_on_a_cluster_is_that_of_one_process(crew: Crew, alone: Path, tmp_path: Path) -> None:
    engine = make_plan().engine
    one = replay(alone, engine, tmp_path / "one")
    make_work = partial(ray_cluster.replay_work, alone)
    done = fill_on_ray(make_work, tmp_path / "p", crew, lambda now: None)
    assert (done.rollouts, done.sampled, one.replayed) == (96, 96, 96)
    assert content(tmp_path / "p") == content(tmp_path / "one")
    assert agreement(tmp_path / "p") == one.agreement
