"""Runs many jobs in threads and yields each result as it arrives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def each_as_finished(
    jobs: Iterable[Job], work: Callable[[Job], Result], *, workers: int, cancel: Callable[[], None]
) -> Iterator[Result]:
    """Yield `work(job)` for all jobs, `workers` at a time, in the order in which they finish.

    Jobs are taken in their order, and at most twice `workers` of them before their results are yielded. When one fails,
    no more are begun: those under way are finished and yielded, and then the first error is raised. If the caller
    closes the iterator early, or an interrupt arrives, `cancel` is called, which must end all waiting in `work`. No
    thread is left when the iterator has ended.
    """
    waiting = iter(jobs)
    under_way: set[Future[Result]] = set()
    finished: SimpleQueue[Future[Result]] = SimpleQueue()
    failures: list[BaseException] = []
    lock = threading.RLock()  # a future may end while it gets its callback, in the same thread

    def withdraw() -> None:
        for other in tuple(under_way):
            other.cancel()  # has no effect on one that has begun

    def note(future: Future[Result]) -> None:
        """Called in the thread that did the work, before it takes the next job."""
        with lock:
            if not future.cancelled() and (error := future.exception()) is not None:
                failures.append(error)
                withdraw()
        finished.put(future)

    with ThreadPoolExecutor(workers, thread_name_prefix="radmoe-http") as pool:

        def begin(count: int) -> None:
            with lock:
                for job in islice(waiting, 0 if failures else count):
                    future = pool.submit(work, job)
                    under_way.add(future)
                    future.add_done_callback(note)

        try:
            begin(2 * workers)
            while under_way:
                future = finished.get()
                with lock:
                    under_way.discard(future)
                if not future.cancelled() and future.exception() is None:
                    begin(1)
                    yield future.result()
            if failures:
                raise failures[0]
        finally:
            with lock:
                waiting_still = bool(under_way)
                withdraw()
            if waiting_still:
                cancel()
