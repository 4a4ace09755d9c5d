"""Runs work in threads and yields the results in the order of the work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(work: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[tuple[T, R], None, None]:
    """Yield every item with the result of `work`. At most twice as many items as threads are under way.

    When the caller closes the generator, or one work fails, those that have not begun are dropped, and the threads have
    ended when this returns.
    """
    remaining = iter(items)
    with ThreadPoolExecutor(threads) as executor:
        running: deque[tuple[T, Future[R]]] = deque()
        try:
            while True:
                for item in islice(remaining, 2 * threads - len(running)):
                    running.append((item, executor.submit(work, item)))
                if not running:
                    return
                item, future = running.popleft()
                yield item, future.result()
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
