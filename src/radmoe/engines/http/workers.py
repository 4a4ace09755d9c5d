"""Many requests at a time, each answer as it arrives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def each(
    jobs: Iterable[Job], work: Callable[[Job], Result], *, workers: int, give_up: Callable[[], None]
) -> Iterator[Result]:
    """`work(job)` for all jobs, `workers` at a time, in the order they finish.

    Jobs are taken in their order, and at most twice `workers` of them before their results are. When one fails no
    more are begun: those under way are finished and yielded, and then the first error is raised. Whoever stops
    listening makes the crew `give_up`, which must end all waiting in `work`.
    """
    waiting = iter(jobs)
    todo: SimpleQueue[Job | None] = SimpleQueue()
    done: SimpleQueue[tuple[Result | None, BaseException | None, int]] = SimpleQueue()  # and jobs it took back

    def labour() -> None:
        while (job := todo.get()) is not None:
            try:
                done.put((work(job), None, 0))
            except BaseException as error:
                done.put((None, error, _empty(todo)))

    under_way = 0
    for job in islice(waiting, 2 * workers):
        todo.put(job)
        under_way += 1
    crew = [threading.Thread(target=labour, daemon=True) for _ in range(min(workers, under_way))]
    for one in crew:
        one.start()
    failed: BaseException | None = None
    try:
        while under_way:
            result, error, taken_back = done.get()
            under_way -= 1 + taken_back
            if error is not None:
                failed = failed or error
            else:
                more = next(waiting, None) if failed is None else None
                if more is not None:
                    todo.put(more)
                    under_way += 1
                yield result  # type: ignore[misc]  # None only beside an error
        if failed is not None:
            raise failed
    finally:
        _empty(todo)
        for _ in crew:
            todo.put(None)
        if under_way:
            give_up()


def _empty(todo: SimpleQueue[Job | None]) -> int:
    """How many jobs were taken back; a None, which sends a thread home, is left there."""
    count = 0
    while True:
        try:
            if todo.get_nowait() is None:
                todo.put(None)
                return count
        except Empty:
            return count
        count += 1
