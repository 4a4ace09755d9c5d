"""A bounded queue: so many requests run, so many wait for their turn, and the others are told when to come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from radmoe.serve.backends import Progress
from radmoe.serve.faults import Fault

_LONGEST_WAIT = 60.0  # seconds that a client is told to wait at most
_SHORT = 1 << 16  # bytes of a body that is always read
_LONG_BODIES = 16  # times the largest body, that all longer ones may have together while they are read
_WEIGHT = 0.1  # of the last request in the running mean of their durations


class Gate:
    """Lets `running` requests through at a time and keeps `waiting` more in their order."""

    def __init__(self, running: int, waiting: int) -> None:
        self._most, self._places = running, waiting
        self._free = asyncio.Semaphore(running)
        self.running = self.waiting = 0
        self._long = 0  # bytes of long bodies that are being read
        self._mean_seconds = 1.0

    @contextmanager
    def arriving(self, most: int) -> Iterator[Callable[[int], None]]:
        """While a body of at most so many bytes is read, its request counts as one that waits.

        Gives what is to be called with the size that the body has so far. Raises a Fault of status 429 where the queue is
        full, or where long bodies have too many bytes together.
        """
        if self.running + self.waiting >= self._most + self._places:
            raise self._full()
        self.waiting += 1
        own = 0

        def grew(size: int) -> None:
            nonlocal own
            if size > _SHORT:
                self._long += size - own
                own = size
                if self._long > _LONG_BODIES * most:
                    raise self._full()

        try:
            yield grew
        finally:
            self.waiting -= 1
            self._long -= own

    @asynccontextmanager
    async def turn(self, progress: Progress) -> AsyncIterator[None]:
        """Wait for a turn and hold it. Raises a Fault of status 429 where the queue is full."""
        if self._free.locked() and self.waiting >= self._places:
            raise self._full()
        began = time.monotonic()
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
            progress.queue_seconds += time.monotonic() - began
        self.running += 1
        began = time.monotonic()
        try:
            yield
        finally:
            self.running -= 1
            self._mean_seconds += _WEIGHT * (time.monotonic() - began - self._mean_seconds)
            self._free.release()

    def _full(self) -> Fault:
        after = min(self._mean_seconds * (self.waiting + 1) / self._most, _LONGEST_WAIT)
        return Fault(
            429,
            "queue_full",
            f"{self.running} requests are under way and {self.waiting} wait: come back later",
            after=max(after, 1.0),
        )
