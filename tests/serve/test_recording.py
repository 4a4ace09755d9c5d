"""Served groups in a pool: what was answered is there, whatever became of the gateway."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from killed_servers import Recorded
from radmoe import open_pool, select
from radmoe.errors import PoolMismatch
from radmoe.pool import Pool
from running_gateway import MESSAGES


@pytest.mark.slow
def test_every_served_group_is_in_the_pool_and_selects_the_same(
    gateway: Callable[..., Any], upstream: Any, tmp_path: Path
) -> None:
    server = upstream()
    made = gateway(upstreams=(server.url,), record=tmp_path / "pool")
    answers = [made.ask(model=f"planted#rad-{n}").json() for n in (4, 8, 16)]
    assert [answer["radmoe"]["recorded"] for answer in answers] == [True] * 3
    made.__exit__()
    pool = open_pool(tmp_path / "pool")
    for answer, n in zip(answers, (4, 8, 16), strict=True):
        group = pool.group(answer["id"])
        assert len(group) == n
        assert group.kind == "math"
        assert select(group).index == answer["radmoe"]["pick"]
        assert [len(rollout) for rollout in group.rollouts] == [len(server._rollout(i)) for i in range(n)]
        spelled = [group.vocab.decode_bytes(rollout.token_ids).decode() for rollout in group.rollouts]
        assert pool.texts(answer["id"]) == spelled  # what opens the response is in it, so that grading finds it


def test_a_pool_of_another_model_is_refused_at_the_start(
    gateway: Callable[..., Any], upstream: Any, shared_pool: Path
) -> None:
    with pytest.raises(PoolMismatch):
        gateway(upstreams=(upstream().url,), record=shared_pool)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["closed", "abandoned"])
def test_a_hostile_answer_costs_no_group_but_its_own(
    gateway: Callable[..., Any], upstream: Any, tmp_path: Path, ending: str
) -> None:
    """A lone surrogate in one of ten answers made all recorded groups unrecoverable."""
    server, path = upstream(), tmp_path / "pool"
    made = gateway(upstreams=(server.url,), record=path)
    answered = {}
    for number in range(10):
        server.fault = "half a character" if number == 4 else None
        answer = made.ask(model="planted#rad-4")
        if number != 4:
            answered[answer.json()["id"]] = answer.json()
    assert all(answer["radmoe"]["recorded"] for answer in answered.values())
    if ending == "abandoned":
        copy = shutil.copytree(path, tmp_path / "copy")  # what a kill would leave now
        made.__exit__()
        path = copy
        assert Pool.recover(path).dropped == ()
    else:
        made.__exit__()
    pool = open_pool(path)
    assert pool.verify() == []
    assert [len(pool.group(identity)) for identity in answered] == [4] * 9


@pytest.mark.slow
def test_a_group_that_the_disk_refuses_halfway_is_not_in_the_pool(upstream: Any, tmp_path: Path) -> None:
    """Its first rollouts stayed, as a group of fewer than were sampled."""
    path = tmp_path / "pool"
    command = [*(sys.executable, "-m", "radmoe", "serve", "--port", "0", "--record", str(path)), "--upstream"]
    process = subprocess.Popen([*command, upstream().url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    with process.stdout:
        try:
            url = process.stdout.readline().split()[3].rstrip(",")
            recorded = {}
            for full in (False, True, False):
                largest = resource.RLIM_INFINITY
                if full:  # after half a group
                    largest = sum(each.stat().st_size for each in path.rglob("journal.bin")) * 3 // 2
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
                body = {"model": "planted#rad-8", "messages": MESSAGES}
                answer = httpx.post(f"{url}/chat/completions", json=body, timeout=60).json()
                recorded[answer["id"]] = answer["radmoe"]["recorded"]
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
    assert list(recorded.values()) == [True, False, True]
    pool = open_pool(path)
    assert {group.problem_id: len(group) for group in pool.groups()} == {
        each: 8 for each, kept in recorded.items() if kept
    }
    assert pool.verify() == []


@pytest.mark.slow
def test_a_gateway_killed_while_recording_leaves_a_pool_that_does_not_lie(upstream: Any, tmp_path: Path) -> None:
    """What a client was answered is there whole; a group that the kill cut short says how many it should have."""
    made = Recorded(tmp_path / "pool", upstream().url)
    made.serve_and_kill(answers=12)
    assert made.wrong(shutil.copytree(made.path, tmp_path / "copy")) == ""
    made.serve_and_kill(answers=4)  # it goes on with what the kill left
    assert made.wrong(made.path) == ""
    assert len(made.picks) >= 16
