"""Attacks on a gateway in a process of its own: fuzzed requests, slow clients, upstreams that misbehave."""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

MESSAGES = [{"role": "user", "content": "What is 2 plus 3?"}]
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
DEADLINE = 10.0  # seconds that a request may take
_FIELDS = (
    *("model", "messages", "prompt", "n", "stream", "stream_options", "max_tokens", "max_completion_tokens"),
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "chat_template_kwargs", "reasoning_effort", "radmoe"),
    *("frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "logprobs", "top_logprobs"),
    *("tools", "tool_choice", "response_format", "user", "echo", "best_of", "suffix", "metadata", "nobody knows"),
)
_TEMPLATE = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        64,
        65,
        1 << 31,
        1 << 63,
        -(1 << 63),
        10**400,
        0.5,
        1e308,
        -1e308,
        1e-320,
        5e-324,
    ),
    *(
        "",
        "x",
        "\ud800",
        "\x00",
        "x" * 5000,
        "None",
        "</think>",
        "{{ 7 * 7 }}",
        _TEMPLATE,
        "tiny#rad-3",
        "tiny#rad-999999999",
    ),
    *([], [[]], [None], [1, 2, 3], [10**30], [-1], ["a", "b"], [{}], [["x"]], {}, {"x": 1}, {"n": 3}, {"n": 10**9}),
    *(
        {"kind": "math", "n": 2},
        {"preset": "best+text", "n": 2},
        {"adaptive": True, "n": 4},
        {"fallback": "likelihood", "n": 2},
    ),
    *({"chat_template": _TEMPLATE}, {"enable_thinking": [1]}, {"include_usage": True}, {"type": "json_object"}),
    *(
        [{"role": "user", "content": None}],
        [{"role": "\ud800", "content": ""}],
        [{"content": "x"}],
        [{"role": 3, "content": [3]}],
    ),
    *([{"role": "system", "content": [{"type": "image_url"}]}], [{"role": "user", "content": "word " * 20_000}]),
)
_HEADERS: tuple[dict[str, str], ...] = (
    *({}, {}, {}, {}, {}, {"Host": "evil.example"}, {"Origin": "null"}, {"Content-Type": "text/plain"}),
    *({"Content-Encoding": "gzip"}, {"Expect": "100-continue"}, {"Accept": "\xff"}, {"Authorization": "Bearer x"}),
)


_SLOW = (b"", b"GET /hea", HEAD + b"X-", HEAD + b"Content-Length: 4000000\r\n\r\n" + b"x" * 3_000_000)


class Served(NamedTuple):
    """A gateway's address, and its process."""

    url: str
    pid: int

    @property
    def peak(self) -> int:
        """The most bytes that the process had in memory."""
        return int(re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())[0]) << 10


@contextmanager
def serving(*options: object) -> Iterator[Served]:
    """`radmoe serve` with these options; it must end well."""
    command = [sys.executable, "-m", "radmoe", "serve", "--port", "0", "--deadline", str(DEADLINE), *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    with process.stdout:
        try:
            line = process.stdout.readline().decode()
            yield Served(line.split()[3].rstrip(",").removesuffix("/v1"), process.pid)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


def fuzzed(seed: int) -> tuple[str, dict[str, str], bytes]:
    """A route, headers and a body that are wrong somewhere, or nearly right."""
    chance = random.Random(seed)
    chat = chance.random() < 0.7
    body: dict[str, Any] = {"model": chance.choice(("tiny", "tiny#rad-2")), "max_tokens": 3}
    body |= {"messages": MESSAGES} if chat else {"prompt": "So"}
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        body[chance.choice(_FIELDS)] = chance.choice(_VALUES)
    data = json.dumps(body).encode()
    if chance.random() < 0.2:  # bytes that are not JSON any more
        at = chance.randrange(len(data))
        data = data[:at] + chance.randbytes(chance.randrange(3)) + data[at + chance.randrange(4) :]
    headers = {"Content-Type": "application/json"} | chance.choice(_HEADERS)
    return f"/v1/{'chat/' if chat else ''}completions", headers, data


def ask_fuzzed(client: httpx.Client, url: str, seed: int) -> tuple[str, float]:
    """What became of a fuzzed request, in the words of the table of attacks, and its seconds."""
    path, headers, data = fuzzed(seed)
    began = time.monotonic()
    try:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        answer = client.post(url + path, content=data, headers=raw)
    except httpx.HTTPError as error:
        return f"HANG or CRASH of {path} {data[:200]!r}: {error!r}", time.monotonic() - began
    spent = time.monotonic() - began
    if answer.status_code >= 500 or "internal_error" in answer.text:
        return f"CRASH {answer.status_code} {path} {data[:300]!r}: {answer.text[:200]}", spent
    if spent > DEADLINE + 2:
        return f"HANG {spent:.0f} s {path} {data[:300]!r}", spent
    return "well" if answer.status_code == 200 else f"refused {answer.status_code}", spent


def slow_clients(url: str, count: int, sent: Sequence[bytes] = _SLOW) -> ExitStack:
    """So many connections, each of which sends one of these: nothing, half of its headers, half of a body."""
    held = ExitStack()
    host, port = url.removeprefix("http://").split(":")
    for i in range(count):
        connection = held.enter_context(socket.create_connection((host, int(port)), 5))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.settimeout(5)
        try:
            connection.sendall(sent[i % len(sent)])
        except OSError:
            continue  # refused meanwhile
    return held


def attacks(
    checkpoint: Path, tiny: Path, *, requests: int = 1500, clients: int = 30
) -> Iterator[tuple[str, str, float, int]]:
    """Name, outcome, seconds and peak bytes of every attack. The outcome begins with HANG or CRASH where it had success."""
    from planted_upstream import FAULTS, PlantedUpstream

    with serving("--model", tiny, "--threads", 1) as made, httpx.Client(timeout=DEADLINE + 5) as client:
        for seed in range(requests):
            line, seconds = ask_fuzzed(client, made.url, seed)
            yield f"fuzzed request {seed}", line, seconds, made.peak
    for routing in ("plugin", "stock", "none"):
        with ExitStack() as stack:
            server = stack.enter_context(PlantedUpstream(checkpoint, routing=routing, context=1 << 31).running())
            made = stack.enter_context(serving("--upstream", server.url, "--model", checkpoint, "--retries", 0))
            alone = _honest(made.url, routing)
            for fault in FAULTS:
                server.fault = fault
                for model, stream in (("planted", True), ("planted#rad-8", False)):
                    began = time.monotonic()
                    body = {"model": model, "messages": MESSAGES, "stream": stream}
                    extra = {"radmoe": {"fallback": "likelihood"}} if "#" in model else {}
                    try:
                        status, text = end_of_answer(f"{made.url}/v1/chat/completions", body | extra)
                        seconds = time.monotonic() - began
                        line = "well" if status == 200 and '"error"' not in text else f"refused {status}"
                        if "internal_error" in text or seconds > DEADLINE + 2:
                            line = f"HANG or CRASH {status} after {seconds:.1f} s: {text[-200:]}"
                    except httpx.HTTPError as error:
                        seconds, line = time.monotonic() - began, f"HANG or CRASH: {error!r}"
                    yield f"upstream, {fault}, {routing}, {model}", line, seconds, made.peak
            server.fault = None
            end = time.monotonic() + DEADLINE
            while httpx.get(f"{made.url}/health", timeout=5).status_code != 200 and time.monotonic() < end:
                time.sleep(0.1)  # it is looked at every five seconds
            for name, count, sent in (
                (f"{clients} slow clients", clients, _SLOW),
                (f"{5 * clients} unfinished bodies", 5 * clients, _SLOW[-1:]),
            ):
                with slow_clients(made.url, count, sent):
                    seconds = _honest(made.url, routing)
                    line = f"{'well' if seconds < 2 * alone + 0.2 else 'HANG'}: {seconds:.2f} s, alone {alone:.2f} s"
                    yield f"{name}, {routing}", line, seconds, made.peak


def end_of_answer(url: str, body: dict[str, Any]) -> tuple[int, str]:
    """The status of an answer and its last 1,000 bytes. It may have gigabytes, which nobody should keep."""
    end = b""
    with httpx.stream("POST", url, json=body, timeout=DEADLINE + 5) as answer:
        for part in answer.iter_raw():
            end = (end + part)[-1000:] if len(part) < 1000 else part[-1000:]
    return answer.status_code, end.decode("utf-8", "replace")


def _honest(url: str, routing: str) -> float:
    """The median seconds of honest requests."""
    extra = {"radmoe": {"fallback": "likelihood"}} if routing == "none" else {}
    took = []
    for _ in range(5):
        began = time.monotonic()
        body = {"model": "planted#rad-8", "messages": MESSAGES} | extra
        httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30).raise_for_status()
        took.append(time.monotonic() - began)
    return sorted(took)[2]
