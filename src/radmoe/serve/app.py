"""The routes: OpenAI's, /health, /metrics, and the page of the last selections."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from radmoe.serve import live, replies
from radmoe.serve.api_errors import ApiError, internal
from radmoe.serve.api_request import ApiRequest, Route, read_request
from radmoe.serve.backends import Plain, RequestProgress, in_thread
from radmoe.serve.same_site import SameSiteOnly
from radmoe.serve.service import Service
from radmoe.serve.telemetry import REQUEST_ID, as_fault, log, log_error
from radmoe.system.printing import json_text

_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_STREAM = "text/event-stream; charset=utf-8"
_LARGE = 1 << 16  # bytes of a body that is not read on the event loop
_BODY_SECONDS = 60.0  # in which the body of a request must be there
_DRAIN_SECONDS, _DRAIN_BYTES = 1.0, 16 << 20  # of a body that is refused
_REQUEST_ID, _PRINTABLE = "x-request-id", re.compile(r"[!-~]{1,128}")
_GONE = 499  # a client that left, as nginx numbers it; nobody reads it


def build(service: Service) -> FastAPI:
    """The application of a service that has been started."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await service.close()

    app = FastAPI(title="radmoe", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    if not service.settings.keys:
        own, pages = service.settings.host, service.settings.cors
        app.add_middleware(SameSiteOnly, own=own, pages=pages, refuse=_refuse_unread)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.settings.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=[_REQUEST_ID, "retry-after"],
        )
    digests = [hashlib.sha256(key.encode()).digest() for key in service.settings.keys]

    def check_key(request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(given.strip().encode()).digest()
        matches = [hmac.compare_digest(digest, known) for known in digests]  # all of them, whichever matches
        if digests and not (any(matches) and scheme.lower() == "bearer"):
            raise ApiError(401, "invalid_api_key", "this gateway needs an API key: send Authorization: Bearer KEY")

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        check_key(request)
        return await _complete(request, "chat", service)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        check_key(request)
        return await _complete(request, "text", service)

    @app.get("/v1/models")
    async def models(request: Request) -> Response:
        check_key(request)
        return answer({"object": "list", "data": _models(service)})

    @app.get("/v1/models/{name:path}")
    async def model(request: Request, name: str) -> Response:
        check_key(request)
        for card in _models(service):
            if card["id"] == name:
                return answer(card)
        raise ApiError(404, "model_not_found", "there is no such model here: /v1/models lists them", param="model")

    @app.get("/health")
    async def health() -> Response:
        well = bool(service.backend.models())
        document = {"status": "ok" if well else "no model server is up", "running": service.gate.running}
        return answer(document | {"waiting": service.gate.waiting} | service.backend.status(), 200 if well else 503)

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        check_key(request)
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8", headers=_HEADERS)

    live.add_routes(app, service, check_key)

    @app.exception_handler(ApiError)
    async def fault(request: Request, error: ApiError) -> Response:
        return refuse(as_fault(error))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        code = "not_found" if error.status_code == 404 else "method_not_allowed"
        return refuse(
            ApiError(error.status_code, code, "this gateway has no such route: it answers /v1/chat/completions")
        )

    app.add_middleware(_Framed, service=service)
    return app


def answer(document: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer in ASCII."""
    return Response(json_text(document), status, _HEADERS | (headers or {}), "application/json")


def refuse(fault: ApiError) -> Response:
    """An error in OpenAI's shape."""
    close = {"Connection": "close"} if fault.unread else {}
    return answer(fault.document(), fault.status, fault.headers | close)


async def _refuse_unread(scope: Scope, receive: Receive, send: Send, fault: ApiError) -> None:
    """Answer with an error before the body has been read."""
    log("refused", level="warning", path=scope["path"][:200], code=fault.code)
    fault.unread = not await _drained(receive)
    await refuse(fault)(scope, receive, send)


async def _drained(receive: Receive) -> bool:
    """Read and discard the rest of a body for a moment, so that a client that is still sending sees the answer.

    Returns whether the body came to its end.
    """
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while size < _DRAIN_BYTES:
                part, more = await _part(receive)
                size += len(part)
                del part
                if not more:
                    return True
    return False


async def _part(receive: Receive) -> tuple[bytes, bool]:
    """The next part of a request's body, and whether more will follow. Raises ClientDisconnect where the client has left."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


async def read_body(request: Request, service: Service, progress: RequestProgress) -> bytes:
    """The body of a request, which counts as waiting while it is read; an ApiError as soon as it is too large or too late."""
    most, seconds = service.settings.largest_body, min(_BODY_SECONDS, service.settings.deadline)
    too_large = ApiError(413, "body_too_large", f"a request may have {most:,} bytes: send a shorter one")
    length = request.headers.get("content-length", "0")
    body = bytearray()
    try:
        if not length.isdecimal() or len(length) > 18 or int(length) > most:
            raise too_large
        async with service.gate.arriving(most, seconds) as grew:
            more = True
            while more:
                part, more = await _part(request.receive)
                body += part
                del part  # while the next one is waited for
                if len(body) > most:
                    raise too_large
                grew(len(body))
        return bytes(body)
    except TimeoutError:
        late = ApiError(408, "body_timeout", f"the request's body was not there within {seconds:g} s")
        late.unread = True
        raise late from None
    except ApiError as fault:
        fault.unread = True
        raise
    finally:
        body.clear()  # the trace of an error would keep it until the answer is given, or longer
        progress.queue_seconds += progress.seconds


async def _complete(request: Request, route: Route, service: Service) -> Response:
    """Answer one of OpenAI's completion routes, and log it."""
    client = None if request.client is None else request.client.host
    progress = RequestProgress(route, f"{'chatcmpl' if route == 'chat' else 'cmpl'}-{uuid.uuid4().hex}", client)
    try:
        data = await read_body(request, service, progress)
        parsed = partial(read_request, data, route, service.settings)
        ask = progress.ask = await in_thread(parsed) if len(data) > _LARGE else parsed()
        if ask.best is None and service.forwarder is not None:
            plain = await _while_here(request, lambda: service.plain(ask, data, progress))
            return _Passing(plain, partial(_note_end, service, progress))
        if ask.stream:
            work, seconds = partial(_work, service, ask, progress), service.settings.keep_alive
            return StreamingResponse(replies.stream(ask, work, progress, seconds), 200, _HEADERS, _STREAM)
        response = answer(await _while_here(request, lambda: service.answer(ask, progress)))
    except Exception as error:
        fault = _fault(error)
        if fault.unread and fault.status == 429:  # the others have sent too much, or nothing
            fault.unread = not await _drained(request.receive)
        _note(service, progress, fault)
        return refuse(fault)
    _note(service, progress, None)
    return response


async def _work(service: Service, ask: ApiRequest, progress: RequestProgress) -> dict[str, Any]:
    """The answer to a streamed request; its end is logged here, as its response has begun long before."""
    fault = None
    try:
        return await service.answer(ask, progress)
    except (Exception, asyncio.CancelledError) as error:
        fault = _fault(error)
        raise (fault if isinstance(error, Exception) else error) from None
    finally:
        _note(service, progress, fault)


def _fault(error: BaseException) -> ApiError:
    """The error that a request ends with, which is logged."""
    if isinstance(error, ClientDisconnect | ConnectionResetError | asyncio.CancelledError):
        return ApiError(_GONE, "client_gone", "the client has left")
    return as_fault(error)


class _Framed:
    """Middleware around every request: the id that its answer and its lines of the log have, and unexpected errors.

    The id is the client's own X-Request-Id where it sends one that can be printed. An unexpected error is logged, counted, and
    answered with status 500 if no answer has begun.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(_REQUEST_ID, "")
        identity = given if _PRINTABLE.fullmatch(given) else uuid.uuid4().hex
        REQUEST_ID.set(identity)
        began = False

        async def sending(message: Message) -> None:
            nonlocal began
            began = True
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[_REQUEST_ID] = identity
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            log_error(error, path=scope["path"][:200])
            self._service.metrics.requests.labels("other", "none", "500").inc()
            if not began:
                await refuse(internal(""))(scope, receive, sending)


class _Passing(StreamingResponse):
    """Passes the answer of an upstream on, and releases its connection even if the client leaves before the first byte."""

    def __init__(self, plain: Plain, end: Callable[[], None]) -> None:
        super().__init__(plain.parts, 200, _HEADERS, plain.content_type)
        self._close, self._end = plain.close, end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._close()
            self._end()


async def _while_here(request: Request, work: Callable[[], Awaitable[Any]]) -> Any:
    """The result of some work, which is cancelled when the client leaves; then ClientDisconnect is raised."""
    task = asyncio.ensure_future(work())
    gone = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            with suppress(BaseException):
                await task


async def _left(request: Request) -> None:
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _note_end(service: Service, progress: RequestProgress) -> None:
    """Note a request that was passed on, once it has ended; one that neither ended nor failed was left by its client."""
    done = progress.fault is not None or progress.stage == "done"
    _note(service, progress, progress.fault if done else _fault(ClientDisconnect()))


def _note(service: Service, progress: RequestProgress, fault: ApiError | None) -> None:
    """Write the log line of a request and update the metrics."""
    ask, status = progress.ask, 200 if fault is None else fault.status
    best = None if ask is None else ask.best
    mode = "none" if ask is None else "plain" if best is None else "best"
    service.metrics.requests.labels(progress.route, mode, str(status)).inc()
    if status == 200:
        service.metrics.time(mode, progress)
    elif status == _GONE:
        service.metrics.gone.inc()
    prompts = ask is not None and service.settings.log_prompts
    log(
        "request",
        id=progress.identity,
        client=progress.client,
        route=progress.route,
        mode=mode,
        status=status,
        code=None if fault is None else fault.code,
        model=None if ask is None else ask.model[:200],
        n=None if best is None else best.n,
        method=progress.method,
        margin=None if progress.margin is None else round(progress.margin, 6),
        seconds=round(progress.seconds, 4),
        queue=round(progress.queue_seconds, 4),
        upstream=round(progress.upstream_seconds, 4),
        prompt=(ask.body.get("messages") or ask.body.get("prompt")) if ask is not None and prompts else None,
    )


def _models(service: Service) -> list[dict[str, Any]]:
    """Every model, and every model as best-of-N."""
    cards = []
    for name, context in service.backend.models().items():
        own = {"object": "model", "created": 0, "owned_by": "radmoe", "max_model_len": context}
        cards += [{"id": each} | own for each in (name, f"{name}#rad-{service.settings.rollouts}")]
    return cards
