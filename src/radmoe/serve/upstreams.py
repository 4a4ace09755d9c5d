"""Servers behind the gateway: what they serve, whether they are up, how much they have to do, and retries."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from radmoe.engines.http import HttpEngine, SglangHttpEngine, VllmHttpEngine
from radmoe.engines.http.client import (
    BUSY,
    LONGEST_WAIT,
    Busy,
    Client,
    ModelServer,
    NoConnection,
    Refused,
    with_retries,
)
from radmoe.errors import EngineError, InputError, RadmoeError
from radmoe.serve.api_errors import ApiError, bad_gateway
from radmoe.serve.telemetry import log

Result = TypeVar("Result")

_HEALTH_SECONDS = 5.0  # between two looks at a server
_HEALTH_LIMIT = 4.0  # seconds that a server may take to say that it is well
_FIRST_WAIT = 0.25  # seconds before the first repetition of a request
_PROBE_SECONDS = 60.0  # for the two tokens that show whether a server returns routing
_THEIR_ERRORS = frozenset({400, 404, 413, 422})  # of an upstream that are about the client's request
_LOOKERS = ThreadPoolExecutor(8, "radmoe-look")  # their own: servers that hang must not take the threads of requests
_KINDS: dict[str, tuple[type[HttpEngine], tuple[str, ...]]] = {
    "vllm": (VllmHttpEngine, ("/version",)),
    "sglang": (SglangHttpEngine, ("/server_info", "/get_server_info")),
}


@dataclass(frozen=True)
class Card:
    """What is known about a server. `engine` knows its router and tokens; None where it gives no routing, and
    `trouble` says why."""

    kind: str  # "vllm", "sglang" or "other"
    models: dict[str, int | None]  # names, with the longest context where it is known
    engine: HttpEngine | None
    trouble: str


class Answers:
    """A limit on the bytes of all answers that are being read at a time."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0

    @contextmanager
    def reading(self) -> Iterator[Callable[[int], None]]:
        """Yields a function to call with the size of every part; it raises EngineError if the limit is passed."""
        own = 0

        def grew(size: int) -> None:
            nonlocal own
            own += size
            self._held += size
            if self._held > self._most:
                raise EngineError(f"the answers under way have more than {self._most:,} bytes: see --largest-answer")

        try:
            yield grew
        finally:
            self._held -= own


class Upstream:
    """One server. `answers` is shared by all of them."""

    def __init__(self, number: int, url: str, model: str | None, key: str | None, answers: Answers) -> None:
        self.client = Client(url, key)
        self.name, self.url = f"upstream-{number}", self.client.url
        self._model, self._key, self._answers = model, key, answers
        self.up, self.load = False, 0
        self._logged: tuple[bool, str] | None = None
        self.look_now = asyncio.Event()
        self.card = Card("other", {}, None, "the server has not been reached yet")

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Count a request as under way during the block."""
        self.load += 1
        try:
            yield
        finally:
            self.load -= 1

    async def ask(self, path: str, data: bytes, most: int, *, busy: frozenset[int] = BUSY) -> bytes:
        """Send a POST request and return the body of the answer. Errors are translated by `asked`."""
        with self.asked(), self._answers.reading() as grew:
            return await self.client.ask("POST", path, data, most, busy=busy, grew=grew)

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Translate the errors of a request to the server into those that a client sees.

        Busy stays, as another attempt may succeed. The reason why the server refused the request itself is passed on;
        every other error becomes an ApiError that tells nothing about the server.
        """
        try:
            yield
        except Busy as error:
            self.up = self.up and not isinstance(error, NoConnection)  # the next look, which comes at once, logs it
            raise
        except Refused as error:
            if error.status in _THEIR_ERRORS:
                raise ApiError(error.status, "upstream_refused", error.reason, detail=str(error)) from None
            raise bad_gateway(str(error)) from None
        except EngineError as error:
            raise bad_gateway(str(error)) from None

    async def watch(self) -> None:
        """Check the server's health every few seconds, and soon after a failed request."""
        while True:
            self.look_now.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.look_now.wait(), _HEALTH_SECONDS)
                await asyncio.sleep(_FIRST_WAIT)  # several requests may have failed at once
            await self.look()

    async def look(self) -> None:
        """Check the server's health, and if it has come up find out what it serves."""
        try:
            async with asyncio.timeout(_HEALTH_LIMIT):
                try:
                    await self.client.ask("GET", "/health", None, 1 << 20)
                except Refused as error:
                    if error.status != 404:  # a server without such a route
                        raise
                    await self.client.ask("GET", "/v1/models", None, 4 << 20)
            if not self.up:
                looking = asyncio.get_running_loop().run_in_executor(
                    _LOOKERS, find_out, self.url, self._model, self._key
                )
                self.card = await looking
            self._become(True, self.card.trouble)
        except TimeoutError:
            self._become(False, f"it did not say within {_HEALTH_LIMIT:g} s that it is well")
        except RadmoeError as error:
            self._become(False, str(error))

    def _become(self, up: bool, reason: str) -> None:
        """Note whether the server is up, and log it at the start and whenever it or the reason has changed."""
        self.up = up
        if (up, reason) == self._logged:
            return
        self._logged, card = (up, reason), self.card
        known = {"kind": card.kind, "routing": card.engine is not None} if up else {}
        level = "info" if up and not reason else "warning"
        log("upstream", level=level, upstream=self.name, url=self.url, up=up, **known, detail=reason)


def find_out(url: str, model: str | None, key: str | None) -> Card:
    """Find out what kind of server this is and what it serves. Raises EngineError if it does not list its models."""
    server = ModelServer(url, timeout=_PROBE_SECONDS, retries=0, api_key=key)
    try:
        cards = server.get("/v1/models").get("data").items()
        models: dict[str, int | None] = {}
        for card in cards:
            longest = card.maybe("max_model_len")
            models[card.get("id").text()] = None if longest is None else longest.integer(1, 1 << 32)
        if not models:
            raise EngineError(f"{server.url} serves no model")
        kind = next((kind for kind, (_, paths) in _KINDS.items() if _answers(server, paths)), "other")
    finally:
        server.close()
    if kind == "other":
        return Card(kind, models, None, "it is neither vLLM nor SGLang, so it gives no routing")
    engine_class, _ = _KINDS[kind]
    try:
        engine = engine_class(url, model, served=next(iter(models)), timeout=_PROBE_SECONDS, retries=1, api_key=key)
    except (EngineError, InputError) as error:
        return Card(kind, models, None, str(error))
    engine.close()  # what it found out stays
    return Card(kind, models, engine, "")


def _answers(server: ModelServer, paths: tuple[str, ...]) -> bool:
    for path in paths:
        with suppress(EngineError):
            if isinstance(server.get(path).value, dict):
                return True
    return False


class Fleet:
    """All servers. A request goes to the one with the fewest requests, and to another one if that fails."""

    def __init__(self, upstreams: list[Upstream], retries: int) -> None:
        self.upstreams, self._retries = upstreams, retries
        self._health: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Check every server once, and then regularly."""
        await asyncio.gather(*(upstream.look() for upstream in self.upstreams))
        self._health = [asyncio.create_task(upstream.watch()) for upstream in self.upstreams]

    async def close(self) -> None:
        for task in self._health:
            task.cancel()
        await asyncio.gather(*self._health, return_exceptions=True)
        for upstream in self.upstreams:
            await upstream.client.close()

    def models(self) -> dict[str, int | None]:
        """Every model of a server that is up."""
        return {name: most for upstream in self.upstreams if upstream.up for name, most in upstream.card.models.items()}

    async def attempt(
        self, model: str, work: Callable[[Upstream], Awaitable[Result]], *, routing: bool = False
    ) -> Result:
        """Run `work` with a server that has this model, and on Busy again with another one, or later.

        With `routing`, servers that give routing come first. Raises an ApiError where all attempts are spent.
        """
        tried: list[Upstream] = []
        last = Busy("no server is up")

        async def once() -> Result:
            nonlocal last
            upstream = self._choose(model, tried, routing)
            if upstream is None:
                last.elsewhere = False
                raise last
            try:
                with upstream.lease():
                    return await work(upstream)
            except Busy as error:
                last = error
                tried.append(upstream)
                upstream.look_now.set()
                log("retry", level="warning", upstream=upstream.name, attempt=len(tried), detail=str(error))
                error.elsewhere = self._choose(model, tried, routing) not in (None, *tried)
                raise

        try:
            return await with_retries(once, self._retries, _FIRST_WAIT, patience=math.inf, longest_after=LONGEST_WAIT)
        except Busy as error:
            if error.status == 429:
                message, after = "the model servers are busy: come back later", error.after or 5.0
                raise ApiError(429, "upstream_busy", message, after=after, detail=str(error)) from None
            message = "no model server answers at the moment: come back later"
            raise ApiError(503, "upstream_unavailable", message, after=5.0, detail=str(error)) from None

    def _choose(self, model: str, tried: list[Upstream], routing: bool) -> Upstream | None:
        able = [upstream for upstream in self.upstreams if upstream.up and model in upstream.card.models]

        def cost(upstream: Upstream) -> tuple[Any, ...]:
            no_routing = routing and upstream.card.engine is None
            return tried.count(upstream), no_routing, upstream.load, random.random()

        return min(able, key=cost, default=None)


def unknown_model(name: str, known: dict[str, int | None]) -> ApiError:
    """The refusal of a model that is not served."""
    names = ", ".join(list(known)[:8]) or "none at the moment"
    shown = name if len(name) <= 80 else f"{name[:77]}..."
    return ApiError(404, "model_not_found", f"there is no model {shown!r} here: use {names}", param="model")
