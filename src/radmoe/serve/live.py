"""The page at /: what the gateway does, and its last selections, each with the explorer's page of it. It shows text that models and
clients wrote, so nothing in it is ever markup."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from urllib.parse import quote

from fastapi import FastAPI, Request
from starlette.responses import Response

from radmoe.explorer import Assets, assets, live_page, policy, server_page
from radmoe.serve.api_errors import ApiError
from radmoe.serve.backends import in_thread
from radmoe.serve.service import Service
from radmoe.system.printing import json_text

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_PARTS = ("index", "problem/0")  # of the page of one selection


def add_routes(app: FastAPI, service: Service, check_key: Callable[[Request], None]) -> None:
    """Add the pages and the data that they ask for; the data needs an API key where the gateway has keys."""
    web = files("radmoe.serve") / "web"
    own = Assets(*((web / name).read_text("utf-8") for name in ("live.js", "live.css")))
    front = server_page("radmoe", more=own)

    def html(text: str, rules: str) -> Response:
        headers = _HEADERS | {"Content-Security-Policy": f"{rules}; frame-ancestors 'none'"}
        return Response(text, 200, headers, "text/html; charset=utf-8")

    @app.get("/")
    async def page() -> Response:
        return html(front, policy(assets(own), live=True))

    @app.get("/favicon.ico")
    async def icon() -> Response:
        return Response(status_code=204, headers=_HEADERS)  # there is none, and a browser need not complain

    @app.get("/live")
    async def listed(request: Request, after: int = 0) -> Response:
        check_key(request)
        gate, settings, recent = service.gate, service.settings, service.recent
        document = {
            "started": recent.started,
            "count": recent.count,
            "kept": settings.recent,
            "rollouts": settings.rollouts,
            "models": list(service.backend.models()),
            "running": [gate.running, settings.running],
            "waiting": [gate.waiting, settings.waiting],
            "answered": service.metrics.answered(),
            "backend": service.backend.status(),
            "selections": recent.listed(after),
        }
        return Response(json_text(document), 200, _HEADERS, "application/json")

    @app.get("/selections/{identity}")
    async def selection(identity: str) -> Response:
        name = quote(identity, safe="")
        text = live_page(f"/live/{name}/index", f"/live/{name}/problem/", back="/", title="radmoe: one selection")
        return html(text, policy(live=True))

    @app.get("/live/{identity}/{part:path}")
    async def block(request: Request, identity: str, part: str) -> Response:
        check_key(request)
        blocks = await in_thread(service.recent.blocks, identity)
        if blocks is None or part not in _PARTS:
            raise ApiError(404, "not_found", "this selection is not among the last ones any more")
        return Response(blocks[_PARTS.index(part)], 200, _HEADERS, "application/octet-stream")
