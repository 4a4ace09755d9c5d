"""Runs many jobs in threads and yields each result as it arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def each_as_finished(
    jobs: Iterable[Job], work: Callable[[Job], Result], *, workers: int, cancel: Callable[[], None]
) -> Iterator[Result]:
    """Yield `work(job)` for all jobs, `workers` at a time, as they finish.

    Jobs are taken in their order, and at most twice `workers` of them before their results are yielded. When one fails,
    no more are begun: those under way are finished and yielded, and then the first error is raised. If the caller
    closes the iterator early, or an interrupt arrives, `cancel` is called, which must end all waiting in `work`. No
    thread is left when the iterator has ended.
    """
    waiting, under_way = iter(jobs), set[Future[list[Result]]]()
    ended: list[BaseException] = []  # why no more jobs are begun

    def run(job: Job) -> list[Result]:
        try:
            return [] if ended else [work(job)]
        except BaseException as error:
            ended.append(error)
            return []

    with ThreadPoolExecutor(workers, thread_name_prefix="radmoe-http") as pool:
        try:
            while True:
                room = 0 if ended else 2 * workers - len(under_way)
                under_way |= {pool.submit(run, job) for job in islice(waiting, room)}
                if not under_way:
                    break
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
            if ended:
                raise ended[0]
        except BaseException as error:
            ended.append(error)
            if under_way:
                cancel()
            raise
