"""One request from its place in the queue to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from radmoe.errors import RadmoeError
from radmoe.selection.calibration import load_calibration
from radmoe.serve import replies
from radmoe.serve.adaptive import sample_adaptively
from radmoe.serve.admission import Gate
from radmoe.serve.api_errors import ApiError, broken_routing
from radmoe.serve.api_request import ApiRequest
from radmoe.serve.backends import Backend, Forwarder, Plain, RequestProgress, SampledRollouts, in_thread
from radmoe.serve.best_of import ServedPick, origin_for, pick, preset_of
from radmoe.serve.recent import Recent, shown_selection
from radmoe.serve.record import PoolRecorder
from radmoe.serve.settings import Settings
from radmoe.serve.telemetry import Metrics, as_fault, log
from radmoe.system.printing import json_text

DAY = 86_400.0  # seconds


class Service:
    """Answers requests: a backend behind the queue, with metrics, a pool and the last selections."""

    def __init__(self, settings: Settings, backend: Backend) -> None:
        self.settings, self.backend = settings, backend
        self.forwarder = backend if isinstance(backend, Forwarder) else None
        self.gate = Gate(settings.running, settings.waiting)
        self.metrics = Metrics(self.gate, backend)
        self.recent = Recent(settings.recent)
        self.calibration = None if settings.calibration is None else load_calibration(settings.calibration)
        if self.calibration is not None:
            preset_of(self.calibration)  # one that cannot be applied is an error now
        self.recorder: PoolRecorder | None = None
        self._retention: asyncio.Task[None] | None = None
        if settings.record is not None:
            self.recorder = PoolRecorder(settings.record, backend, logprobs=self.forwarder is None)

    async def begin(self) -> None:
        """Open the pool to record into, if the model is known already, so that a pool that does not fit is an error at the start."""
        router, models = self.backend.router(), list(self.backend.models())
        if self.recorder is not None and router is not None and models:
            await in_thread(self.recorder.open_now, models[0], router)
        if self.settings.keep is not None:
            self._retention = asyncio.create_task(self._expire(self.settings.keep))

    async def _expire(self, days: float) -> None:
        """Delete what was served more than so many days ago, now and every day."""
        while self.recorder is not None:
            try:
                log("retention", days=days, **await in_thread(self.recorder.expire, days))
            except Exception as error:  # the next day it is tried again
                log("retention", level="error", detail=str(error))
            await asyncio.sleep(DAY)

    async def answer(self, ask: ApiRequest, progress: RequestProgress) -> dict[str, Any]:
        """The answer to a request whose rollouts are sampled for it; an ApiError where there is none."""
        try:
            async with asyncio.timeout(self._left(progress)), self.gate.turn(progress):
                return await self._answer(ask, progress)
        except TimeoutError:
            raise self._late() from None

    async def plain(self, ask: ApiRequest, data: bytes, progress: RequestProgress) -> Plain:
        """The answer to a plain request, as an upstream gives it. It holds its turn until it is closed."""
        assert self.forwarder is not None
        held = AsyncExitStack()
        try:
            async with asyncio.timeout(self._left(progress)):
                await held.enter_async_context(self.gate.turn(progress))
                plain = await self.forwarder.plain(ask, data, progress)
        except BaseException as error:
            await held.aclose()
            if isinstance(error, TimeoutError):
                raise self._late() from None
            raise
        held.push_async_callback(plain.close)
        return plain._replace(parts=self._in_time(plain.parts, progress), close=held.aclose)

    async def _in_time(self, parts: AsyncIterator[bytes], progress: RequestProgress) -> AsyncIterator[bytes]:
        """The parts of an answer that come before the request's deadline; then the stream ends with an error."""
        try:
            while True:
                with progress.upstream():
                    async with asyncio.timeout(self._left(progress)):
                        part = await anext(parts, None)
                if part is None:
                    progress.stage = "done"
                    return
                yield part
                if not self._left(progress):
                    raise TimeoutError  # parts that are always there would never wait for it
        except Exception as error:
            progress.fault = self._late() if isinstance(error, TimeoutError) else as_fault(error)
            yield f"\n\ndata: {json_text(progress.fault.document())}\n\n".encode()

    async def close(self) -> None:
        """End what is under way, and seal the pool."""
        if self._retention is not None:
            self._retention.cancel()
        await self.backend.close()
        if self.recorder is not None:
            await in_thread(self.recorder.close)

    def _left(self, progress: RequestProgress) -> float:
        """Seconds until a request's deadline, which counts from its arrival."""
        return max(self.settings.deadline - progress.seconds, 0.0)

    def _late(self) -> ApiError:
        return ApiError(
            504, "deadline_exceeded", f"there was no answer within {self.settings.deadline:g} s: ask for less"
        )

    async def _answer(self, ask: ApiRequest, progress: RequestProgress) -> dict[str, Any]:
        identity = progress.identity
        n = ask.choices if ask.best is None else ask.best.n
        progress.rollouts, progress.stage = n, "sampling"
        adapted = None
        if ask.best is not None and ask.best.adaptive:
            try:
                adapted = await sample_adaptively(self.backend, ask, ask.best, progress)
            except ApiError:
                raise
            except RadmoeError as error:
                raise broken_routing(str(error)) from None
        sampled = adapted.sampled if adapted is not None else await self.backend.sample(ask, n, ask.best, progress)
        progress.stage = "selecting"
        if ask.best is None:
            return replies.whole(ask, identity, sampled.choices, sampled.usage, None)
        try:
            origin = origin_for(ask, sampled, self.backend.provenance.get("checkpoint"))
            own = self.calibration, self.settings.noise
            picked: ServedPick = await in_thread(pick, ask.best, sampled, identity, origin, *own)
        except RadmoeError as error:
            raise broken_routing(str(error)) from None
        radmoe = dict(picked.document)
        progress.method, progress.margin = radmoe["method"], radmoe["margin"]
        radmoe["adaptive"] = None if adapted is None else {"most": ask.best.n, "stopped": adapted.reason}
        radmoe["recorded"] = None if self.recorder is None else await self._record(identity, ask, sampled, picked)
        radmoe["seconds"] = {
            "queue": round(progress.queue_seconds, 4),
            "upstream": round(progress.upstream_seconds, 4),
            "total": round(progress.seconds, 4),
        }
        shown = await in_thread(shown_selection, sampled, picked) if self.settings.recent else None
        self.metrics.picks.labels(picked.document["method"]).inc()
        self.metrics.rollouts.inc(len(sampled.choices))
        self.metrics.tokens.inc(sampled.tokens)
        choices = [sampled.choices[i] for i in picked.order[: ask.choices]]
        answer = replies.whole(ask, identity, choices, sampled.usage, radmoe)
        self.recent.add(ask, answer, shown)
        return answer

    async def _record(self, identity: str, ask: ApiRequest, sampled: SampledRollouts, picked: ServedPick) -> bool:
        """Write a group to the pool. A failure is logged and does not fail the request."""
        assert self.recorder is not None
        if picked.group is None:
            return False
        try:
            await in_thread(self.recorder.add, identity, ask.model, sampled, picked)
        except RadmoeError as error:
            self.metrics.unrecorded.inc()
            log("record", level="error", detail=str(error))
            return False
        return True
