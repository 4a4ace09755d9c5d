"""Batches of requests that come one by one, and the one for engines that only `generate`: one call after another.

An engine that can take a request into a batch that is running has a batcher of its own (`torch/batcher.py`).
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import count
from typing import TYPE_CHECKING

from radmoe.engines.base import Completion, Engine, Job, Sampling, check_prompt
from radmoe.errors import EngineError, InputError

if TYPE_CHECKING:
    from radmoe.pool import Profile
    from radmoe.problems import Content
    from radmoe.types import Kind

_GATHER_SECONDS = 0.01  # that requests which come together are waited for


class Batcher(ABC):
    """A queue of requests that are sampled in batches. Requests may be submitted from any thread."""

    def __init__(self, engine: Engine, *, batch_size: int, topk_logprobs: int, kind: Kind | None = None) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        self._engine, self._batch_size, self._topk, self._kind = engine, batch_size, topk_logprobs, kind
        self._waiting: deque[tuple[Job, Future[Completion]]] = deque()
        self._tickets = count()
        self._changed = threading.Condition()
        self._closed = False

    def submit(
        self,
        prompt: Content | Sequence[int],
        *,
        sampling: Sampling | None = None,
        key: str = "",
        rollout_index: int = 0,
    ) -> Future[Completion]:
        """Ask for one rollout. `key` and `rollout_index` name it in the random numbers, as in `Engine.generate`.

        A prompt that cannot be used, or a batcher that is closed, raises at once; any later error is the future's.
        """
        sampling = sampling or Sampling(topk_logprobs=self._topk)
        if sampling.topk_logprobs != self._topk:
            raise InputError(
                f"this batch keeps {self._topk} logprobs, the request wants {sampling.topk_logprobs}: they must agree"
            )
        ids = tuple(check_prompt(self._engine.encode(prompt), self._engine.vocab_size))
        limit = self._engine.room(ids, key, sampling.max_tokens)
        future: Future[Completion] = Future()
        with self._changed:
            if self._closed:
                raise EngineError("this batch is closed: open another one")
            job = Job(next(self._tickets), rollout_index, key, ids, limit, sampling, self._kind)
            self._waiting.append((job, future))
            self._changed.notify()
        return future

    @property
    def closed(self) -> bool:
        """Whether requests are no longer taken, because it was closed or has failed."""
        return self._closed

    @abstractmethod
    def give_up(self, future: Future[Completion]) -> None:
        """End a request that nobody waits for any more. Its future is cancelled, or gets an EngineError."""

    @abstractmethod
    def close(self) -> None:
        """End all requests and the threads."""


class GenerateBatcher(Batcher):
    """Samples, in a thread of its own, all waiting requests of one sampling setting by one call of `Engine.generate`.

    Requests that arrive meanwhile wait for the next call. A request that is given up after its call has begun is sampled to
    its end, unless all others of the call have ended or were given up too.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        batch_size: int,
        topk_logprobs: int,
        kind: Kind | None = None,
        profile: Profile | None = None,
    ) -> None:
        super().__init__(engine, batch_size=batch_size, topk_logprobs=topk_logprobs, kind=kind)
        self._profile = profile
        self._given_up: set[Future[Completion]] = set()
        self._thread = threading.Thread(target=self._work, name="radmoe-generate", daemon=True)
        self._thread.start()

    def give_up(self, future: Future[Completion]) -> None:
        if not future.cancel() and not future.done():
            self._given_up.add(future)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _work(self) -> None:
        while requests := self._take():
            waiting = {future for _, future in requests}
            try:
                self._sample(requests, waiting)
            except Exception as error:  # it is that of every request in the call
                for future in waiting:
                    future.set_exception(error)
            self._given_up.clear()
        for _, future in self._waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(EngineError("the batch was closed before this request was finished"))

    def _take(self) -> list[tuple[Job, Future[Completion]]]:
        """The next requests of one sampling setting, which are waited for; none once this is closed."""
        taken: list[tuple[Job, Future[Completion]]] = []
        while not taken and not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
            time.sleep(_GATHER_SECONDS)
            with self._changed:
                while self._waiting and not self._closed and len(taken) < self._batch_size:
                    if taken and self._waiting[0][0].sampling != taken[0][0].sampling:
                        break
                    job, future = self._waiting.popleft()
                    if future.set_running_or_notify_cancel():
                        taken.append((job, future))
        return taken

    def _sample(self, requests: list[tuple[Job, Future[Completion]]], waiting: set[Future[Completion]]) -> None:
        """Sample requests by one call; futures that have their result leave `waiting`."""
        prompts: dict[tuple[tuple[int, ...], str, int], dict[int, Future[Completion]]] = {}
        # Rollouts of one prompt and key are one prompt of the call, unless an index comes twice.
        for job, future in requests:
            copy = 0
            while job.rollout_index in prompts.setdefault((job.prompt, job.key, copy), {}):
                copy += 1
            prompts[job.prompt, job.key, copy][job.rollout_index] = future
        futures = list(prompts.values())
        completions = self._engine.generate(
            [list(ids) for ids, _, _ in prompts],
            max(job.rollout_index for job, _ in requests) + 1,
            sampling=requests[0][0].sampling,
            batch_size=self._batch_size,
            keys=[key for _, key, _ in prompts],
            missing=[sorted(each) for each in futures],
            kinds=[self._kind] * len(prompts),
            profile=self._profile,
        )
        for done in completions:
            future = futures[done.prompt_index][done.rollout_index]
            waiting.discard(future)
            future.set_result(done._replace(prompt_index=0))
            if self._closed or waiting <= self._given_up:
                break
        completions.close()
        for future in waiting:
            future.set_exception(EngineError("this request was given up before it was finished"))
