"""The routes: OpenAI's, /health, /metrics, and the page of the last selections."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from radmoe.serve import live, replies
from radmoe.serve.api_errors import ApiError, internal
from radmoe.serve.api_request import ApiRequest, Route, read_request
from radmoe.serve.backends import Plain, RequestProgress, in_thread
from radmoe.serve.same_site import SameSiteOnly
from radmoe.serve.service import Service
from radmoe.serve.telemetry import log, log_error
from radmoe.system.printing import json_text

_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_STREAM = "text/event-stream; charset=utf-8"
_LARGE = 1 << 16  # bytes of a body that is not read on the event loop
_BODY_SECONDS = 60.0  # in which the body of a request must be there
_DRAIN_SECONDS, _DRAIN_BYTES = 1.0, 16 << 20  # of a body that is refused
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
        app.add_middleware(SameSiteOnly, own=service.settings.host, refuse=_refuse_unread)
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
        if error.detail:
            log("fault", level="warning", path=request.url.path, code=error.code, detail=error.detail)
        return refuse(error)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        code = "not_found" if error.status_code == 404 else "method_not_allowed"
        return refuse(
            ApiError(error.status_code, code, "this gateway has no such route: it answers /v1/chat/completions")
        )

    app.add_middleware(_Caught, service=service)
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
    progress, identity, ask, status, code = RequestProgress(), _identity(route), None, 200, None
    streams = False
    try:
        data = await read_body(request, service, progress)
        large = len(data) > _LARGE
        ask = (
            await in_thread(read_request, data, route, service.settings)
            if large
            else read_request(data, route, service.settings)
        )
        if ask.best is None and service.forwarder is not None:
            plain = await _while_here(request, lambda: service.plain(ask, data, progress))
            streams = ask.stream
            end = partial(_note_stream, service, ask, identity, progress) if streams else None
            response: Response = _Passing(plain, end)
        elif ask.stream:
            streams = True
            parts = replies.stream(
                ask,
                identity,
                lambda: _work(service, ask, identity, progress, streams=True),
                progress,
                service.settings.keep_alive,
            )
            response = StreamingResponse(parts, 200, _HEADERS, _STREAM)
        else:
            document = await _while_here(request, lambda: service.answer(ask, identity, progress))
            response = answer(document)
    except ApiError as fault:
        status, code = fault.status, fault.code
        if fault.detail:
            log("fault", level="warning", id=identity, code=fault.code, detail=fault.detail)
        if fault.unread and fault.status == 429:  # the others have sent too much, or nothing
            fault.unread = not await _drained(request.receive)
        response = refuse(fault)
    except (ClientDisconnect, ConnectionResetError):
        status, code = _GONE, "client_gone"
        service.metrics.gone.inc()
        response = Response(status_code=_GONE)
    except Exception as error:
        status, code = 500, "internal_error"
        log_error(error, id=identity)
        response = refuse(internal(""))
    if not streams:
        _note(service, ask, route, identity, progress, status, code)
    return response


async def _work(
    service: Service, ask: ApiRequest, identity: str, progress: RequestProgress, *, streams: bool
) -> dict[str, Any]:
    """The answer to a streamed request; its end is logged here, as its response has begun long before."""
    status, code = 200, None
    try:
        return await service.answer(ask, identity, progress)
    except ApiError as fault:
        status, code = fault.status, fault.code
        if fault.detail:
            log("fault", level="warning", id=identity, code=code, detail=fault.detail)
        raise
    except asyncio.CancelledError:
        status, code = _GONE, "client_gone"
        service.metrics.gone.inc()
        raise
    except Exception as error:
        status, code = 500, "internal_error"
        log_error(error, id=identity)
        raise internal("") from None
    finally:
        _note(service, ask, ask.route, identity, progress, status, code)


class _Caught:
    """Middleware for unexpected errors: each is logged, counted, and answered with status 500 if no answer has begun."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = False

        async def sending(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            if scope["type"] != "http":
                raise
            log_error(error, path=scope["path"][:200])
            self._service.metrics.requests.labels("other", "none", "500").inc()
            if not began:
                await refuse(internal(""))(scope, receive, send)


class _Passing(StreamingResponse):
    """Streams the answer of an upstream, and releases its connection even if the client leaves before the first byte."""

    def __init__(self, plain: Plain, end: Callable[[], None] | None) -> None:
        super().__init__(plain.parts, 200, _HEADERS, plain.content_type)
        self._close, self._end = plain.close, end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._close()
            if self._end is not None:
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


def _note_stream(service: Service, ask: ApiRequest, identity: str, progress: RequestProgress) -> None:
    """Note a stream that was passed on, once it has ended; one that neither ended nor failed was left by its client."""
    fault = progress.fault
    if fault is not None:
        log("fault", level="warning", id=identity, code=fault.code, detail=fault.detail)
        _note(service, ask, ask.route, identity, progress, fault.status, fault.code)
    elif progress.stage == "done":
        _note(service, ask, ask.route, identity, progress, 200, None)
    else:
        service.metrics.gone.inc()
        _note(service, ask, ask.route, identity, progress, _GONE, "client_gone")


def _note(
    service: Service,
    ask: ApiRequest | None,
    route: str,
    identity: str,
    progress: RequestProgress,
    status: int,
    code: str | None,
) -> None:
    """Write the log line of a request and update the metrics."""
    mode = "none" if ask is None else "best" if ask.best is not None else "plain"
    service.metrics.requests.labels(route, mode, str(status)).inc()
    if status == 200:
        service.metrics.time(mode, progress)
    prompts: dict[str, Any] = {}
    if service.settings.log_prompts and ask is not None:
        prompts = {"prompt": ask.body.get("messages") or ask.body.get("prompt")}
    log(
        "request",
        id=identity,
        route=route,
        mode=mode,
        status=status,
        code=code,
        model=None if ask is None else ask.model[:200],
        n=None if ask is None or ask.best is None else ask.best.n,
        seconds=round(progress.seconds, 4),
        queue=round(progress.queue_seconds, 4),
        upstream=round(progress.upstream_seconds, 4),
        **prompts,
    )


def _models(service: Service) -> list[dict[str, Any]]:
    """Every model, and every model as best-of-N."""
    cards = []
    for name, context in service.backend.models().items():
        own = {"object": "model", "created": 0, "owned_by": "radmoe", "max_model_len": context}
        cards += [{"id": each} | own for each in (name, f"{name}#rad-{service.settings.rollouts}")]
    return cards


def _identity(route: Route) -> str:
    return f"{'chatcmpl' if route == 'chat' else 'cmpl'}-{uuid.uuid4().hex}"
