"""Served groups in a pool: what was answered is there, whatever became of the gateway."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from killed_servers import Recorded
from radmoe import open_pool, select
from radmoe.errors import InputError, PoolMismatch
from radmoe.pool import Pool
from radmoe.pool.completion import complete
from radmoe.pool.files import place
from radmoe.serve import record, service
from radmoe.serve.settings import Settings
from running_gateway import MESSAGES, until


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


def days_ago(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Let the recorder believe that it is some days earlier."""
    monkeypatch.setattr(record, "time", SimpleNamespace(time=lambda: time.time() - days * 86_400))


def retentions(said: str) -> list[dict[str, Any]]:
    """The lines of the log about retention, without their time."""
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [
        {name: value for name, value in line.items() if name not in ("time", "event", "level")}
        for line in lines
        if line["event"] == "retention"
    ]


@pytest.mark.slow
def test_groups_are_deleted_at_the_start_once_they_are_too_old(
    gateway: Callable[..., Any],
    upstream: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path, server, picks = tmp_path / "pool", upstream(), {}
    for days in (31, 29, 0):
        days_ago(monkeypatch, days)
        made = gateway(upstreams=(server.url,), record=path)
        answer = made.ask(model="planted#rad-4").json()
        picks[answer["id"]] = answer["radmoe"]["pick"]
        made.__exit__()
    assert list(open_pool(path).problems) == list(picks)
    said = capfd.readouterr().err
    made = gateway(upstreams=(server.url,), record=path, keep=30)

    def deleted() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return bool(retentions(said))

    until(deleted)
    assert made.ask(model="planted#rad-4").json()["radmoe"]["recorded"]
    made.__exit__()
    assert retentions(said) == [{"days": 30, "deleted": 1, "left": 2, "undated": 0}]
    pool = open_pool(path)
    assert pool.verify() == []
    assert len(pool.problems) == 3
    old, *young = picks
    assert old not in pool.problems
    assert [select(pool.group(each)).index for each in young] == [picks[each] for each in young]


@pytest.mark.slow
def test_groups_are_deleted_daily_while_others_are_recorded(
    gateway: Callable[..., Any],
    upstream: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path, said = tmp_path / "pool", ""
    monkeypatch.setattr(service, "DAY", 0.5)
    made = gateway(upstreams=(upstream().url,), record=path, keep=30)
    days_ago(monkeypatch, 31)
    old = made.ask(model="planted#rad-4").json()["id"]
    days_ago(monkeypatch, 0)

    def deleted() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return any(line["deleted"] == 1 for line in retentions(said) if "deleted" in line)

    until(deleted)
    answers = [made.ask(model="planted#rad-4").json() for _ in range(6)]
    made.__exit__()
    assert all(answer["radmoe"]["recorded"] for answer in answers)
    pool = open_pool(path)
    assert pool.verify() == []
    assert set(pool.problems) == {answer["id"] for answer in answers} - {old}


@pytest.mark.slow
def test_a_disk_that_is_full_on_one_day_costs_no_group(
    gateway: Callable[..., Any],
    upstream: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The pool is sealed before anything is deleted, and that may fail."""
    monkeypatch.setattr(service, "DAY", 0.5)
    made = gateway(upstreams=(upstream().url,), record=tmp_path / "pool", keep=30)
    refusals = [OSError(28, "No space left on device")]

    def refuse_once(*arguments: Any) -> bool:
        if refusals:
            raise refusals.pop()
        return complete(*arguments)

    answers = [made.ask(model="planted#rad-4").json()]
    monkeypatch.setattr("radmoe.pool.writer.complete", refuse_once)
    until(lambda: not refusals)
    answers.append(made.ask(model="planted#rad-4").json())
    made.__exit__()
    assert [answer["radmoe"]["recorded"] for answer in answers] == [True, True]
    assert sum("No space left on device" in line.get("detail", "") for line in retentions(capfd.readouterr().err)) == 1
    pool = open_pool(tmp_path / "pool")
    assert pool.verify() == []
    assert set(pool.problems) == {answer["id"] for answer in answers}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"keep": 30}, "--keep deletes from the pool of --record, on a disk alone"),
        (
            {"keep": 30, "record": place("s3://bucket/pool")},
            "--keep deletes from the pool of --record, on a disk alone",
        ),
        ({"keep": 0, "record": Path("pool")}, "--keep takes a positive number of days, got 0"),
        ({"keep": float("nan"), "record": Path("pool")}, "--keep takes a positive number of days, got nan"),
    ],
)
def test_what_cannot_be_kept_for_a_time_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=f"^{says}"):
        Settings(model="m", **options)
