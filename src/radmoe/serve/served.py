"""The backend of servers: vLLM, stock or with the plugin, is asked on its own endpoints; SGLang by token ids."""

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

from radmoe.engines.base import Completion, Sampling, completion_text
from radmoe.engines.checkpoint import Checkpoint
from radmoe.engines.http import HttpEngine
from radmoe.engines.http.dialects import Answer, Request, Sglang, answer_limit, logprobs_of
from radmoe.engines.http.fields import parse
from radmoe.engines.http.routed import generated
from radmoe.engines.http.wire import BUSY, SMALL_BYTES, SMALL_VALUES, Limit, Reply, reason_of
from radmoe.engines.models import resolve_model
from radmoe.engines.vllm.plugin.endpoint import ROUTING
from radmoe.errors import EngineError, RadmoeError
from radmoe.pool.profile import spans
from radmoe.selection.confidence import likelihood
from radmoe.serve.asks import Ask, Best
from radmoe.serve.backends import Backend, Plain, Progress, Router, Sampled, in_thread, usage_of
from radmoe.serve.faults import Fault, bad_gateway, broken_routing
from radmoe.serve.picks import Reading, logprobs_needed, rows_read, settle
from radmoe.serve.rendered import Prompt, Renderer, choice_of
from radmoe.serve.settings import Settings
from radmoe.serve.upstreams import Answers, Fleet, Lost, Upstream, unknown_model
from radmoe.serve.vllm_answers import Choices, body_for, plugin_rollouts, read_choices, stock_rollouts
from radmoe.types import Rollout

PATHS = {"chat": "/v1/chat/completions", "text": "/v1/completions"}
Positions = NDArray[np.int32] | None
_LONG_CONTEXT = 1 << 17  # tokens, where a server does not say its context
_ERROR_BYTES = 1 << 14
_LARGE_ANSWER = 16 << 20  # bytes of an answer that is read alone, as its values take many times its bytes
_VALUE_BYTES = 32  # of an answer per value in it, at least: a value takes up to 100 bytes of memory
_STREAMED = 8  # times the bytes of a whole answer: every token comes in an event of its own
_IDLE_SECONDS = 120.0  # that may pass between two parts of a stream, once it has begun
_ROWS_LOST = BUSY | {409}  # the plugin's rows made room for others: sample again


class Served(Backend):
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

    async def plain(self, ask: Ask, data: bytes, progress: Progress) -> Plain:
        self._check_model(ask)

        async def whole(upstream: Upstream) -> Reply:
            return await upstream.ask("POST", PATHS[ask.route], data, self._limit(upstream, ask, ask.choices, 20).size)

        async def begin(upstream: Upstream) -> Plain:
            response = await _begin(upstream, PATHS[ask.route], data)
            held = AsyncExitStack()
            held.enter_context(upstream.lease())
            held.push_async_callback(response.aclose)
            parts = _parts(upstream, response, self._limit(upstream, ask, ask.choices, 20).size * _STREAMED)
            return Plain("text/event-stream; charset=utf-8", parts, held.aclose)

        with progress.upstream():
            if ask.stream:
                return await self.fleet.attempt(ask.model, begin)
            reply = await self.fleet.attempt(ask.model, whole)
        return Plain("application/json", _one(reply.body), AsyncExitStack().aclose)

    async def sample(self, ask: Ask, n: int, best: Best | None, progress: Progress, *, first: int = 0) -> Sampled:
        assert best is not None  # plain requests are passed on
        self._check_model(ask)
        upstreams = [upstream for upstream in self.fleet.upstreams if upstream.up and ask.model in upstream.card.models]
        engines = [upstream.card.engine for upstream in upstreams if upstream.card.engine is not None]
        if upstreams and not engines and best.fallback is None:
            raise no_routing("; ".join(upstream.card.trouble for upstream in upstreams))
        self._name_source()
        if any(isinstance(engine.dialect, Sglang) for engine in engines):
            return await self._by_tokens(ask, n, best, progress, first)

        async def work(upstream: Upstream) -> Sampled:
            return await self._vllm(upstream, ask, n, best, progress, first)

        return await self.fleet.attempt(ask.model, work, routing=True)

    # -- vLLM ----------------------------------------------------------------------------------

    async def _vllm(self, upstream: Upstream, ask: Ask, n: int, best: Best, progress: Progress, first: int) -> Sampled:
        """One request for all n rollouts, so that the prompt is computed once; then the plugin's rows."""
        engine, key = upstream.card.engine, uuid.uuid4().hex
        if engine is None and best.fallback is None:  # the others, which give routing, have failed
            raise no_routing(upstream.card.trouble)
        wanted, limit = logprobs_needed(best), self._limit(upstream, ask, n, max(logprobs_needed(best), 20))
        plugin = engine is not None and engine.plugin is not None
        body = json.dumps(body_for(ask, n, wanted, key if plugin else None, first)).encode()
        with progress.upstream():
            reply = await upstream.ask("POST", PATHS[ask.route], body, limit.size)
        progress.finished += n
        work = partial(read_choices, reply.body, upstream.url, ask, n, engine, wanted, limit.values)
        try:
            async with self._large if len(reply.body) > _LARGE_ANSWER else nullcontext():
                read, reading, positions = await in_thread(_understand, work, best, engine, self._whole_rows)
        except RadmoeError as error:
            raise bad_gateway(str(error)) from None
        if engine is None:
            return _sampled(read, None, None, None, upstream.card.trouble)
        router = _router(engine)
        if not plugin:
            return _sampled(read, lambda: stock_rollouts(read, engine), router, reading)
        ranges = {str(i): spans(rows) for i, rows in enumerate(positions) if rows is not None}
        ask_rows = json.dumps({"key": key, "n": n} | ({"spans": ranges} if ranges else {})).encode()
        try:
            with progress.upstream():
                payload = (await upstream.ask("POST", ROUTING, ask_rows, limit.size, lost=_ROWS_LOST)).body
        except Fault as fault:
            if best.fallback is None:
                raise broken_routing(fault.detail or str(fault)) from None
            return _sampled(read, None, router, reading, "the model server did not hand its routing out")
        return _sampled(read, lambda: plugin_rollouts(payload, read, engine, positions), router, reading)

    # -- SGLang --------------------------------------------------------------------------------

    async def _by_tokens(self, ask: Ask, n: int, best: Best, progress: Progress, first: int) -> Sampled:
        """One request per rollout, each to the server with the least to do."""
        engine = self._engine()
        assert engine is not None
        prompt = await self._render(ask, engine, max(logprobs_needed(best), 1))
        if prompt.stops:
            raise Fault(400, "unsupported_field", "stop is not supported before SGLang: leave it out", param="stop")

        async def rollout(i: int) -> Answer:
            request = _request(prompt, i)
            data = json.dumps(Sglang().body(request)).encode()
            limit = answer_limit(request, engine.local)

            async def work(upstream: Upstream) -> Answer:
                reply = await upstream.ask("POST", "/generate", data, min(limit.size, self._largest))
                try:
                    field = await in_thread(
                        parse, reply.body, upstream.url, min(limit.values, self._largest // _VALUE_BYTES)
                    )
                    answer: Answer = await in_thread(Sglang().read, field, request, engine.local)
                except RadmoeError as error:
                    raise bad_gateway(str(error)) from None
                return answer

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
        """What knows the router of a server that is up."""
        return next((up.card.engine for up in self.fleet.upstreams if up.up and up.card.engine is not None), None)

    def _name_source(self) -> None:
        """Note where rollouts come from, once a server that gives routing is known."""
        engine = self._engine()
        if engine is not None:
            self.record, self.provenance = {"engine": engine.name, "dtype": engine.dtype}, engine.provenance()

    def _limit(self, upstream: Upstream, ask: Ask, n: int, logprobs: int) -> Limit:
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
            size, values = answer_limit(Request((), positions, Sampling(topk_logprobs=logprobs), 0, 0), engine.local)
        most = self._largest
        return Limit(min(SMALL_BYTES + n * size, most), min(SMALL_VALUES + n * values, most // _VALUE_BYTES))

    def _check_model(self, ask: Ask) -> None:
        known = self.models()
        every = {name for upstream in self.fleet.upstreams for name in upstream.card.models}
        if ask.model not in known and (known or every) and ask.model not in every:
            raise unknown_model(ask.model, known)


def _router(engine: HttpEngine) -> Router:
    return Router(engine.shape, engine.vocab, engine.layers)


def _understand(
    read: Callable[[], Choices], best: Best, engine: HttpEngine | None, whole: bool
) -> tuple[Choices, Reading | None, list[Positions]]:
    """The choices of an answer, their kind, and which rows of each are to be fetched (None: all)."""
    choices = read()
    if engine is None:
        return choices, None, []
    reading = settle(best, choices.tokens, _router(engine))
    if whole:
        return choices, reading, [None] * len(choices.tokens)
    if reading.kind is None:
        return choices, reading, [np.empty(0, np.int32)] * len(choices.tokens)  # nothing will be read
    profile, kind = rows_read(best, reading.kind), reading.kind
    return choices, reading, [profile.kept_rows(ids, engine.vocab, kind) for ids in choices.tokens]


def no_routing(detail: str) -> Fault:
    """The refusal of best-of-N where no server gives routing; nothing has been sampled yet."""
    return Fault(
        400,
        "routing_unavailable",
        "the model server gives no routing, and without it nothing is selected: ask with "
        '"radmoe": {"fallback": "likelihood"} to get the likeliest rollout; the operator finds the reason in the log',
        param="radmoe",
        detail=detail,
    )


def _sampled(read: Choices, rollouts: Any, router: Router | None, reading: Any, trouble: str = "") -> Sampled:
    return Sampled(
        choices=read.documents,
        usage=read.usage,
        tokens=sum(len(ids) for ids in read.tokens) or int(read.usage.get("completion_tokens", 0)),
        rollouts=rollouts,
        router=router,
        reading=reading,
        trouble="the model server gives no routing" if rollouts is None and not reading else trouble,
        likelihoods=read.likelihoods,
        prompt=read.prompt,
    )


def _request(prompt: Prompt, rollout: int) -> Request:
    sampling = prompt.sampling
    return Request(tuple(prompt.ids), sampling.max_tokens, sampling, sampling.seed + rollout, len(prompt.ids) - 1)


def _from_tokens(ask: Ask, best: Best, prompt: Prompt, answers: list[Answer], engine: HttpEngine) -> Sampled:
    router, logprobs = Router(engine.shape, engine.vocab), [logprobs_of(answer) for answer in answers]
    tokens = [np.array(answer.tokens, np.int32) for answer in answers]

    def rollouts() -> list[Rollout]:
        made = []
        for answer, ids, (sampled, top) in zip(answers, tokens, logprobs, strict=True):
            if answer.raw is None:
                raise EngineError(f"this server returns no routing: {engine.dialect.flag}")
            rows = generated(answer.raw, answer.first, len(prompt.ids), len(ids), engine.local, engine.dialect.kernel)
            made.append(Rollout(ids, rows, None, sampled, top))
        return made

    completions = [
        Completion(0, i, None, completion_text(engine.tokenizer, ids, answer.reason), answer.reason)  # type: ignore[arg-type]
        for i, (answer, ids) in enumerate(zip(answers, tokens, strict=True))
    ]
    total = sum(map(len, tokens))
    return Sampled(
        choices=[choice_of(ask, i, done, engine.vocab) for i, done in enumerate(completions)],
        usage=usage_of(len(prompt.ids), total),
        tokens=total,
        rollouts=rollouts,
        router=router,
        reading=settle(best, tokens, router),
        likelihoods=[likelihood(sampled) for sampled, _ in logprobs if sampled is not None] or None,
        prompt=prompt.text,
    )


# -- plain requests ----------------------------------------------------------------------------


async def _begin(upstream: Upstream, path: str, data: bytes) -> httpx.Response:
    """The head of an answer that comes in parts. Raises Lost or a Fault as `Upstream.ask` does."""
    request = upstream.client.build_request("POST", upstream.url + path, content=data)
    try:
        response = await upstream.client.send(request, stream=True)
    except httpx.ConnectError as error:
        upstream.up = False
        raise Lost(f"no connection to {upstream.url} ({reason_of(error)})") from None
    except httpx.TransportError as error:
        raise Lost(f"the connection to {upstream.url} broke ({reason_of(error)})") from None
    if response.status_code == 200 and response.headers.get("content-encoding", "identity") in ("", "identity"):
        return response
    body = bytearray()
    try:
        async for part in response.aiter_raw():
            body += part
            if len(body) > _ERROR_BYTES:
                break
    except httpx.TransportError as error:
        raise Lost(f"the connection to {upstream.url} broke ({reason_of(error)})") from None
    finally:
        await response.aclose()
    if response.status_code == 200:
        raise bad_gateway(f"{upstream.url} answered in an encoding that nobody asked for")
    raise upstream.refusal(Reply(response.status_code, bytes(body), None))


async def _parts(upstream: Upstream, response: httpx.Response, most: int) -> AsyncIterator[bytes]:
    """What an upstream streams, as it comes; a Fault where it breaks off, falls silent or has no end."""
    size, parts, idle = 0, response.aiter_raw(), None
    try:
        while True:
            async with asyncio.timeout(idle):
                part = await anext(parts, None)
            if part is None:
                return
            size, idle = size + len(part), _IDLE_SECONDS
            if size > most:
                raise bad_gateway(f"{upstream.url} streamed more than {most:,} bytes")
            yield part
    except TimeoutError:
        raise bad_gateway(f"{upstream.url} streamed nothing for {_IDLE_SECONDS:g} s") from None
    except httpx.TransportError as error:
        raise bad_gateway(f"the connection to {upstream.url} broke ({reason_of(error)})") from None


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body
