"""Many requests at a time, each answer as it arrives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def each_as_finished(
    jobs: Iterable[Job], work: Callable[[Job], Result], *, workers: int, cancel: Callable[[], None]
) -> Iterator[Result]:
    """Yield `work(job)` for all jobs, `workers` at a time, in the order in which they finish.

    Jobs are taken in their order, and at most twice `workers` of them before their results are yielded. When one fails,
    no more are begun: those under way are finished and yielded, and then the first error is raised. If the caller
    closes the iterator early, `cancel` is called, which must end all waiting in `work`.
    """
    waiting = iter(jobs)
    queued: SimpleQueue[Job | None] = SimpleQueue()
    # result, error, and the number of queued jobs that were withdrawn because of the error
    results: SimpleQueue[tuple[Result | None, BaseException | None, int]] = SimpleQueue()

    def worker() -> None:
        while (job := queued.get()) is not None:
            try:
                results.put((work(job), None, 0))
            except BaseException as error:
                results.put((None, error, _withdraw(queued)))

    under_way = 0
    for job in islice(waiting, 2 * workers):
        queued.put(job)
        under_way += 1
    threads = [threading.Thread(target=worker, daemon=True) for _ in range(min(workers, under_way))]
    for thread in threads:
        thread.start()
    failure: BaseException | None = None
    try:
        while under_way:
            result, error, withdrawn = results.get()
            under_way -= 1 + withdrawn
            if error is not None:
                failure = failure or error
            else:
                more = next(waiting, None) if failure is None else None
                if more is not None:
                    queued.put(more)
                    under_way += 1
                yield result  # type: ignore[misc]  # None only beside an error
        if failure is not None:
            raise failure
    finally:
        _withdraw(queued)
        for _ in threads:
            queued.put(None)
        if under_way:
            cancel()


def _withdraw(queued: SimpleQueue[Job | None]) -> int:
    """Take the waiting jobs out of the queue and count them; a None, which ends a thread, is left there."""
    count = 0
    while True:
        try:
            if queued.get_nowait() is None:
                queued.put(None)
                return count
        except Empty:
            return count
        count += 1
