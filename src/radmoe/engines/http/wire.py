"""One server: requests with retries and time limits, and a way to end all waiting."""

from __future__ import annotations

import json
import random
import socket
import threading
import weakref
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from radmoe.errors import EngineError, InputError

BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses after which a request is sent again
_LONGEST_WAIT = 30.0


class Refused(EngineError):
    """The server answered with an error that sending the request again would not change; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Server:
    """A server's address, and its connections.

    A request may take `timeout` seconds. When the server is busy or the connection breaks, it is sent again, up to
    `retries` times: `backoff` seconds later, then twice as long each time, or when the server's Retry-After says.
    Threads may share one server. `close` ends all waiting, and `reopen` allows requests again.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 600.0,
        retries: int = 5,
        backoff: float = 0.5,
        api_key: str | None = None,
    ) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            self._host, self._port = parts.hostname, parts.port
        except ValueError as error:
            raise InputError(f"{url!r} is no address of a server ({error}): use http://localhost:8000") from None
        if parts.scheme not in ("http", "https") or not self._host:
            raise InputError(f"{url!r} is no address of a server: use http://localhost:8000")
        if timeout <= 0 or retries < 0 or backoff < 0:
            raise InputError(f"timeout {timeout}, retries {retries} and backoff {backoff} must not be negative")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"
        self._base = urlsplit(self.url).path
        self._secure = parts.scheme == "https"
        self._timeout, self._retries, self._backoff = timeout, retries, backoff
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._lock = threading.Lock()
        self._busy: set[HTTPConnection] = set()
        self._idle: list[HTTPConnection] = []  # connections that may be used again
        self._closed = threading.Event()
        weakref.finalize(self, _close, self._idle)

    def get(self, path: str) -> Any:
        """The JSON that a path answers to a GET request."""
        return self._json(path, self.fetch("GET", path))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON that a path answers to a POST request with a JSON body."""
        return self._json(path, self.fetch("POST", path, body))

    def fetch(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        """The bytes that a path answers; the request is sent again where the server is busy or the connection breaks."""
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(self._retries + 1):
            wait = self._backoff * 2**attempt * (1 + random.random() / 4)
            try:
                status, answer, after = self._once(method, path, data)
            except TimeoutError:
                trouble = (
                    f"{self.url}{path} did not answer in {self._timeout:g} s: raise the time limit, or ask for less"
                )
            except (OSError, HTTPException) as error:
                trouble = f"no connection to {self.url}{path} ({_reason(error)}): is the server running there?"
            else:
                if status < 300:
                    return answer
                refusal = f"{self.url}{path} answered {status}: {_message(answer)}"
                if status not in BUSY:
                    raise Refused(status, refusal)
                trouble = f"{refusal} (asked {attempt + 1} times)"
                wait = after if after is not None else wait
            if attempt == self._retries or self._closed.wait(min(wait, _LONGEST_WAIT)) or self._closed.is_set():
                raise EngineError(trouble)
        raise AssertionError("the loop above ends by itself")

    def reopen(self) -> None:
        """Allow requests again after `close`."""
        self._closed.clear()

    def close(self) -> None:
        """Close every connection; a thread that waits for an answer gets an error."""
        self._closed.set()
        with self._lock:
            for connection in self._busy:
                if connection.sock is not None:
                    with suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)
        _close(self._idle)

    def _once(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes, float | None]:
        """Send a request; its status, its body, and the seconds after which the server wants to be asked again."""
        connection, reusable = self._take(), False
        try:
            connection.request(method, self._base + path, data, self._headers)
            answer = connection.getresponse()
            body = answer.read()
            reusable = not answer.will_close and not self._closed.is_set()
        finally:
            with self._lock:
                self._busy.discard(connection)
            if reusable:
                self._idle.append(connection)
            else:
                connection.close()
        after = answer.headers.get("Retry-After", "")
        return answer.status, body, float(after) if after.isdecimal() else None

    def _take(self) -> HTTPConnection:
        try:
            connection = self._idle.pop()
        except IndexError:
            kind = HTTPSConnection if self._secure else HTTPConnection
            assert self._host is not None
            connection = kind(self._host, self._port, timeout=self._timeout)
        with self._lock:
            self._busy.add(connection)
        return connection

    def _json(self, path: str, answer: bytes) -> Any:
        try:
            return json.loads(answer)
        except ValueError:
            raise EngineError(
                f"{self.url}{path} answered {answer[:40]!r}, not JSON: is this the address of the model's server?"
            ) from None


def _close(idle: list[HTTPConnection]) -> None:
    while idle:
        with suppress(IndexError):
            idle.pop().close()


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__).splitlines()[0]


def _message(answer: bytes) -> str:
    """The message in the body of an error, as one line; vLLM, SGLang and FastAPI put it in different places."""
    text = answer.decode("utf-8", "replace").strip()
    try:
        body = json.loads(text)
    except ValueError:
        return text.splitlines()[0][:200] if text else "nothing"
    while isinstance(body, dict):
        body = next((body[key] for key in ("error", "message", "detail") if key in body), str(body))
    return " ".join(str(body).split())[:300]
