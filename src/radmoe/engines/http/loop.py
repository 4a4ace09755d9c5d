"""An event loop in a thread of its own, so that a request has one deadline and can be cancelled at any point."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from radmoe.errors import EngineError

Result = TypeVar("Result")
_LAST_SECONDS = 5.0  # that the thread may take to end


class Loop:
    """Runs coroutines for threads that wait for their results.

    `leave` is awaited at the very end, to close what the coroutines used. It must not refer to the owner of this
    object, which else would never be collected.
    """

    def __init__(self, leave: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(loop,), name="radmoe-http-loop", daemon=True)
        thread.start()
        self._loop, self._thread, self._lock, self._stopped = loop, thread, threading.Lock(), False
        self._under_way: set[Future[Any]] = set()
        self._end = weakref.finalize(self, _end, loop, leave)

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine; EngineError where the loop is stopped before it has one."""
        with self._lock:
            if self._stopped or not self._end.alive:
                work.close()
                raise EngineError("the connection to the server was closed here")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._under_way.add(future)
        try:
            return future.result()
        except CancelledError:
            raise EngineError("the request was given up here, before the server had answered") from None
        finally:
            future.cancel()  # an interrupt while waiting; one that has ended stays as it is
            with self._lock:
                self._under_way.discard(future)

    def stop(self) -> None:
        """Cancel all coroutines, and take no others until `resume`."""
        with self._lock:
            self._stopped = True
            futures = list(self._under_way)
        for future in futures:
            future.cancel()

    def resume(self) -> None:
        """Take coroutines again after `stop`."""
        self._stopped = False

    def close(self) -> None:
        """Stop for good, and end the thread."""
        self.stop()
        self._end()
        self._thread.join(_LAST_SECONDS)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, leave: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Let the loop end by itself. The garbage collector may call this in any thread, so nothing is waited for."""

    async def finish() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await leave()
        await loop.shutdown_asyncgens()

    last = asyncio.run_coroutine_threadsafe(finish(), loop)
    last.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
