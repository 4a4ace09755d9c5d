"""Requests that come one by one, from any thread, and share a batch while they run.

A request joins at the next step, whatever else is under way, and leaves when it is finished; nobody waits for the
slowest. Agents and a gateway ask so. A token follows from its logits and from the random number that (seed, key,
rollout, step) names, as in `generate`, so a request gives the same rollout in whatever company it runs, up to rounding.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Self

from radmoe.engines.base import Completion, Job
from radmoe.engines.batches import Batcher
from radmoe.engines.torch.decode import GIVEN_UP, FinishedJob, Queue
from radmoe.errors import EngineError

if TYPE_CHECKING:
    from radmoe.engines.torch.engine import TransformersEngine


_LOOK_AGAIN = 1.0  # seconds after which an idle thread looks whether the main thread has ended


class ContinuousBatcher(Batcher, Queue):
    """One batch per stream of the engine, each in a thread of its own, and the queue that they share.

    All requests have `topk_logprobs`. Close it, or use it as a context: the threads end with it. While it is open the
    engine must not `generate`.
    """

    def __init__(self, engine: TransformersEngine, *, batch_size: int, topk_logprobs: int) -> None:
        super().__init__(engine, batch_size=batch_size, topk_logprobs=topk_logprobs)
        self._model = engine
        self._running: dict[int, Future[Completion]] = {}
        self._given_up: frozenset[int] = frozenset()
        streams = min(engine.streams, batch_size)
        sizes = [len(range(k, batch_size, streams)) for k in range(streams)]
        self._threads = [threading.Thread(target=self._work, args=(size,), name="radmoe-batch") for size in sizes]
        for thread in self._threads:
            thread.start()

    def take(self, most: int, *, idle: bool) -> list[Job]:
        jobs: list[Job] = []
        with self._changed:
            while True:
                while self._waiting and len(jobs) < most:
                    job, future = self._waiting.popleft()
                    if future.set_running_or_notify_cancel():
                        self._running[job.prompt_index] = future
                        jobs.append(job)
                if jobs or not idle or self._stopped():
                    return jobs
                self._changed.wait(_LOOK_AGAIN)

    def waiting(self) -> bool:
        return bool(self._waiting)

    def given_up(self) -> frozenset[int]:
        return self._given_up

    def failed(self, job: Job, error: Exception) -> None:
        self._settle(job, error)

    def give_up(self, future: Future[Completion]) -> None:
        """End a request that nobody waits for any more: at once if it has not begun, else at its batch's next step.

        Its future is then cancelled, or has an EngineError. A batch on a GPU finishes what it has begun.
        """
        if not future.cancel():
            with self._changed:
                self._given_up |= {ticket for ticket, running in self._running.items() if running is future}

    def close(self) -> None:
        """End all requests, those under way too, and the threads."""
        self._end(EngineError("the batch was closed before this request was finished"))
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self, batch_size: int) -> None:
        """Run one batch until this is closed, or the main thread has ended."""
        try:
            for done in self._model.decoder(self._topk).run(self, batch_size, self._stopped):
                self._settle(done.job, self._outcome(done))
        except BaseException as error:  # one batch that failed ends all: its requests must not wait for ever
            self._end(error)

    def _outcome(self, done: FinishedJob) -> Completion | Exception:
        """The completion of a finished job, or the error that its caller gets. An error affects this job alone."""
        if done.reason == GIVEN_UP:
            return EngineError("this request was given up before it was finished")
        try:
            return self._model.completion(done)._replace(prompt_index=0)
        except Exception as error:
            return error

    def _settle(self, job: Job, outcome: Completion | Exception) -> None:
        """Resolve the future of a job."""
        with self._changed:
            future = self._running.pop(job.prompt_index, None)
            self._given_up -= {job.prompt_index}
        if future is None:
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _stopped(self) -> bool:
        return self._closed or not threading.main_thread().is_alive()

    def _end(self, error: BaseException) -> None:
        with self._changed:
            self._closed = True
            waiting = [future for _, future in self._waiting if future.set_running_or_notify_cancel()]
            futures = [*self._running.values(), *waiting]
            self._waiting.clear()
            self._running.clear()
            self._changed.notify_all()
        for future in futures:
            future.set_exception(error)
