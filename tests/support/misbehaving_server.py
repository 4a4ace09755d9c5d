"""A fake server that does one thing wrong, and what a server may send instead of a right answer."""

from __future__ import annotations

import base64
import copy
import io
import json
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np

import tiny_moe
from fake_server import FakeServer

RIGHT = "the rollout of an undisturbed server"
MODELS, TOKENIZE, VERSION, STATUS = "/v1/models", "/tokenize", "/version", "/v1/radmoe/status"
COMPLETIONS, GENERATE, ROUTING = "/v1/completions", "/generate", "/v1/radmoe/routing"
PROMPT, TOKENS, EXPERTS = [5, 6, 7, 8], 6, 8
HANG_SECONDS = 1.0  # the deadline where a server makes its client wait

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
