"""The problems of a cohort in their order, measured or read by one process or by several."""

from __future__ import annotations

import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from typing import NamedTuple, TypeVar

from radmoe.errors import InputError
from radmoe.evaluation.cohort import METHODS, Cohort, GradedProblem
from radmoe.evaluation.cohort.cohort import graded
from radmoe.evaluation.cohort.problem import Marks
from radmoe.evaluation.outcomes import measure
from radmoe.evaluation.records import Problem
from radmoe.pool import Pool, open_pool
from radmoe.selection.selector import Setting

CHUNK = 16  # problems that a worker takes at a time
T = TypeVar("T")

FEW = 20_000  # rollouts that one process has finished before others would have started


class Work(NamedTuple):
    """What a worker needs to know of a problem, beside the pool."""

    problem_id: str
    setting: Setting
    marks: Marks
    confidence_window: int


def measure_all(cohort: Cohort, jobs: int) -> Iterator[Problem]:
    """Measure every problem, in the cohort's order."""
    return map_problems(cohort, measure, jobs)


def map_problems(
    cohort: Cohort,
    function: Callable[[GradedProblem], T],
    jobs: int,
    problem_ids: Sequence[str] | None = None,
    *,
    few: int | None = None,
) -> Iterator[T]:
    """What `function` gives for problems of a cohort (all of them unless named), in their order.

    A cohort of `few` rollouts is not worth starting processes for. The function is sent to them, so it stands at the top of a
    module.
    """
    names = cohort.problems if problem_ids is None else list(problem_ids)
    if jobs == 1 or sum(len(cohort.marks[name].answers) for name in names) < (FEW if few is None else few):
        yield from map(function, map(cohort.graded, names))
        return
    work = (Work(name, cohort.setting(name), cohort.marks[name], cohort.confidence_window) for name in names)
    chunks = list(iter(lambda: list(islice(work, CHUNK)), []))
    processes = ProcessPoolExecutor(
        min(jobs, len(chunks)),
        get_context("spawn"),
        initializer=_start,
        initargs=(cohort.pool.path, _pickled_methods()),
    )
    try:
        with _interrupts_blocked():
            results = processes.map(partial(_map_chunk, function), chunks)
        for made in results:
            yield from made
    except BrokenProcessPool:
        raise InputError("a worker process died, perhaps for want of memory: try again with --jobs 1") from None
    finally:
        processes.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes that start here do not receive an interrupt.

    The parent receives it at the end of the block, and stops them in order. New processes inherit a blocked signal,
    unlike a handler. In the parent another thread may take the signal, and Python would then raise in the main one, in the
    middle of starting a process; so a handler of our own takes note of it.
    """
    resource_tracker.ensure_running()  # it unblocks the signal when it starts
    arrived: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, frame: arrived.append(number)) if in_main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if in_main:
            signal.signal(signal.SIGINT, handler)
        if arrived:
            signal.raise_signal(signal.SIGINT)


def _pickled_methods() -> bytes:
    """The registry for another process, which may not have imported the module that added a method."""
    for method in METHODS.values():
        try:
            pickle.dumps(method)
        except (pickle.PicklingError, AttributeError, TypeError):
            raise InputError(
                f"method {method.name!r} cannot be sent to other processes: define its function at the top of a "
                "module, or use --jobs 1"
            ) from None
    return pickle.dumps(list(METHODS.values()))


_pool: Pool  # of a worker process


def _start(path: Path, methods: bytes) -> None:
    global _pool
    _pool = open_pool(path)
    METHODS.update((method.name, method) for method in pickle.loads(methods))


def _map_chunk(function: Callable[[GradedProblem], T], chunk: list[Work]) -> list[T]:
    return [function(graded(_pool, *work)) for work in chunk]
