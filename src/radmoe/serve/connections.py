"""Limits on connections: how many there may be, and how long each may be idle or leave an answer unread."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from radmoe.serve.telemetry import log

BACKLOG = 64  # connections that are accepted in one go
# without a request: until its headers are complete, whether the connection is new or was used before
IDLE_SECONDS = 30.0
STALLED_SECONDS = 60.0  # in which what was written is not taken to its end
_MOST = 1024  # connections
_FILES = 128  # descriptors for everything else: the log, a pool, libraries, a burst of connections that are refused
_REFUSED, _LAST_SECONDS = 16, 1.0  # connections that are refused and still there, and how long
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    b'{"error": {"message": "this gateway has no connection left: come back later", "type": "server_error", '
    b'"param": null, "code": "too_many_connections"}}'
)


def most_connections() -> int:
    """How many connections there may be: half of the descriptors, as a request may need another to an upstream."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = 1 << 20 if soft == resource.RLIM_INFINITY else soft
    return max(8, min(_MOST, (files - _FILES) // 2))


class Connection(H11Protocol):
    """One connection. A new one takes the place of the oldest without a request, else of the oldest that still sends its body.

    Where all have sent theirs, the new one is refused.
    """

    most = _MOST
    refused = 0  # connections that were told so and are still there

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since = time.monotonic()  # when this connection began to wait for a request
        self._unread_since: float | None = None  # when it began to have bytes that the client did not take
        self._refused = False
        if len(self.connections) <= self.most:
            return
        others = [other for other in self.connections if isinstance(other, Connection) and other is not self]
        waiting = [other for other in others if other.idle] or [other for other in others if other.sending]
        if waiting:
            min(waiting, key=lambda other: other.since).drop()
        else:
            self._refuse()

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def on_response_complete(self) -> None:
        self.since = time.monotonic()
        super().on_response_complete()

    @property
    def idle(self) -> bool:
        """Whether no request is under way: none has come, its headers are not complete, or its answer has been given."""
        return self.cycle is None or bool(self.cycle.response_complete)

    @property
    def sending(self) -> bool:
        """Whether a request is under way whose body has not come to its end."""
        return self.cycle is not None and bool(self.cycle.more_body) and not self.cycle.response_started

    def late(self, now: float) -> bool:
        """Whether the client takes too long to send its next request, or to read an answer."""
        if not self.transport.get_write_buffer_size():
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        unread = self._unread_since is not None and now - self._unread_since > STALLED_SECONDS
        return unread or (self.idle and self._unread_since is None and now - self.since > IDLE_SECONDS)

    def drop(self) -> None:
        """End the connection at once."""
        self.connections.discard(self)
        self.transport.abort()

    def _refuse(self) -> None:
        """Answer that there are too many connections, and close a second later, so that a client that is still sending sees it."""
        self.connections.discard(self)
        self._refused = True
        self.transport.write(_FULL)
        self.transport.write_eof()
        if self.refused >= _REFUSED:
            self.transport.abort()
            return
        type(self).refused += 1
        self.loop.call_later(_LAST_SECONDS, self._end)

    def _end(self) -> None:
        type(self).refused -= 1
        self.transport.abort()


def sweep(connections: Iterable[Any]) -> None:
    """End the connections whose clients have taken too long."""
    now = time.monotonic()
    late = [each for each in connections if isinstance(each, Connection) and each.late(now)]
    for connection in late:
        connection.drop()
    if late:
        log("connections", level="warning", ended=len(late), detail="they were idle, or did not take their answers")


class Complaints:
    """Logs the event loop's own errors, each message at most once in ten seconds."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds, self._last = seconds, dict[str, float]()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message, now = str(context.get("message"))[:200], time.monotonic()
        if now - self._last.get(message, -self._seconds) >= self._seconds:
            self._last = {text: at for text, at in self._last.items() if now - at < self._seconds} | {message: now}
            log("error", level="error", detail=f"{message}: {context.get('exception')!r}")
