"""Runs several iterators, each in its own thread, and merges them.

The passes of a small model are too short to be split over cores: two threads inside each operation wait for
each other more than they help. Two batches that run side by side, on one core each, do not wait.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from radmoe.engines.torch.decode import Stopped

T = TypeVar("T")
Stream = Callable[["Stopped"], Iterator[T]]


def merge(streams: Sequence[Stream[T]]) -> Generator[T, None, None]:
    """Yield what the streams yield, as it comes.

    Each stream is called with a function that says whether it should stop, and must ask it often: when one stream fails
    or the caller closes this iterator, the others are told to stop, and their threads are joined. A thread that still
    ran torch while the interpreter shuts down would abort the process. Therefore the threads are not daemons, and they
    also stop by themselves once the main thread has ended, for a caller that never closes the iterator.
    """
    stop = threading.Event()
    if len(streams) == 1:
        yield from streams[0](stop.is_set)
        return
    ready: queue.SimpleQueue[T | BaseException | None] = queue.SimpleQueue()

    def stopped() -> bool:
        return stop.is_set() or not threading.main_thread().is_alive()

    def work(stream: Stream[T]) -> None:
        try:
            for item in stream(stopped):
                ready.put(item)
                if stopped():
                    break
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
    try:
        for thread in threads:
            thread.start()
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
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
