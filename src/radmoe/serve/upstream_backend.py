"""The backend of servers. vLLM, stock or with the plugin, is asked on its own endpoints, SGLang with token ids."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from radmoe.engines.base import Sampling, completion_text
from radmoe.engines.checkpoint import Checkpoint
from radmoe.engines.http import HttpEngine
from radmoe.engines.http.answers import Answer, plugin_routing
from radmoe.engines.http.client import BUSY, SMALL_BYTES, SMALL_VALUES, Busy, Limit, connection_to
from radmoe.engines.http.dialects import RolloutRequest, Sglang, answer_limit, rows_request
from radmoe.engines.http.fields import parse
from radmoe.engines.models import resolve_model
from radmoe.engines.vllm.plugin.endpoint import ROUTING
from radmoe.errors import RadmoeError
from radmoe.selection.confidence import likelihood
from radmoe.serve.api_errors import ApiError, bad_gateway, broken_routing
from radmoe.serve.api_request import ApiRequest, Best
from radmoe.serve.backends import Backend, Plain, RequestProgress, Router, SampledRollouts, in_thread, usage_of
from radmoe.serve.best_of import KindReading, logprobs_needed, rows_read, settle
from radmoe.serve.prompt_rendering import Prompt, Renderer, choice_of
from radmoe.serve.settings import Settings
from radmoe.serve.upstreams import Answers, Fleet, Upstream, unknown_model
from radmoe.serve.vllm_requests import Choices, body_for, read_choices
from radmoe.types import Rollout

PATHS = {"chat": "/v1/chat/completions", "text": "/v1/completions"}
Positions = NDArray[np.int32] | None
_LONG_CONTEXT = 1 << 17  # tokens, where a server does not say its context
_LARGE_ANSWER = 16 << 20  # bytes of an answer that is read alone, as its values take many times its bytes
_VALUE_BYTES = 32  # of an answer per value in it, at least: a value takes up to 100 bytes of memory
_STREAMED = 8  # times the bytes of a whole answer: every token comes in an event of its own
_IDLE_SECONDS = 120.0  # that may pass between two parts of a stream, once it has begun
_ROWS_LOST = BUSY | {409}  # the plugin's rows made room for others: sample again


class UpstreamBackend(Backend):
    """Servers at the settings' upstreams."""

    def __init__(self, settings: Settings) -> None:
        model = None if settings.model is None else str(resolve_model(settings.model))
        if model is not None:
            Checkpoint(model)  # a wrong directory is an error now, not a server without routing
        self._whole_rows = settings.record is not None
        answers, key = Answers(2 * settings.largest_answer), settings.upstream_key
        upstreams = [Upstream(i, url, model, key, answers) for i, url in enumerate(settings.upstreams)]
        self._largest = settings.largest_answer
        self._large = asyncio.Semaphore(1)
        self.fleet = Fleet(upstreams, settings.retries)
        self._render = Renderer()
        self.record: dict[str, Any] = {}
        self.provenance: dict[str, Any] = {}

    async def start(self) -> None:
        await self.fleet.start()
        self._name_source()

    async def close(self) -> None:
        await self.fleet.close()

    def models(self) -> dict[str, int | None]:
        return self.fleet.models()

    def router(self) -> Router | None:
        engine = self._engine()
        return None if engine is None else _router(engine)

    def status(self) -> dict[str, Any]:
        upstreams = self.fleet.upstreams
        return {
            "upstreams": [{"up": up.up, "routing": up.card.engine is not None, "load": up.load} for up in upstreams]
        }

    def loads(self) -> list[tuple[str, bool, int]]:
        return [(upstream.name, upstream.up, upstream.load) for upstream in self.fleet.upstreams]

    async def plain(self, ask: ApiRequest, data: bytes, progress: RequestProgress) -> Plain:
        self._check_model(ask)

        async def whole(upstream: Upstream) -> bytes:
            return await upstream.ask(PATHS[ask.route], data, self._limit(upstream, ask, ask.choices, 20).size)

        async def begin(upstream: Upstream) -> Plain:
            with upstream.asked():
                response = await upstream.client.open("POST", PATHS[ask.route], data)
            held = AsyncExitStack()
            held.enter_context(upstream.lease())
            held.push_async_callback(response.aclose)
            parts = _parts(upstream, response, self._limit(upstream, ask, ask.choices, 20).size * _STREAMED)
            return Plain("text/event-stream; charset=utf-8", parts, held.aclose)

        with progress.upstream():
            if ask.stream:
                return await self.fleet.attempt(ask.model, begin)
            body = await self.fleet.attempt(ask.model, whole)
        return Plain("application/json", _one(body), AsyncExitStack().aclose)

    async def sample(
        self, ask: ApiRequest, n: int, best: Best | None, progress: RequestProgress, *, first: int = 0
    ) -> SampledRollouts:
        assert best is not None  # plain requests are passed on
        self._check_model(ask)
        upstreams = [upstream for upstream in self.fleet.upstreams if upstream.up and ask.model in upstream.card.models]
        engines = [upstream.card.engine for upstream in upstreams if upstream.card.engine is not None]
        if upstreams and not engines and best.fallback is None:
            raise no_routing("; ".join(upstream.card.trouble for upstream in upstreams))
        self._name_source()
        if any(isinstance(engine.dialect, Sglang) for engine in engines):
            return await self._by_tokens(ask, n, best, progress, first)

        async def work(upstream: Upstream) -> SampledRollouts:
            return await self._vllm(upstream, ask, n, best, progress, first)

        return await self.fleet.attempt(ask.model, work, routing=True)

    # -- vLLM ----------------------------------------------------------------------------------

    async def _vllm(
        self, upstream: Upstream, ask: ApiRequest, n: int, best: Best, progress: RequestProgress, first: int
    ) -> SampledRollouts:
        """One request for all n rollouts, so that the prompt is computed once; then the plugin's rows."""
        engine, key = upstream.card.engine, uuid.uuid4().hex
        if engine is None and best.fallback is None:  # the others, which give routing, have failed
            raise no_routing(upstream.card.trouble)
        wanted, limit = logprobs_needed(best), self._limit(upstream, ask, n, max(logprobs_needed(best), 20))
        plugin = engine is not None and engine.plugin is not None
        body = json.dumps(body_for(ask, n, wanted, key if plugin else None, first)).encode()
        with progress.upstream():
            reply = await upstream.ask(PATHS[ask.route], body, limit.size)
        progress.finished += n
        work = partial(read_choices, reply, upstream.url, ask, n, engine, wanted, limit.values)
        try:
            async with self._large if len(reply) > _LARGE_ANSWER else nullcontext():
                read, reading, positions = await in_thread(_understand, work, best, engine, self._whole_rows)
        except RadmoeError as error:
            raise bad_gateway(str(error)) from None
        if engine is None:
            return _sampled(read, None, None, None, upstream.card.trouble)
        router = _router(engine)
        if not plugin:
            return _sampled(
                read, lambda: [engine.rollout(a, read.prompt_tokens) for a in read.answers], router, reading
            )
        try:
            with progress.upstream():
                ask_rows = json.dumps(rows_request(key, n, positions)).encode()
                payload = await upstream.ask(ROUTING, ask_rows, limit.size, busy=_ROWS_LOST)
        except ApiError as fault:
            if best.fallback is None:
                raise broken_routing(fault.detail or str(fault)) from None
            return _sampled(read, None, router, reading, "the model server did not hand its routing out")

        def rollouts() -> list[Rollout]:
            routing = plugin_routing(payload, n, upstream.url)
            return [engine.rollout(a, None, routing[i], positions[i]) for i, a in enumerate(read.answers)]

        return _sampled(read, rollouts, router, reading)

    # -- SGLang --------------------------------------------------------------------------------

    async def _by_tokens(
        self, ask: ApiRequest, n: int, best: Best, progress: RequestProgress, first: int
    ) -> SampledRollouts:
        """One request per rollout, each to the server with the least to do."""
        engine = self._engine()
        assert engine is not None
        prompt = await self._render(ask, engine, max(logprobs_needed(best), 1))
        if prompt.stops:
            raise ApiError(400, "unsupported_field", "stop is not supported before SGLang: leave it out", param="stop")

        async def rollout(i: int) -> Answer:
            request = _request(prompt, i)
            data = json.dumps(engine.dialect.body(request, ask.model, None)).encode()
            limit = answer_limit(request, engine.local.router)

            async def work(upstream: Upstream) -> Answer:
                reply = await upstream.ask(engine.dialect.path, data, min(limit.size, self._largest))
                values = min(limit.values, self._largest // _VALUE_BYTES)
                try:
                    return await in_thread(
                        lambda: engine.dialect.read(parse(reply, upstream.url, values), request, len(engine.vocab))
                    )
                except RadmoeError as error:
                    raise bad_gateway(str(error)) from None

            answer = await self.fleet.attempt(ask.model, work, routing=True)
            progress.finished += 1
            return answer

        tasks = [asyncio.create_task(rollout(i)) for i in range(first, first + n)]
        try:
            with progress.upstream():
                answers = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return await in_thread(_from_tokens, ask, best, prompt, answers, engine)

    def _engine(self) -> HttpEngine | None:
        """The engine of a server that is up and gives routing."""
        return next((up.card.engine for up in self.fleet.upstreams if up.up and up.card.engine is not None), None)

    def _name_source(self) -> None:
        """Set the run record and provenance once a server that gives routing is known."""
        engine = self._engine()
        if engine is not None:
            self.record, self.provenance = {"engine": engine.name, "dtype": engine.dtype}, engine.provenance()

    def _limit(self, upstream: Upstream, ask: ApiRequest, n: int, logprobs: int) -> Limit:
        """How large the answer to a request of n rollouts may be: by what was asked, and never more than our own limit.

        The context that a server claims makes it smaller, never larger.
        """
        asked = [ask.body.get(name) for name in ("max_completion_tokens", "max_tokens")]
        claimed = upstream.card.models.get(ask.model) or _LONG_CONTEXT
        engine = upstream.card.engine
        longest = claimed if engine is None or engine.context is None else min(claimed, engine.context)
        tokens = next((most for most in asked if most is not None), longest)
        positions = min(longest, tokens + ask.size)  # a token of the prompt has a byte at least
        if engine is None:
            size, values = positions * 4096, positions * 200
        else:
            size, values = answer_limit(
                RolloutRequest((), positions, Sampling(topk_logprobs=logprobs), 0, 0), engine.local.router
            )
        most = self._largest
        return Limit(min(SMALL_BYTES + n * size, most), min(SMALL_VALUES + n * values, most // _VALUE_BYTES))

    def _check_model(self, ask: ApiRequest) -> None:
        known = self.models()
        every = {name for upstream in self.fleet.upstreams for name in upstream.card.models}
        if ask.model not in known and (known or every) and ask.model not in every:
            raise unknown_model(ask.model, known)


def _router(engine: HttpEngine) -> Router:
    return Router(engine.shape, engine.vocab, engine.layers)


def _understand(
    read: Callable[[], Choices], best: Best, engine: HttpEngine | None, whole: bool
) -> tuple[Choices, KindReading | None, list[Positions]]:
    """The choices of an answer, their kind, and which rows of each are to be fetched (None: all)."""
    choices = read()
    if engine is None:
        return choices, None, []
    tokens = [answer.tokens for answer in choices.answers]
    reading = settle(best, tokens, _router(engine))
    if whole:
        return choices, reading, [None] * len(tokens)
    if reading.kind is None:
        return choices, reading, [np.empty(0, np.int32)] * len(tokens)  # nothing will be read
    profile, kind = rows_read(best, reading.kind), reading.kind
    return choices, reading, [profile.kept_rows(ids, engine.vocab, kind) for ids in tokens]


def no_routing(detail: str) -> ApiError:
    """The refusal of best-of-N where no server gives routing; nothing has been sampled yet."""
    return ApiError(
        400,
        "routing_unavailable",
        "the model server gives no routing, and without it nothing is selected: ask with "
        '"radmoe": {"fallback": "likelihood"} to get the likeliest rollout; the operator finds the reason in the log',
        param="radmoe",
        detail=detail,
    )


def _sampled(read: Choices, rollouts: Any, router: Router | None, reading: Any, trouble: str = "") -> SampledRollouts:
    return SampledRollouts(
        choices=read.documents,
        usage=read.usage,
        tokens=sum(len(answer.tokens) for answer in read.answers) or int(read.usage.get("completion_tokens", 0)),
        rollouts=rollouts,
        router=router,
        reading=reading,
        trouble="the model server gives no routing" if rollouts is None and not reading else trouble,
        likelihoods=read.likelihoods,
        prompt=read.prompt,
    )


def _request(prompt: Prompt, rollout: int) -> RolloutRequest:
    sampling = prompt.sampling
    return RolloutRequest(
        tuple(prompt.ids), sampling.max_tokens, sampling, sampling.seed + rollout, len(prompt.ids) - 1
    )


def _from_tokens(
    ask: ApiRequest, best: Best, prompt: Prompt, answers: list[Answer], engine: HttpEngine
) -> SampledRollouts:
    router, tokens, length = Router(engine.shape, engine.vocab), [answer.tokens for answer in answers], len(prompt.ids)
    texts = [completion_text(engine.tokenizer, answer.tokens, answer.reason) for answer in answers]
    total = sum(map(len, tokens))
    return SampledRollouts(
        choices=[choice_of(ask, i, text, answers[i].reason, engine.vocab) for i, text in enumerate(texts)],
        usage=usage_of(length, total),
        tokens=total,
        rollouts=lambda: [engine.rollout(answer, length, first=length - 1) for answer in answers],
        router=router,
        reading=settle(best, tokens, router),
        likelihoods=[likelihood(answer.sampled) for answer in answers if answer.sampled is not None] or None,
        prompt=prompt.text,
    )


# -- plain requests ----------------------------------------------------------------------------


async def _parts(upstream: Upstream, response: httpx.Response, most: int) -> AsyncIterator[bytes]:
    """What an upstream streams, as it comes; an ApiError where it breaks off, falls silent or has no end."""
    size, parts, idle = 0, response.aiter_raw(), None
    try:
        while True:
            async with asyncio.timeout(idle):
                with connection_to(upstream.url):
                    part = await anext(parts, None)
            if part is None:
                return
            size, idle = size + len(part), _IDLE_SECONDS
            if size > most:
                raise bad_gateway(f"{upstream.url} streamed more than {most:,} bytes")
            yield part
    except TimeoutError:
        raise bad_gateway(f"{upstream.url} streamed nothing for {_IDLE_SECONDS:g} s") from None
    except Busy as error:
        raise bad_gateway(str(error)) from None


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body
