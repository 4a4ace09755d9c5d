"""What a server may do wrong, as a table of named cases on real sockets, and a function that runs one.

`CASES` maps names to cases; `run_case(name)` opens an engine at a server that misbehaves so, asks it for one rollout,
and returns what came of it in one line, the seconds it took and the bytes by which memory grew at most. A case in which
the server is odd but right ends with `RIGHT`, the same rollout that an undisturbed server gives.
"""

from __future__ import annotations

import base64
import copy
import gzip
import io
import json
import re
import resource
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tiny_moe
from radmoe.engines.base import Completion, Sampling
from radmoe.engines.http import HttpEngine, SglangHttpEngine, VllmHttpEngine
from radmoe.errors import EngineError

sys.path.insert(0, str(Path(__file__).parent / "engines"))  # the fake server is there
from fake_server import FakeServer

RIGHT = "the rollout of an undisturbed server"
MODELS, TOKENIZE, VERSION, STATUS = "/v1/models", "/tokenize", "/version", "/v1/radmoe/status"
COMPLETIONS, GENERATE, ROUTING = "/v1/completions", "/generate", "/v1/radmoe/routing"
PROMPT, TOKENS, EXPERTS = [5, 6, 7, 8], 6, 8
HANG_SECONDS = 1.0  # the deadline where a server makes its client wait
CLIENTS: dict[str, type[HttpEngine]] = {"vllm": VllmHttpEngine, "sglang": SglangHttpEngine}

Connection = BaseHTTPRequestHandler
Act = Callable[[Connection, bytes, threading.Event], None]  # the connection, the right body, and the end of the case


@dataclass(frozen=True)
class Case:
    """One misbehaviour: where it happens, what is done there, and a pattern of the line that must come of it."""

    name: str
    line: str
    act: Act
    path: str = COMPLETIONS
    kind: str = "vllm"
    plugin: bool = False
    probe: bool = True  # whether the engine asks for two tokens first; without, the first rollout meets the case
    seconds: float = 10.0  # the engine's time limit
    url: str | None = None  # another address than the server's


class Outcome(NamedTuple):
    """What came of a case."""

    line: str
    seconds: float
    peak_bytes: int


class Misbehaving(FakeServer):
    """A fake server that does what a case says on its path, and is right on all others."""

    def __init__(self, case: Case) -> None:
        super().__init__(tiny_moe.engine("qwen3-moe"), case.kind, plugin=case.plugin)
        self.case, self.over = case, threading.Event()

    def handle(self, request: BaseHTTPRequestHandler, data: bytes | None) -> None:
        if request.path != self.case.path:
            super().handle(request, data)
            return
        _, body = self.answer(request.path, None if data is None else json.loads(data))
        request.close_connection = True
        with suppress(OSError):
            self.case.act(request, body if isinstance(body, bytes) else json.dumps(body).encode(), self.over)


# -- what is sent ------------------------------------------------------------------------------------------------


def head(status: str = "200 OK", *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode("latin-1")


def plain(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    return head(status, f"Content-Length: {len(body)}", *headers) + body


def sends(data: bytes) -> Act:
    """These bytes, whatever was asked."""

    def act(connection: Connection, _body: bytes, _over: threading.Event) -> None:
        connection.wfile.write(data)

    return act


def sends_with(*headers: str, status: str = "200 OK", change: Callable[[bytes], bytes] = bytes) -> Act:
    """The right body, changed, under these headers."""

    def act(connection: Connection, body: bytes, _over: threading.Event) -> None:
        connection.wfile.write(plain(change(body), status, *headers))

    return act


def endless(begin: bytes, part: bytes, pause: float = 0.0) -> Act:
    """A beginning, and then the same part over and over."""

    def act(connection: Connection, _body: bytes, over: threading.Event) -> None:
        connection.wfile.write(begin)
        while not over.wait(pause) if pause else not over.is_set():
            connection.wfile.write(part)

    return act


def silent(begin: bytes = b"") -> Act:
    """A beginning, and then nothing."""

    def act(connection: Connection, _body: bytes, over: threading.Event) -> None:
        connection.wfile.write(begin)
        over.wait()

    return act


def drips(connection: Connection, body: bytes, over: threading.Event) -> None:
    """The right answer, a byte at a time."""
    for byte in plain(body):
        if over.wait(0.1):
            return
        connection.wfile.write(bytes([byte]))


def resets(connection: Connection, _body: bytes, _over: threading.Event) -> None:
    connection.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.connection.close()


def chunked(connection: Connection, body: bytes, _over: threading.Event) -> None:
    connection.wfile.write(head("200 OK", "Transfer-Encoding: chunked"))
    for at in range(0, len(body), 7):
        part = body[at : at + 7]
        connection.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
    connection.wfile.write(b"0\r\n\r\n")


class OnceThen:
    """One misbehaviour, and right answers from then on."""

    def __init__(self, first: Act) -> None:
        self.first = first

    def __call__(self, connection: Connection, body: bytes, over: threading.Event) -> None:
        first, self.first = self.first, sends_with()
        first(connection, body, over)


# -- what is changed in a right answer ---------------------------------------------------------------------------

GONE = object()


def put(*where: str | int, value: Any) -> Callable[[bytes], bytes]:
    """The right answer with another value at a place; `GONE` takes the place away, and a function changes its value."""

    def change(body: bytes) -> bytes:
        answer = json.loads(body)
        if not where:
            return json.dumps(value(answer) if callable(value) else value).encode()
        part = answer
        for key in where[:-1]:
            part = part[key]
        if value is GONE:
            del part[where[-1]]
        else:
            part[where[-1]] = value(copy.deepcopy(part[where[-1]])) if callable(value) else value
        return json.dumps(answer).encode()

    return change


def npy(array: np.ndarray, **header: Any) -> str:
    """An .npy file in base64, of which the header may claim something else."""
    file = io.BytesIO()
    fields = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | header
    np.lib.format.write_array_header_1_0(file, fields)
    return base64.b64encode(file.getvalue() + array.tobytes()).decode()


def payload(columns: list[list[Any]], data: bytes = b"") -> bytes:
    """A payload of the plugin with this header."""
    header = json.dumps(columns).encode()
    return b"RADR" + struct.pack("<I", len(header)) + header + data


def rows(number: int = 0) -> np.ndarray:
    """Routing of so many rows, 3 layers and top-4."""
    return np.tile(np.arange(4, dtype=np.uint8), (number or len(PROMPT), 3, 1))


def _wire() -> Iterator[Case]:
    """What happens below HTTP's contents."""
    late = partial(Case, seconds=HANG_SECONDS)
    time_limit = r"did not answer in 1 s, to the last byte"
    broken, large = r"the connection to .* broke \(", r"answered .*bytes, where [\d,]+ suffice"
    yield late("never answers", time_limit, silent())
    yield late("never answers the first question", time_limit, silent(), MODELS)
    yield late("stops within the status line", time_limit, silent(b"HTTP/1.1 20"))
    yield late("stops within the headers", time_limit, silent(b"HTTP/1.1 200 OK\r\nContent-Le"))
    yield late("huge content length and no body", large, silent(head("200 OK", f"Content-Length: {10**15}")))
    yield late(
        "content length of a thousand digits",
        f"{broken}|{large}",
        silent(head("200 OK", f"Content-Length: {'9' * 1000}")),
    )
    yield late(
        "content length too large for the body", time_limit, silent(head("200 OK", "Content-Length: 999") + b"{")
    )
    yield late("drips its answer", time_limit, drips)
    yield late("drips the list of models", time_limit, drips, MODELS)
    yield late("drips spaces for ever", time_limit, endless(head("200 OK"), b" ", 0.05))
    yield late("drips headers for ever", time_limit, endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.05))
    yield late("drips one header for ever", time_limit, endless(b"HTTP/1.1 200 OK\r\nX: ", b"y", 0.05))
    yield late("drips an error", time_limit, endless(head("400 Bad Request"), b"e", 0.05))
    yield late("endless 100 Continue", time_limit, endless(b"", head("100 Continue")))
    yield late("endless 103 Early Hints, slowly", time_limit, endless(b"", head("103 Early Hints", "Link: x"), 0.05))
    yield late(
        "events for ever", time_limit, endless(head("200 OK", "Content-Type: text/event-stream"), b"data: {}\n\n", 0.05)
    )
    yield Case("endless headers", broken, endless(b"HTTP/1.1 200 OK\r\n", b"X-Filler: " + b"y" * 1000 + b"\r\n"))
    yield Case("one endless header", broken, endless(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65536))
    yield Case("endless status line", broken, endless(b"HTTP/1.1 200 ", b"O" * 65536))
    yield Case("endless body", large, endless(head("200 OK"), b" " * 65536))
    yield Case("endless body of models", large, endless(head("200 OK"), b" " * 65536), MODELS)
    yield Case("endless JSON", large, endless(head("200 OK") + b"[", b"[]," * 20000))
    yield Case("endless text", large, endless(head("200 OK") + b'{"choices": "', b"a" * 65536))
    yield Case(
        "endless chunks",
        large,
        endless(head("200 OK", "Transfer-Encoding: chunked"), b"10000\r\n" + b" " * 65536 + b"\r\n"),
    )
    yield Case(
        "endless chunk extension", broken, endless(head("200 OK", "Transfer-Encoding: chunked") + b"1;", b"x" * 65536)
    )
    yield Case(
        "a chunk of 2^60 bytes",
        large,
        endless(head("200 OK", "Transfer-Encoding: chunked") + b"1000000000000000\r\n", b" " * 65536),
    )
    yield Case("chunked rubbish", broken, sends(head("200 OK", "Transfer-Encoding: chunked") + b"zz\r\nrubbish\r\n"))
    yield Case("negative chunk", broken, sends(head("200 OK", "Transfer-Encoding: chunked") + b"-5\r\nhello\r\n"))
    yield Case("chunks that end early", broken, sends(head("200 OK", "Transfer-Encoding: chunked") + b"5\r\nhel"))
    yield Case("closes at once", broken, sends(b""))
    yield Case("closes at the first question", broken, sends(b""), MODELS)
    yield Case("resets", broken, resets)
    yield Case("closes within the headers", broken, sends(b"HTTP/1.1 200 OK\r\nContent-Le"))
    yield Case("closes within the body", broken, sends(head("200 OK", "Content-Length: 999") + b"{"))
    yield Case("content length too small", "not JSON as it should be", sends_with(change=lambda body: body[:40]))
    yield Case("negative content length", broken, sends(head("200 OK", "Content-Length: -1") + b"{}"))
    yield Case("content length in words", broken, sends(head("200 OK", "Content-Length: many") + b"{}"))
    yield Case("two content lengths", broken, sends(head("200 OK", "Content-Length: 2", "Content-Length: 3") + b"{}"))
    yield Case("speaks another protocol", broken, sends(b"SSH-2.0-OpenSSH_9.6\r\n"))
    yield Case("speaks HTTP/2", broken, sends(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00" * 18))
    yield Case("random bytes", broken, sends(bytes(np.random.default_rng(1).integers(0, 256, 5000, np.uint8))))
    yield Case("status of no number", broken, sends(b"HTTP/1.1 OK fine\r\n\r\n"))
    yield Case("status 999", "answered 999: nothing", sends(head("999 What", "Content-Length: 0")))
    yield Case("header with a zero byte", broken, sends(b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n"))
    yield Case(
        "gzip bomb",
        "in the encoding 'gzip', and none was asked for",
        sends(plain(gzip.compress(bytes(1 << 26)), "200 OK", "Content-Encoding: gzip")),
    )
    yield Case("unknown encoding", "in the encoding 'br, gzip'", sends_with("Content-Encoding: br, gzip"))
    yield Case("gzip without saying so", "not JSON as it should be", sends_with(change=gzip.compress))
    for name, target in {
        "to a file": "file:///etc/passwd",
        "to another port": "http://127.0.0.1:9/v1/completions",
        "to itself": COMPLETIONS,
        "to a host inside": "http://169.254.169.254/latest/meta-data",
        "to rubbish": "http://[::1",
    }.items():
        line = "Invalid URL in location header" if name == "to rubbish" else "a redirect to .*, and none is followed"
        yield Case(f"redirect {name}", line, sends_with(f"Location: {target}", status="307 Temporary Redirect"))
    yield Case(
        "redirect of the models",
        "a redirect to .*, and none is followed",
        sends_with("Location: /elsewhere", status="301 Moved"),
        MODELS,
    )
    yield Case("300 without a place", "answered 300", sends_with(status="300 Multiple Choices"))
    yield Case(
        "101 Switching Protocols",
        "answered 101|broke",
        sends(head("101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade")),
    )
    yield Case("204 No Content", "not JSON as it should be", sends(head("204 No Content")))
    for status in ("400 Bad Request", "401 Unauthorized", "404 Not Found", "418 Teapot", "500 Internal", "503 Busy"):
        yield Case(
            f"{status[:3]} with an endless body", f"answered {status[:3]}: e+", endless(head(status), b"e" * 65536)
        )
    yield Case("error of a million lines", "answered 400: line", sends(plain(b"line\n" * 10**6, "400 Bad Request")))
    yield Case("error in deep JSON", r"answered 400: \[", sends(plain(b"[" * 10**4, "400 Bad Request")))
    yield Case(
        "error of wrong types",
        r"answered 400: \[1, 2",
        sends(plain(b'{"error": {"message": [1, 2]}}', "400 Bad Request")),
    )
    yield Case("error that is no UTF-8", "answered 400: ", sends(plain(b"\xff\xfe\x00", "400 Bad Request")))
    yield Case("busy for ever", r"answered 503: .*\(asked 3 times\)", sends(plain(b"later", "503 Busy")))
    yield Case(
        "come back in a year",
        "it says to come back in 3.1536e",
        sends(plain(b"later", "429 Too Many", "Retry-After: 31536000")),
    )
    yield Case(
        "come back in 10^1000 seconds",
        "it says to come back in inf s",
        sends(plain(b"later", "429 Too Many", f"Retry-After: 1{'0' * 1000}")),
    )
    yield Case(
        "come back at a date",
        r"answered 429: later \(asked 3 times\)",
        sends(plain(b"later", "429 Too Many", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT")),
    )
    yield Case(
        "come back at -5",
        r"answered 503: later \(asked 3 times\)",
        sends(plain(b"later", "503 Busy", "Retry-After: -5")),
    )
    yield Case(
        "nobody listens", "no connection to .*: is the server running there", sends(b""), url="http://127.0.0.1:1"
    )
    yield Case(
        "no such host",
        "no connection to .*: is the server running there",
        sends(b""),
        url="http://nowhere.invalid:8000",
    )


def _odd_but_right() -> Iterator[Case]:
    """What is unusual and does no harm."""
    yield Case("in small chunks", RIGHT, chunked)
    yield Case("without a content length", RIGHT, lambda connection, body, _: connection.wfile.write(head() + body))
    yield Case("byte order mark", RIGHT, sends_with(change=lambda body: b"\xef\xbb\xbf" + body))
    yield Case("wrong content type", RIGHT, sends_with("Content-Type: image/png"))
    yield Case("no content type, many headers", RIGHT, sends_with(*(f"X-{i}: {'y' * 50}" for i in range(200))))
    yield Case(
        "early hints first",
        RIGHT,
        lambda connection, body, _: connection.wfile.write(head("103 Early Hints", "Link: x") + plain(body)),
    )
    yield Case("resets once", RIGHT, OnceThen(resets))
    yield Case("busy once", RIGHT, OnceThen(sends(plain(b"later", "503 Busy", "Retry-After: 0"))))
    yield Case("unknown fields", RIGHT, sends_with(change=put("choices", 0, "x", value={"deep": [[[]]]})))
    yield Case("a text that nobody reads", RIGHT, sends_with(change=put("choices", 0, "text", value=[1])))
    yield Case("no logprobs", RIGHT, sends_with(change=put("choices", 0, "logprobs", value=None)))
    yield Case(
        "null for the longest sequence", RIGHT, sends_with(change=put("data", 0, "max_model_len", value=None)), MODELS
    )
    yield Case("usage of wrong types", RIGHT, sends_with(change=put("usage", value="much")))
    yield Case("HTTP/1.0", RIGHT, lambda connection, body, _: connection.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + body))
    yield Case("cookies", RIGHT, sends_with("Set-Cookie: a=b; Max-Age=99999999"))
    yield Case("no version", RIGHT, sends(plain(b"no", "404 Not Found")), VERSION)
    yield Case("tokenises nothing", RIGHT, sends(plain(b"no", "404 Not Found")), TOKENIZE)


def _json() -> Iterator[Case]:
    """Bodies that are no JSON, or JSON that is not taken."""
    strict = "not JSON as it should be"
    for name, body in {
        "empty body": b"",
        "one space": b" ",
        "HTML": b"<!DOCTYPE html><html><body>It works!</body></html>",
        "half of a JSON": b'{"choices": [',
        "two JSONs": b"{}{}",
        "events": b'data: {"choices": []}\n\ndata: [DONE]\n\n',
        "no UTF-8": b'{"choices": "\xff\xfe"}',
        "UTF-16": '{"choices": []}'.encode("utf-16"),
        "zero bytes": bytes(1000),
        "NaN": b'{"choices": NaN}',
        "Infinity": b'{"choices": [-Infinity]}',
        "number of 5000 digits": b'{"choices": ' + b"9" * 5000 + b"}",
        "deep lists": b"[" * 90_000,
        "deep objects": b'{"a":' * 90_000,
        "key that comes twice": b'{"choices": [], "choices": []}',
        "control characters": b'{"choices": "\x1b[2J"}',
    }.items():
        yield Case(name, strict, sends(plain(body)))
        if name in ("HTML", "deep lists", "empty body", "NaN"):
            yield Case(f"{name} for models", strict, sends(plain(body)), MODELS)
    yield Case("very deep lists", r"JSON of up to [\d,]+ values", sends(plain(b"[" * 4_000_000)))
    yield Case(
        "a million empty lists", r"JSON of up to [\d,]+ values", sends(plain(b"[" + b"[]," * 1_000_000 + b"[]]"))
    )
    yield Case(
        "a million small objects for models",
        r"JSON of up to [\d,]+ values",
        sends(plain(b"[" + b"{}," * 1_000_000 + b"{}]")),
        MODELS,
    )


def _values(kind: str, path: str, places: dict[tuple[str | int, ...], list[Any]], **options: Any) -> Iterator[Case]:
    """Right answers in which one field is wrong; the line names the field."""
    for where, values in places.items():
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).lstrip(".")
        for value in values:
            written = (
                "gone"
                if value is GONE
                else json.dumps(value)
                if len(json.dumps(value)) < 40
                else f"{json.dumps(value)[:30]}..."
            )
            change = put(*where, value=value)
            line = re.escape(f"{path} answered ")
            yield Case(
                f"{kind} {path} {name or 'all'}: {written}", line, sends_with(change=change), path, kind, **options
            )


def _fields() -> Iterator[Case]:
    """Wrong types, counts and ranges in every field that is read."""
    yield from _values(
        "vllm",
        COMPLETIONS,
        {
            (): [None, [], "x", 1, {}],
            ("choices",): [None, [], {}, "x", 1, [None], [[]], [1], ["x"], GONE, [{}, {}]],
            ("choices", 0, "token_ids"): [
                [],
                {},
                "x",
                1,
                [None] * 6,
                ["1"] * 6,
                [1.0] * 6,
                [True] * 6,
                [[1]] * 6,
                [-1] * 6,
                [2**31] * 6,
                [2**63] * 6,
                [10**30] * 6,
                [1] * 7,
                list(range(100)),
                GONE,
            ],
            ("choices", 0, "finish_reason"): [None, 1, [], {}, True, "x" * 100_000, GONE],
            ("choices", 0, "logprobs"): [1, "x", [], {}, True],
            ("choices", 0, "logprobs", "token_logprobs"): [
                None,
                [],
                {},
                "x",
                [None] * 6,
                ["-1"] * 6,
                [[]] * 6,
                [True] * 6,
                [10**400] * 6,
                [-1.0] * 5,
                [-1.0] * 7,
                [-1e300] * 6,
                GONE,
            ],
            ("choices", 0, "logprobs", "top_logprobs"): [
                None,
                [],
                {},
                "x",
                [None] * 6,
                [[]] * 6,
                [{}] * 6,
                [{"a": None}] * 6,
                [{"a": "b"}] * 6,
                [{"a": -1.0}] * 5,
                [{"a": True}] * 6,
                GONE,
            ],
            ("choices", 0, "routed_experts"): [1, [], {}, True, [1, 2], "\ud800"],
        },
        probe=False,
    )
    for kind, path, where in (
        ("vllm", COMPLETIONS, ("choices", 0, "token_ids")),
        ("sglang", GENERATE, ("output_ids",)),
    ):
        beyond, line = put(*where, value=[515] * 2), "the server sampled token 515, the tokenizer of .* ends at 514"
        yield Case(f"{kind} token beyond the vocabulary", line, sends_with(change=beyond), path, kind)
    no_ids = sends_with(change=put("choices", 0, "token_ids", value=None))
    yield Case("vllm without token ids", "returns no token ids: it needs vLLM 0.11", no_ids)
    for reason in ("abort", "", "\x1b[2J", "x" * 900):
        change = put("choices", 0, "finish_reason", value=reason)
        yield Case(f"ended with {reason[:9]!r}", r"it ended with '.*' after 2 tokens", sends_with(change=change))
    yield from _values(
        "vllm",
        MODELS,
        {
            (): [None, [], "x", 1, {}],
            ("data",): [None, {}, "x", 1, [1], [None], [[]], ["x"], GONE],
            ("data", 0, "id"): [None, 1, [], {}, True, "x" * 5000, "\ud800", GONE],
            ("data", 0, "max_model_len"): ["x", 0, -1, 1.5, [], {}, True, 2**70],
        },
    )
    yield from _values(
        "vllm", TOKENIZE, {("tokens",): [None, 1, "x", {}, ["1"], [1.5], [None], [-1], [2**70], [True], GONE]}
    )
    yield from _values("vllm", VERSION, {(): [[], "x", 1], ("version",): [None, 1, [], {}, "x" * 5000, GONE]})
    yield from _values(
        "vllm",
        STATUS,
        {
            (): [None, [], "x"],
            ("layers",): [None, 0, -1, 1.5, "3", [], True, 2**70, GONE],
            ("experts",): [None, 0, "8", 2**70, GONE],
            ("top_k",): [None, 0, 9, "4", 2**70, GONE],
            ("captured_layers",): [None, [], [0, 0], [2, 1, 0], [-1], [3], ["0"], [True], {}, "x", 1, GONE],
            ("settings",): [None, [], "x", {}, GONE],
            ("settings", "window"): [None, 1, [], "x" * 5000, GONE],
            ("settings", "weights"): [None, 1, "yes", GONE],
        },
        plugin=True,
    )
    yield from _values(
        "sglang",
        GENERATE,
        {
            (): [None, [], "x", 1, {}, [{}]],
            ("meta_info",): [None, [], "x", 1, {}, GONE],
            ("output_ids",): [
                [],
                {},
                "x",
                1,
                ["1"] * 6,
                [1.5] * 6,
                [-1] * 6,
                [2**70] * 6,
                [1] * 5,
                [1] * 7,
                [True] * 6,
            ],
            ("meta_info", "output_token_logprobs"): [
                None,
                {},
                "x",
                1,
                [],
                [None] * 6,
                [[]] * 6,
                [[-1.0]] * 6,
                [["x", 1, None]] * 6,
                [[None, 1]] * 6,
                GONE,
            ],
            ("meta_info", "output_top_logprobs"): [
                None,
                {},
                "x",
                1,
                [],
                [None] * 6,
                [[]] * 6,
                [[None]] * 6,
                [[[]]] * 6,
                [[["x", 1]]] * 6,
                GONE,
            ],
            ("meta_info", "finish_reason"): [None, [], "x", 1, {}, {"type": None}, {"type": 1}, GONE],
            ("meta_info", "routed_experts"): [1, [], {}, True],
        },
        probe=False,
    )
    change = put("meta_info", "finish_reason", "type", value="abort")
    yield Case(
        "sglang ended with 'abort'", "it ended with 'abort' after", sends_with(change=change), GENERATE, "sglang"
    )


def _routing() -> Iterator[Case]:
    """Arrays that claim what they do not have."""
    good = rows()
    unreadable = r"characters of routing are no base64 \.npy"
    for name, text, line in [
        ("no base64", "%%%%", unreadable),
        ("empty", "", unreadable),
        ("base64 of nothing known", "AAAA", unreadable),
        ("half of a file", npy(good)[:100], unreadable),
        ("rows missing from the file", npy(good, shape=(99, 3, 4)), unreadable),
        ("10^15 rows", npy(good, shape=(10**15, 3, 4)), unreadable),
        ("10^30 rows", npy(good, shape=(10**30, 3, 4)), unreadable),
        ("negative rows", npy(good, shape=(-1, 3, 4)), unreadable),
        ("no rows", npy(good[:0]), "0 rows of routing for a prompt"),
        ("two dimensions", npy(good[0]), unreadable),
        ("40 dimensions", npy(good, shape=(1,) * 40), unreadable),
        ("floats", npy(good.astype(np.float64)), unreadable),
        ("objects", npy(good, descr="|O"), unreadable),
        ("texts", npy(good, descr="|S1"), unreadable),
        ("by columns", npy(good, fortran_order=True), unreadable),
        ("more rows than tokens", npy(rows(500)), "500 rows of routing for a prompt"),
        ("other layers", npy(rows(TOKENS)[:, :2]), "the server returns 2 layers"),
    ]:
        change = put("choices", 0, "routed_experts", value=text)
        yield Case(f"routing: {name}", line, sends_with(change=change), probe=False)
    yield Case(
        "routing: no expert of the model",
        r"outside \[0, 8\)",
        sends_with(change=put("choices", 0, "routed_experts", value=_shifted)),
    )
    for name, text in {"no base64": "%%%%", "odd bytes": "AAAA", "empty": "", "one number": "AAAAAA=="}.items():
        change = put("meta_info", "routed_experts", value=text)
        yield Case(f"sglang routing: {name}", "of routing are no", sends_with(change=change), GENERATE, "sglang")
    for name, data in {
        "empty": b"",
        "JSON": b'{"error": "no"}',
        "header of 4 GB": b"RADR" + struct.pack("<I", 2**32 - 1),
        "deep header": b"RADR" + struct.pack("<I", 90_000) + b"[" * 90_000,
        "header of wrong types": payload([[1, 2, 3]]),
        "columns of 10^30 rows": payload([["token", "<i4", [10**30]]]),
        "columns of 10^18 rows": payload([["ids", "<i2", [10**18, 3, 4]]]),
        "empty columns of huge sides": payload([["ids", "<i2", [0, 10**30, 4]]]),
        "objects": payload([["ids", "|O", [1, 3, 4]]]),
        "no columns": payload([]),
        "ids of floats": payload([["ids", "<f2", [1, 3, 4]]], bytes(24)),
    }.items():
        yield Case(f"plugin routing: {name}", "bytes are no routing payload", sends(plain(data)), ROUTING, plugin=True)
    yield Case(
        "plugin routing: endless",
        r"answered more than [\d,]+ bytes",
        endless(head(), bytes(65536)),
        ROUTING,
        plugin=True,
    )
    yield Case(
        "plugin routing: lost again and again",
        "answered 409: lost",
        sends(plain(b"lost", "409 Conflict")),
        ROUTING,
        plugin=True,
    )


def _shifted(text: str) -> str:
    """The right routing, with all experts beyond the last."""
    return npy(np.load(io.BytesIO(base64.b64decode(text))) + np.uint8(EXPERTS))


def _table() -> dict[str, Case]:
    cases = [*_wire(), *_odd_but_right(), *_json(), *_fields(), *_routing()]
    table = {case.name: case for case in cases}
    assert len(table) == len(cases), "two cases have one name"
    return table


CASES = _table()


@cache
def model() -> Path:
    """The directory of the model that is served."""
    return tiny_moe.save(Path(tempfile.mkdtemp(prefix="radmoe-served-")) / "tiny")


def sample(engine: HttpEngine) -> Completion:
    (done,) = engine.generate([PROMPT], 1, sampling=Sampling(max_tokens=TOKENS, seed=1), batch_size=1, keys=["a"])
    return done


@cache
def undisturbed(kind: str, plugin: bool) -> Completion:
    """The rollout of a server that is right; it also computes what the misbehaving ones send."""
    with FakeServer(tiny_moe.engine("qwen3-moe"), kind, plugin=plugin).running() as server:
        engine = CLIENTS[kind](server.url, model())
        try:
            return sample(engine)
        finally:
            engine.close()


def run_case(name: str) -> Outcome:
    """Run one case: the line that came of it, its seconds, and the bytes by which memory grew at most."""
    case = CASES[name]
    expected = undisturbed(case.kind, case.plugin)
    before = _fresh_peak()
    server = Misbehaving(case)
    with server.running():
        begun = time.monotonic()
        try:
            url = case.url or server.url
            engine = CLIENTS[case.kind](url, model(), timeout=case.seconds, retries=2, backoff=0.01, probe=case.probe)
            try:
                done = sample(engine)
            finally:
                engine.close()
            same = np.array_equal(done.rollout.token_ids, expected.rollout.token_ids)
            same = same and np.array_equal(done.rollout.expert_ids, expected.rollout.expert_ids)
            line = RIGHT if same else "another rollout than that of an undisturbed server"
        except EngineError as error:
            line = str(error)
        finally:
            server.over.set()
        return Outcome(line, time.monotonic() - begun, max(0, _peak() - before))


def _fresh_peak() -> int:
    """Begin to measure the peak of memory; the bytes in use now. Where the kernel cannot, the peak so far."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak()
    return _status("VmRSS")


def _peak() -> int:
    try:
        return _status("VmHWM")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
