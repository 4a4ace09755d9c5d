"""A bounded queue: so many requests run, so many wait for their turn, and the others are told when to come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from radmoe.gateway.backends import Progress
from radmoe.gateway.faults import Fault

_LONGEST_WAIT = 60.0  # seconds that a client is told to wait at most
_WEIGHT = 0.1  # of the last request in the running mean of their durations


class Gate:
    """Lets `running` requests through at a time and keeps `waiting` more in their order."""

    def __init__(self, running: int, waiting: int) -> None:
        self._most, self._places = running, waiting
        self._free = asyncio.Semaphore(running)
        self.running = self.waiting = 0
        self._mean_seconds = 1.0

    @asynccontextmanager
    async def turn(self, progress: Progress) -> AsyncIterator[None]:
        """Wait for a turn and hold it. Raises a Fault of status 429 where the queue is full."""
        if self._free.locked() and self.waiting >= self._places:
            after = min(self._mean_seconds * (self.waiting + 1) / self._most, _LONGEST_WAIT)
            raise Fault(
                429,
                "queue_full",
                f"{self.running} requests are under way and {self.waiting} wait: come back later",
                after=max(after, 1.0),
            )
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
