"""What an operator sees of errors that nobody expected: a line of the request, a 500 in the metrics, and the whole reason."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from running_gateway import MESSAGES

REASON = "the disk is on fire " + "and " * 200 + "nobody knows why"


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError(REASON)


def logged(capfd: pytest.CaptureFixture[str], count: int = 1) -> list[dict[str, Any]]:
    """The lines of the log, each of them JSON, once there are so many of requests."""
    text, end = "", time.monotonic() + 30
    while text.count('"event": "request"') < count and time.monotonic() < end:
        time.sleep(0.02)
        text += capfd.readouterr().err
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", ["radmoe.serve.service.pick", "radmoe.serve.upstream_backend.read_choices"])
def test_an_error_in_a_request_is_logged_and_counted(
    gateway: Callable[..., Any],
    upstream: Any,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    place: str,
    stream: bool,
) -> None:
    made = gateway(upstreams=(upstream().url,))
    monkeypatch.setattr(place, broken)
    capfd.readouterr()
    answer = made.ask(stream=stream)
    assert "internal_error" in answer.text
    assert "fire" not in answer.text
    assert answer.status_code == (200 if stream else 500)
    lines = logged(capfd)
    (request,) = [line for line in lines if line["event"] == "request"]
    (error,) = [line for line in lines if line["event"] == "error"]
    assert (request["status"], request["code"], request["n"]) == (500, "internal_error", 8)
    assert error["reason"] == f"RuntimeError: {REASON}"
    assert error["request_id"] == request["request_id"] == answer.headers["x-request-id"]
    assert "in broken" in error["trace"]
    assert 'radmoe_requests_total{mode="best",route="chat",status="500"} 1.0' in made.client.get("/metrics").text


@pytest.mark.slow
def test_an_error_of_another_route_is_counted_too(
    gateway: Callable[..., Any], upstream: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made = gateway(upstreams=(upstream().url,))
    monkeypatch.setattr("radmoe.serve.recent.Recent.listed", broken)
    answer = made.client.get("/live")
    assert (answer.status_code, made.error(answer)["code"]) == (500, "internal_error")
    assert 'route="other",status="500"} 1.0' in made.client.get("/metrics").text
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    assert [line["reason"] for line in lines if line["event"] == "error"] == [f"RuntimeError: {REASON}"]


@pytest.mark.slow
def test_a_stream_that_is_passed_on_is_noted_when_it_ends(
    gateway: Callable[..., Any], upstream: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    server = upstream()
    made = gateway(upstreams=(server.url,), deadline=3.0)
    made.ask(model="planted", stream=True)
    (well,) = [line for line in logged(capfd) if line["event"] == "request"]
    server.fault = "drips"
    made.ask(model="planted", stream=True)
    (late,) = [line for line in logged(capfd) if line["event"] == "request"]
    with made.client.stream("POST", "/v1/chat/completions", json=asked()) as answer:
        next(answer.iter_raw())
    (left,) = [line for line in logged(capfd) if line["event"] == "request"]

    async def parts(*_: Any) -> Any:
        yield b": x\n\n"
        broken()

    monkeypatch.setattr("radmoe.serve.upstream_backend._parts", parts)
    assert "internal_error" in made.ask(model="planted", stream=True).text
    lines = logged(capfd)
    (failed,) = [line for line in lines if line["event"] == "request"]
    assert [line["reason"] for line in lines if line["event"] == "error"] == [f"RuntimeError: {REASON}"]
    assert [line["status"] for line in (well, late, left, failed)] == [200, 504, 499, 500]
    assert late["upstream"] > 0.5  # the wait for parts is the server's


def asked() -> dict[str, Any]:
    return {"model": "planted", "messages": MESSAGES, "stream": True}


@pytest.mark.slow
def test_a_log_that_cannot_be_written_fails_no_request(
    gateway: Callable[..., Any], upstream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = gateway(upstreams=(upstream().url,))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("radmoe.serve.telemetry.say", full)
    assert made.ask().status_code == 200


CHILD = """
import logging, sys, threading, warnings
from radmoe.serve import run
from radmoe.serve.settings import Settings

def ready(port):
    print(port, flush=True)
    warnings.warn("an old call")
    logging.getLogger("transformers.models").warning("a %s of weights", "lack")
    logging.getLogger("httpx").error("no %d", "number")
    try:
        1 / 0
    except ZeroDivisionError:
        logging.getLogger("other").exception("it broke")
    threading.Thread(target=lambda: 1 / 0).start()

import transformers
run.serve(Settings(upstreams=(sys.argv[1],), model=sys.argv[2], port=0), ready=ready)
"""


@contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_every_line_of_the_process_is_json(upstream: Any, served_checkpoint: Path, tmp_path: Path) -> None:
    """Those of uvicorn, of libraries, of warnings and of threads that fail, too."""
    log = tmp_path / "log"
    with log.open("wb") as errors:
        command = [sys.executable, "-c", CHILD, upstream().url, str(served_checkpoint)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=os.environ)
    assert process.stdout is not None
    with process.stdout, ending(process):
        port = int(process.stdout.readline())
        for data in (b"\x00\x01\r\n\r\n", b"GET /\r\n\r\n" * 3, b"GET / HTTP/1.1\r\nA b: c\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), 20) as connection:
                connection.sendall(data)
                assert connection.recv(1 << 16).startswith(b"HTTP/1.1 400")
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        assert httpx.get(f"http://127.0.0.1:{port}/health", headers=upgrade, timeout=20).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    text = json.dumps(lines)
    for words in ("Invalid HTTP request", "an old call", "a lack of weights", "ZeroDivisionError", "no %d", "it broke"):
        assert words in text, words
    assert all({"time", "level", "event"} <= set(line) for line in lines)
