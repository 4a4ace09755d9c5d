"""The backend of a model in this process: any engine, whose batch all requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from radmoe.engines import EngineOptions, engine_class, open_engine
from radmoe.engines.base import Completion, Engine
from radmoe.engines.batches import Batcher
from radmoe.errors import EngineError, InputError
from radmoe.selection.confidence import likelihood
from radmoe.serve.api_errors import internal
from radmoe.serve.api_request import ApiRequest, Best
from radmoe.serve.backends import Backend, RequestProgress, Router, SampledRollouts, in_thread, usage_of
from radmoe.serve.best_of import settle
from radmoe.serve.prompt_rendering import Prompt, Renderer, choice_of, cut
from radmoe.serve.settings import Settings
from radmoe.serve.upstreams import unknown_model

_LOGPROBS = 20  # per token, for DeepConf and for recorded pools


class EngineBackend(Backend):
    """A model in this process. `settings.model` is its name or its directory."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine: Engine
        self._batcher: Batcher | None = None
        self._under_way = 0
        self._render = Renderer()

    async def start(self) -> None:
        self._engine = await in_thread(self._open)
        self._batch()
        self.record: dict[str, Any] = {"engine": self._engine.name, "dtype": self._engine.dtype}
        self.provenance = self._engine.provenance()
        self._router = Router(self._engine.shape, self._engine.vocab, self._engine.layers)

    def _open(self) -> Engine:
        settings = self._settings
        if engine_class(settings.engine).concurrent:
            raise InputError(f"{settings.engine} is for servers: give their addresses as --upstream, without --engine")
        return open_engine(
            settings.engine, settings.model, EngineOptions(device=settings.device, threads=settings.threads)
        )

    async def close(self) -> None:
        if self._batcher is not None:
            await in_thread(self._batcher.close)
            self._engine.close()

    def models(self) -> dict[str, int | None]:
        return {self._engine.model_name: self._engine.context}

    def router(self) -> Router:
        return self._router

    def status(self) -> dict[str, Any]:
        return {"model": self._engine.model_name, "rollouts": self._under_way}

    def loads(self) -> list[tuple[str, bool, int]]:
        return [("embedded", True, self._under_way)]

    async def sample(
        self, ask: ApiRequest, n: int, best: Best | None, progress: RequestProgress, *, first: int = 0
    ) -> SampledRollouts:
        if ask.model not in self.models():
            raise unknown_model(ask.model, self.models())
        prompt = await self._render(ask, self._engine, _LOGPROBS)
        with progress.upstream():
            completions = await self._completions(prompt, n, progress, first)
        return await in_thread(self._sampled, ask, best, prompt, completions)

    async def _completions(self, prompt: Prompt, n: int, progress: RequestProgress, first: int) -> list[Completion]:
        batcher = self._batch()
        futures: list[Future[Completion]] = []
        loop = asyncio.get_running_loop()
        finished: asyncio.Queue[Future[Completion]] = asyncio.Queue()
        self._under_way += n
        try:
            for i in range(n):
                futures.append(batcher.submit(prompt.ids, sampling=prompt.sampling, rollout_index=first + i))
                futures[-1].add_done_callback(lambda done: loop.call_soon_threadsafe(finished.put_nowait, done))
            for progress.finished in range(first + 1, first + n + 1):
                (await finished.get()).result()
            return [future.result() for future in futures]
        except EngineError as error:
            raise internal(str(error)) from None
        finally:
            self._under_way -= n
            for future in futures:
                if not future.done():
                    batcher.give_up(future)

    def _batch(self) -> Batcher:
        """The batch that requests share; a new one where the last one failed."""
        if self._batcher is None or self._batcher.closed:
            self._batcher = self._engine.batcher(batch_size=self._settings.batch_size, topk_logprobs=_LOGPROBS)
        return self._batcher

    def _sampled(
        self, ask: ApiRequest, best: Best | None, prompt: Prompt, completions: Sequence[Completion]
    ) -> SampledRollouts:
        if prompt.stops:
            completions = [cut(done, prompt.stops, self._engine.vocab) for done in completions]
        rollouts = [done.rollout for done in completions]
        tokens = sum(len(rollout) for rollout in rollouts)
        reading = None
        if best is not None:
            reading = settle(best, [rollout.token_ids for rollout in rollouts], self._router)
        return SampledRollouts(
            choices=[
                choice_of(ask, i, done.text, done.finish_reason, self._engine.vocab)
                for i, done in enumerate(completions)
            ],
            usage=usage_of(len(prompt.ids), tokens),
            tokens=tokens,
            rollouts=lambda: rollouts,
            router=self._router,
            reading=reading,
            likelihoods=[likelihood(r.sampled_logprobs) for r in rollouts if r.sampled_logprobs is not None],
            prompt=prompt.text,
            sampling=prompt.sampling,
        )
