"""The problems of a graded pool in their order, each given to a function by one process, by several, or by a cluster."""

from __future__ import annotations

import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from multiprocessing import get_context, resource_tracker
from typing import TYPE_CHECKING, TypeVar

from radmoe.errors import InputError
from radmoe.evaluation.methods import METHODS, GradedProblem
from radmoe.pool import files, open_pool
from radmoe.system.cluster import cluster

if TYPE_CHECKING:
    from radmoe.evaluation.pools import GradedPool

CHUNK = 16  # problems that a worker takes at a time
T = TypeVar("T")
State = tuple["GradedPool", bytes]  # what a process starts with

FEW = 20_000  # rollouts that one process has finished before others would have started


def map_problems(graded: GradedPool, function: Callable[[GradedProblem], T], *, few: int | None = None) -> Iterator[T]:
    """What `function` gives for the problems of a graded pool, in their order, by as many processes as its `jobs`.

    Fewer than `few` rollouts are not worth starting processes for. The function is sent to them, so it stands at the top
    of a module. Where the pool is evaluated `on` a Ray cluster, all of its cores take part, and a lost one is replaced.
    """
    alone = graded.jobs == 1 or int(graded.here.sum()) < (FEW if few is None else few)
    if alone and not graded.on:
        yield from map(function, graded)
        return
    names = iter(graded.problem_ids)
    chunks = list(iter(lambda: list(islice(names, CHUNK)), []))
    state = replace(graded, path=files.absolute(graded.path), pool=None, known={}), _pickled_methods()
    if graded.on:
        with closing(
            cluster(graded.on).map(graded.on, _start, state, partial(_map_chunk, function), chunks)
        ) as results:
            for made in results:
                yield from made
        return
    processes = ProcessPoolExecutor(
        min(graded.jobs, len(chunks)), get_context("spawn"), initializer=_start, initargs=state
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


_graded: GradedPool  # of a worker process


def _start(graded: GradedPool, methods: bytes) -> None:
    global _graded
    _graded = replace(graded, pool=open_pool(graded.path))
    METHODS.update((method.name, method) for method in pickle.loads(methods))


def _map_chunk(function: Callable[[GradedProblem], T], chunk: list[str]) -> list[T]:
    return [function(_graded.problem(name)) for name in chunk]
