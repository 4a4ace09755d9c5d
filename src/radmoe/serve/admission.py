"""The queue of requests: a limited number run, a limited number wait, and all others get status 429 with Retry-After."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from radmoe.serve.api_errors import ApiError
from radmoe.serve.backends import RequestProgress

_LONGEST_WAIT = 60.0  # seconds that a client is told to wait at most
_SHORT = 1 << 16  # bytes of a body that is always read
_LONG_BODIES = 16  # times the largest body, that all longer ones may have together while they are read
_WEIGHT = 0.1  # of the last request in the running mean of their durations


class Gate:
    """Lets `running` requests through at a time and keeps `waiting` more in their order.

    A request whose body is still being read has a place among those that wait, and is the first to lose it: where there is no
    place left, or bodies have too many bytes, the body that has been arriving for longest makes room.
    """

    def __init__(self, running: int, waiting: int) -> None:
        self._most, self._places = running, waiting
        self._free = asyncio.Semaphore(running)
        self.running = self._queued = 0
        self._arriving: dict[asyncio.Timeout, int] = {}  # bodies that are being read and their bytes, oldest first
        self._mean_seconds = 1.0

    @property
    def waiting(self) -> int:
        """The number of requests that wait for their turn or whose bodies are being read."""
        return self._queued + len(self._arriving)

    @asynccontextmanager
    async def arriving(self, most: int, seconds: float) -> AsyncIterator[Callable[[int], None]]:
        """Count a request as waiting while its body, of at most `most` bytes, is read.

        Gives what is to be called with the size that the body has so far. Raises TimeoutError after these seconds, and an ApiError
        of status 429 where the body must make room for others, or where no other can make room for it.
        """
        if self.running + self.waiting >= self._most + self._places and not self._make_room():
            raise self._full()
        try:
            async with asyncio.timeout(seconds) as limit:
                self._arriving[limit] = 0

                def grew(size: int) -> None:
                    if limit in self._arriving:
                        self._arriving[limit] = size
                        while sum(size for size in self._arriving.values() if size > _SHORT) > _LONG_BODIES * most:
                            self._make_room(_SHORT)
                    if limit not in self._arriving:
                        raise self._full()

                yield grew
        except TimeoutError:
            if limit not in self._arriving:
                raise self._full() from None
            raise
        finally:
            self._arriving.pop(limit, None)

    def _make_room(self, over: int = -1) -> bool:
        """Stop reading the oldest body of more than `over` bytes. Returns False if there is none."""
        for limit, size in self._arriving.items():
            if size > over:
                del self._arriving[limit]
                if not limit.expired():
                    limit.reschedule(0.0)  # at once
                return True
        return False

    @asynccontextmanager
    async def turn(self, progress: RequestProgress) -> AsyncIterator[None]:
        """Wait for a turn and hold it. Raises an ApiError of status 429 where the queue is full."""
        if self._free.locked() and self.waiting >= self._places and not self._make_room():
            raise self._full()
        began = time.monotonic()
        self._queued += 1
        try:
            await self._free.acquire()
        finally:
            self._queued -= 1
            progress.queue_seconds += time.monotonic() - began
        self.running += 1
        began = time.monotonic()
        try:
            yield
        finally:
            self.running -= 1
            self._mean_seconds += _WEIGHT * (time.monotonic() - began - self._mean_seconds)
            self._free.release()

    def _full(self) -> ApiError:
        after = min(self._mean_seconds * (self.waiting + 1) / self._most, _LONGEST_WAIT)
        return ApiError(
            429,
            "queue_full",
            f"{self.running} requests are under way and {self.waiting} wait: come back later",
            after=max(after, 1.0),
        )
