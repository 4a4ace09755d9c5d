"""Several iterators, each in a thread of its own, as one.

The passes of a small model are too short to be split over cores: two threads inside each operation wait for
each other more than they help. Two batches that run side by side, on one core each, do not wait.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def merge(streams: Sequence[Iterator[T]]) -> Iterator[T]:
    """Yield what the streams yield, as it comes. An error in one ends all; closing the iterator stops them."""
    if len(streams) == 1:
        yield from streams[0]
        return
    ready: queue.SimpleQueue[T | BaseException | None] = queue.SimpleQueue()
    stop = threading.Event()

    def work(stream: Iterator[T]) -> None:
        try:
            for item in stream:
                if stop.is_set():
                    break
                ready.put(item)
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    threads = [threading.Thread(target=work, args=(stream,), daemon=True) for stream in streams]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        stop.set()
