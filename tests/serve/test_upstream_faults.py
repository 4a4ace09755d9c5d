"""Servers that die, hang, or answer what does not fit: a clear error, nothing leaked, and the gateway goes on."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import planted_upstream
from hostile_clients import end_of_answer
from running_gateway import MESSAGES, until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("another n", 502, "upstream_error"),
        ("truncated", 502, "routing_invalid"),
        ("wrong rows", 502, "routing_invalid"),
        ("out of range", 502, "routing_invalid"),
        ("broken JSON", 502, "upstream_error"),
        ("no token ids", 400, "routing_unavailable"),
        ("status 500", 503, "upstream_unavailable"),
        ("status 400", 400, "upstream_refused"),
        ("hangs", 504, "deadline_exceeded"),
    ],
)
def test_a_wrong_answer_is_one_clear_error(
    gateway: Callable[..., Any], upstream: Any, fault: str, status: int, code: str
) -> None:
    server = upstream(fault=fault)
    made = gateway(upstreams=(server.url,), deadline=3.0 if fault == "hangs" else 60.0)
    answer = made.ask()
    assert (answer.status_code, made.error(answer)["code"]) == (status, code)
    streamed = made.ask(stream=True).text
    if code != "upstream_refused":
        assert f'"code": "{code}"' in streamed
    server.fault = None
    assert made.ask(model="planted").status_code == 200


@pytest.mark.parametrize("routing", ["plugin", "none"])
@pytest.mark.parametrize("model", ["planted", "planted#rad-8"])
def test_a_server_that_claims_a_long_context_decides_no_limit(
    gateway: Callable[..., Any], upstream: Any, model: str, routing: str
) -> None:
    """The limit followed the claim: 34 GB of an answer were allowed, and 2.5 GB read."""
    server = upstream(fault="endless answer", routing=routing, context=(1 << 32) - 1)
    made = gateway(upstreams=(server.url,), largest_answer=8 << 20, retries=0)
    answer = made.ask({"fallback": "likelihood"} if "#" in model else None, model=model)
    assert (answer.status_code, made.error(answer)["code"]) == (502, "upstream_error")
    assert server.sent < 64 << 20


def test_an_answer_of_many_values_is_not_read(
    gateway: Callable[..., Any], upstream: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """24 MB of empty objects take a gigabyte as Python's."""
    server = upstream(fault="many values", routing="none", context=(1 << 32) - 1)
    made = gateway(upstreams=(server.url,), largest_answer=64 << 20, retries=0)
    answer = made.ask({"fallback": "likelihood"})
    assert (answer.status_code, made.error(answer)["code"]) == (502, "upstream_error")
    assert "2,097,152 suffice" in capfd.readouterr().err


def test_all_answers_under_way_have_one_limit_together(gateway: Callable[..., Any], upstream: Any) -> None:
    from radmoe.errors import EngineError
    from radmoe.serve.upstreams import Answers

    answers = Answers(100)
    with answers.reading() as one, answers.reading() as two:
        one(60)
        with pytest.raises(EngineError, match="more than 100 bytes"):
            two(60)
    with answers.reading() as again:
        again(100)
    server = upstream(fault="endless answer")
    made = gateway(upstreams=(server.url,), largest_answer=8 << 20, retries=0)
    with ThreadPoolExecutor(8) as pool:
        assert {answer.status_code for answer in pool.map(lambda _: made.ask(), range(8))} == {502}
    server.fault = None
    assert made.ask().status_code == 200


@pytest.mark.parametrize("fault", ["drips", "falls silent"])
@pytest.mark.parametrize(("model", "stream"), [("planted", True), ("planted", False), ("planted#rad-8", True)])
def test_no_answer_outlives_the_deadline(
    gateway: Callable[..., Any], upstream: Any, fault: str, model: str, stream: bool
) -> None:
    """Plain streams, which are passed on as they come, went on for ever."""
    made = gateway(upstreams=(upstream(fault=fault).url,), deadline=1.0)
    began = time.monotonic()
    answer = made.ask(model=model, stream=stream)
    assert time.monotonic() - began < 20.0
    assert "deadline_exceeded" in answer.text
    until(lambda: made.client.get("/health").json()["running"] == 0)
    until(lambda: made.client.get("/health").json()["upstreams"][0]["load"] == 0)


def test_a_stream_that_is_always_ready_meets_the_deadline_too(gateway: Callable[..., Any], upstream: Any) -> None:
    """Parts that were there already were never waited for, so no time-out came."""
    made = gateway(upstreams=(upstream(fault="endless stream", routing="none", context=1 << 31).url,), deadline=1.5)
    began = time.monotonic()
    body = {"model": "planted", "messages": MESSAGES, "stream": True}
    assert "deadline_exceeded" in end_of_answer(f"{made.url}/v1/chat/completions", body)[1]
    assert time.monotonic() - began < 20.0


def test_a_stream_that_falls_silent_or_has_no_end_is_ended(
    gateway: Callable[..., Any], upstream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radmoe.serve.upstream_backend._IDLE_SECONDS", 0.5)
    made = gateway(upstreams=(upstream(fault="falls silent").url,))
    began = time.monotonic()
    assert "upstream_error" in made.ask(model="planted", stream=True).text
    assert time.monotonic() - began < 30.0
    made = gateway(upstreams=(upstream(fault="endless stream").url,), largest_answer=1 << 20)
    text = made.ask(model="planted", stream=True).text
    assert "upstream_error" in text
    assert len(text) < 16 << 20


def test_a_server_that_says_come_back_never_is_not_repeated(gateway: Callable[..., Any], upstream: Any) -> None:
    made = gateway(upstreams=(upstream(fault="come back never").url,), retries=0)
    answer = made.ask()
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3600")


def test_routing_that_does_not_fit_falls_back_only_if_asked_to(gateway: Callable[..., Any], upstream: Any) -> None:
    made = gateway(upstreams=(upstream(fault="truncated").url,))
    answer = made.ask({"fallback": "likelihood"}).json()["radmoe"]
    assert answer["method"] == "likelihood"
    assert "does not fit" in answer["reason"]


def test_when_the_client_leaves_the_upstreams_request_stops_too(gateway: Callable[..., Any], upstream: Any) -> None:
    server = upstream(delay=30.0)
    made = gateway(upstreams=(server.url,))
    for n, stream in enumerate((False, True), 1):
        body = json.dumps({"model": "planted#rad-8", "messages": MESSAGES, "stream": stream}).encode()
        with socket.create_connection(("127.0.0.1", int(made.url.rpartition(":")[2])), 20) as client:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            until(lambda: server.under_way == 1, seconds=25.0)
        until(lambda n=n: server.aborted == n)
    until(lambda: made.client.get("/health").json()["running"] == 0)


def test_the_least_loaded_server_is_asked_and_a_dead_one_left_out(gateway: Callable[..., Any], upstream: Any) -> None:
    one, two = upstream(delay=1.5), upstream(delay=1.5)
    made = gateway(upstreams=(one.url, two.url))
    before = len(one.bodies), len(two.bodies)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: made.ask(), range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8
    assert (len(one.bodies) - before[0], len(two.bodies) - before[1]) == (4, 4)
    one.delay = two.delay = 0.0
    one.fault = "status 500"
    assert [made.ask().status_code for _ in range(4)] == [200] * 4


def test_a_queue_that_is_full_says_when_to_come_back(gateway: Callable[..., Any], upstream: Any) -> None:
    made = gateway(upstreams=(upstream(delay=2.0).url,), running=1, waiting=1)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: made.ask(), range(6)))
    statuses = [answer.status_code for answer in answers]
    assert sorted(set(statuses)) == [200, 429]
    assert statuses.count(200) == 2
    refused = answers[statuses.index(429)]
    assert int(refused.headers["retry-after"]) >= 1
    assert made.error(refused)["code"] == "queue_full"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_upstream(port: int, checkpoint: Path, delay: float) -> subprocess.Popen[bytes]:
    script = Path(planted_upstream.__file__)
    command = [sys.executable, script, "--port", str(port), "--checkpoint", checkpoint, "--delay", str(delay)]
    process = subprocess.Popen(command)
    while True:
        try:
            httpx.get(f"http://127.0.0.1:{port}/health", timeout=5)
            return process
        except httpx.TransportError:
            assert process.poll() is None
            time.sleep(0.05)


def test_an_upstream_killed_amid_fifty_requests(gateway: Callable[..., Any], served_checkpoint: Path) -> None:
    """Every request ends with a pick or an error that says so; when the server is back, so are the answers."""
    port = free_port()
    process = start_upstream(port, served_checkpoint, 0.4)
    try:
        made = gateway(upstreams=(f"http://127.0.0.1:{port}",), running=20, waiting=100)
        with ThreadPoolExecutor(50) as pool:
            futures = [pool.submit(made.ask) for _ in range(50)]
            while sum(future.done() for future in futures) < 10:
                time.sleep(0.01)
            process.kill()
            process.wait()
            answers = [future.result() for future in futures]
        statuses = {answer.status_code for answer in answers}
        assert statuses == {200, 503}
        for answer in answers:
            if answer.status_code == 200:
                assert answer.json()["radmoe"]["sampled"]["rollouts"] == 8
            else:
                assert made.error(answer)["code"] == "upstream_unavailable"
                assert "retry-after" in answer.headers
        health = made.client.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "no model server is up")
        assert made.client.get("/v1/models").json()["data"] == []
        process = start_upstream(port, served_checkpoint, 0.0)
        end = time.monotonic() + 30
        while made.client.get("/health").status_code != 200 and time.monotonic() < end:
            time.sleep(0.1)
        assert made.ask().json()["radmoe"]["method"] == "rad"
    finally:
        process.kill()
        process.wait()


def test_a_gateway_starts_before_its_upstream(gateway: Callable[..., Any], upstream: Any) -> None:
    made = gateway(upstreams=(f"http://127.0.0.1:{free_port()}",), retries=0)
    answer = made.ask()
    assert answer.status_code == 503
    assert made.error(answer)["code"] == "upstream_unavailable"
    assert json.loads(made.ask(stream=True).text.splitlines()[2].removeprefix("data: "))["error"]["code"] == (
        "upstream_unavailable"
    )
