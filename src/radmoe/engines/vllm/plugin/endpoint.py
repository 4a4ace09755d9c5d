"""The routes of `vllm serve` that hand routing out (`vllm.endpoint_plugins`).

GET  /v1/radmoe/status     answers what is captured: the router's shape, layers, rows; or {"error": ...}
POST /v1/radmoe/routing    takes {"key": KEY, "n": 64, "spans": {"0": [[start, stop], ...], ...}}, the last optional;
                           answers application/octet-stream (see payload.py), or 4xx with {"error": ...}

They lie under /v1, so that `--api-key` guards them too.
"""

from __future__ import annotations

from typing import Any

from radmoe.engines.vllm.plugin import NAME, STATUS, TAKE, asked, unknown_vllm
from radmoe.errors import EngineError, InputError

ROUTING, STATUS_PATH = "/v1/radmoe/routing", "/v1/radmoe/status"
OFF = """this server does not capture routing: start it with --additional-config '{"radmoe": {}}'"""


class Endpoint:
    """The plugin's routes; vLLM makes one of these per API server."""

    name = NAME
    required_tasks = ("generate",)

    def attach_router(self, app: Any, *_: Any, **__: Any) -> None:
        """Add the routes. vLLM calls this also where nobody wants routing, so it never raises."""
        try:
            from starlette.routing import Route

            app.router.routes += [
                Route(STATUS_PATH, _status, methods=["GET"]),
                Route(ROUTING, _routing, methods=["POST"]),
            ]
        except Exception as error:
            unknown_vllm(error)

    async def init_state(self, engine_client: Any = None, state: Any = None, *_: Any, **__: Any) -> None:
        """Refuse to start a server that was asked to capture and cannot; any other starts."""
        try:
            state.radmoe = engine_client
        except Exception as error:
            unknown_vllm(error)
        if asked(engine_client):
            status = await call(engine_client, STATUS)
            if "error" in status:
                raise EngineError(status["error"])


async def call(engine: Any, method: str, *args: Any) -> dict[str, Any]:
    """Call a method of the plugin in an asynchronous engine's workers; returns the answer of the one that records."""
    if not asked(engine):
        return {"error": OFF}
    return answered(await engine.collective_rpc(method, args=args))


def answered(answers: list[dict[str, Any] | None]) -> dict[str, Any]:
    """The answer of the worker that records; the others answer None."""
    return next(answer for answer in answers if answer is not None)


def captured_layers(status: dict[str, Any]) -> tuple[int, ...] | None:
    """The MoE layers that a plugin with this status captures; None where it captures all of them."""
    layers = tuple(int(layer) for layer in status["captured_layers"])
    return None if len(layers) == status["layers"] else layers


async def _status(request: Any) -> Any:
    from starlette.responses import JSONResponse

    status = await call(request.app.state.radmoe, STATUS)
    return JSONResponse(status, status_code=409 if "error" in status else 200)


async def _routing(request: Any) -> Any:
    from starlette.responses import JSONResponse, Response

    try:
        wanted = check_request(await request.json())
    except ValueError as error:  # InputError, or no JSON
        return JSONResponse({"error": str(error)}, status_code=400)
    answer = await call(request.app.state.radmoe, TAKE, wanted)
    if "error" in answer:
        return JSONResponse(answer, status_code=409)
    return Response(answer["payload"], media_type="application/octet-stream")


def check_request(body: Any) -> dict[str, Any]:
    """The body of a routing request; InputError where it is malformed."""
    if not isinstance(body, dict) or not set(body) <= {"key", "n", "spans"} or not isinstance(body.get("key"), str):
        raise InputError(f'a routing request is {{"key": text, "n": count, "spans": optional}}, got {str(body)[:80]}')
    n, spans = body.get("n", 1), body.get("spans")
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"n must be the number of choices, at least 1, got {n!r}")
    if spans is not None:
        parts = list(spans.values()) if isinstance(spans, dict) else [None]
        pairs = [pair for part in parts for pair in (part if isinstance(part, list) else [None])]
        if not all(isinstance(p, list) and len(p) == 2 and all(type(x) is int for x in p) for p in pairs):
            raise InputError('spans must be token ranges per choice, such as {"0": [[100, 116]]}')
        if not all(choice.isdecimal() for choice in spans):
            raise InputError(f"spans must be keyed by choice, got {sorted(spans)[:3]}")
    return {"key": body["key"], "n": n, "spans": spans}
