"""Clients that open connections and send or take nothing: they cost little, end soon, and others are served."""

from __future__ import annotations

import gc
import json
import resource
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from running_gateway import JSON, MESSAGES, until

pytestmark = pytest.mark.slow

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = {"model": "planted#rad-4", "messages": MESSAGES}


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    return socket.create_connection((host, int(port)), 20)


def ends_within(connection: socket.socket, seconds: float) -> bytes:
    """What a connection says until it is closed from the other side; an error where it stays open."""
    connection.settimeout(seconds)
    said = b""
    try:
        while part := connection.recv(1 << 16):
            said += part
    except ConnectionResetError:
        pass
    return said


@pytest.fixture
def few_files(upstream: Any, served_checkpoint: Path, tmp_path: Path) -> Iterator[tuple[str, Path, int]]:
    """A gateway in a process of its own that may open 256 files; its address, its log and its process."""
    call = [sys.executable, "-m", "radmoe", "serve", "--port", "0", "--upstream", upstream().url]
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*call, "--model", str(served_checkpoint)],
            stdout=subprocess.PIPE,
            stderr=errors,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),
        )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield process.stdout.readline().split()[3].decode().rstrip(","), log, process.pid
        finally:
            process.terminate()
            assert process.wait(60) == 0


def test_idle_connections_beyond_the_descriptors_keep_nobody_out(few_files: tuple[str, Path, int]) -> None:
    """300 of them at 256 descriptors served nobody, and wrote 15 MB of tracebacks."""
    url, log, _ = few_files
    with ExitStack() as held:
        for i in range(300):
            connection = held.enter_context(connect(url))
            if i % 3 == 1:
                connection.sendall(b"GET /health HT")
            if i % 3 == 2:
                connection.sendall(HEAD + b"X-")
        for _ in range(5):
            assert httpx.post(f"{url}/chat/completions", json=BODY, timeout=20).status_code == 200
    text = log.read_text()
    assert len(text) < 20_000
    assert "Traceback" not in text
    assert all(json.loads(line)["event"] for line in text.splitlines())


@pytest.mark.parametrize("sent", [b"", b"GET /hea", HEAD + b"X-Name: ", HEAD[:-2]])
def test_headers_must_come_in_time(
    gateway: Callable[..., Any], upstream: Any, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Also where they drip: every byte put the end off before."""
    monkeypatch.setattr("radmoe.serve.connections.IDLE_SECONDS", 0.5)
    made = gateway(upstreams=(upstream().url,))
    with connect(made.url) as connection:
        connection.sendall(sent)
        end = time.monotonic() + 30
        try:
            while time.monotonic() < end:
                connection.sendall(b"x" if sent else b"")
                time.sleep(0.1)
                if not sent:
                    break
            assert sent == b""
        except OSError:
            assert time.monotonic() < end
        else:
            assert ends_within(connection, 30) == b""


def test_a_used_connection_that_drips_ends_too(
    gateway: Callable[..., Any], upstream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radmoe.serve.connections.IDLE_SECONDS", 2.0)
    made = gateway(upstreams=(upstream().url,))
    with connect(made.url) as connection, pytest.raises(OSError, match=r"pipe|reset"):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in connection.recv(1 << 16)
        for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 250:
            connection.sendall(bytes([byte]))
            time.sleep(0.1)


@pytest.mark.parametrize("length", [b"Content-Length: 1000\r\n", b"Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize("limit", ["deadline", "body"])
def test_a_body_must_come_in_time_and_counts_as_waiting(
    gateway: Callable[..., Any], upstream: Any, monkeypatch: pytest.MonkeyPatch, length: bytes, limit: str
) -> None:
    if limit == "body":
        monkeypatch.setattr("radmoe.serve.app._BODY_SECONDS", 3.0)
    made = gateway(upstreams=(upstream().url,), deadline=3.0 if limit == "deadline" else 60.0)
    with connect(made.url) as connection:
        connection.sendall(HEAD + length + b"\r\n")
        until(lambda: made.client.get("/health").json()["waiting"] == 1, seconds=2.9)
        answer = ends_within(connection, 30)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"body_timeout" in answer
    assert made.client.get("/health").json()["waiting"] == 0
    assert 'status="408"' in made.client.get("/metrics").text


def test_bodies_that_are_being_read_fill_the_queue_and_make_room_for_whole_ones(
    gateway: Callable[..., Any], upstream: Any
) -> None:
    """As many as there are places, all of which they kept for a minute, so that nobody else was served."""
    made = gateway(upstreams=(upstream().url,), running=1, waiting=2)
    with ExitStack() as held:
        slow = [held.enter_context(connect(made.url)) for _ in range(4)]
        for sent, connection in enumerate(slow):
            connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\nx")
            until(lambda n=sent + 1: made.client.get("/health").json()["waiting"] == min(n, 3))
        assert b'"queue_full"' in ends_within(slow[0], 10)
        for _ in range(4):
            assert made.ask().status_code == 200
        assert b'"queue_full"' in ends_within(slow[1], 10)


def test_unfinished_bodies_at_the_limit_of_connections_make_room_too(
    gateway: Callable[..., Any], upstream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radmoe.serve.connections._MOST", 8)
    made = gateway(upstreams=(upstream().url,))
    with ExitStack() as held:
        for _ in range(9):
            held.enter_context(connect(made.url)).sendall(HEAD + b"Content-Length: 1000\r\n\r\nx")
        assert httpx.post(f"{made.url}/v1/chat/completions", json=BODY, timeout=20).status_code == 200


def test_unfinished_bodies_hold_little_and_let_others_through(gateway: Callable[..., Any], upstream: Any) -> None:
    """200 of nearly 4 MiB held 925 MB for good; what was refused of a body was held on with the reason.

    What is measured is what Python allocates: memory of the process has holes, more of them on a busy machine.
    """
    made = gateway(upstreams=(upstream().url,), largest_body=2 << 20)
    assert made.ask().status_code == 200  # what it loads, it loads now
    part = b"x" * (1 << 16)
    with ExitStack() as held:
        tracemalloc.start()
        held.callback(tracemalloc.stop)
        slow = [held.enter_context(connect(made.url)) for _ in range(60)]
        for connection in slow:
            connection.sendall(HEAD + b"Content-Length: 2000000\r\n\r\n")
        for _ in range(29):  # of each in turn, so that all of them grow together
            for connection in slow:
                with suppress(OSError):  # refused meanwhile
                    connection.sendall(part)
        until(lambda: 8 < made.client.get("/health").json()["waiting"] < 30)
        assert made.ask(messages=[{"role": "user", "content": "word " * 30_000}]).status_code == 200
        _, peak = tracemalloc.get_traced_memory()
    assert (
        peak < 85_000_000
    )  # of 114 MB: 32 MiB of bodies, and 3 times 256 KiB for each connection while it is read from


@pytest.mark.parametrize("length", [b"Content-Length: 4000000\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_that_is_refused_is_not_kept(
    gateway: Callable[..., Any], upstream: Any, monkeypatch: pytest.MonkeyPatch, length: bytes
) -> None:
    monkeypatch.setattr("radmoe.serve.app._BODY_SECONDS", 3.0)
    made = gateway(upstreams=(upstream().url,))
    assert made.ask().status_code == 200
    body = b"x" * 3_900_000 if b"Length" in length else b"%x\r\n%s\r\n" % (3_900_000, b"x" * 3_900_000)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(2):
            with connect(made.url) as connection:
                connection.sendall(HEAD + length + b"\r\n" + body)
                assert ends_within(connection, 30).startswith(b"HTTP/1.1 408")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held < 3_000_000  # of 7.8 MB


def test_an_answer_that_nobody_takes_ends_with_its_connection(
    gateway: Callable[..., Any], upstream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radmoe.serve.connections.STALLED_SECONDS", 1.0)
    server = upstream(fault="endless stream")
    made = gateway(upstreams=(server.url,))
    body = json.dumps({"model": "planted", "messages": MESSAGES, "stream": True}).encode()
    with connect(made.url) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: server.sent > 0)
        until(lambda: made.client.get("/health").json()["running"] == 0)
    assert server.sent < 64 << 20


def test_the_oldest_connection_without_a_request_makes_room(
    gateway: Callable[..., Any], upstream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radmoe.serve.connections._MOST", 8)
    server = upstream(delay=5.0)
    made = gateway(upstreams=(server.url,))
    with ExitStack() as held:
        idle = [held.enter_context(connect(made.url)) for _ in range(8)]
        made.client.get("/health")
        assert ends_within(idle[0], 20) == b""
        body = json.dumps(BODY).encode()
        busy = [held.enter_context(connect(made.url)) for _ in range(8)]
        for connection in busy:
            connection.sendall(HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        until(lambda: server.under_way == 8, seconds=4.5)
        assert httpx.get(f"{made.url}/health", timeout=5).status_code == 503
        assert all(b"200 OK" in ends_within(connection, 20) for connection in busy)
    assert made.client.get("/health", headers=JSON).status_code == 200
