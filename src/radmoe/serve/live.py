"""The page at /: the last selections, live, each with the explorer's page of it. It shows text that models wrote, so nothing in it is ever markup."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from importlib.resources import files
from urllib.parse import quote

from fastapi import FastAPI, Request
from starlette.responses import Response

from radmoe.explorer import live_page, policy
from radmoe.serve.api_errors import ApiError
from radmoe.serve.backends import in_thread
from radmoe.serve.service import Service
from radmoe.system.printing import json_text

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_COOKIE, _MOST_SESSIONS = "radmoe-session", 1000
_PARTS = ("index", "problem/0")  # of the page of one selection
_ASSETS = {"live.html": "text/html", "live.css": "text/css", "live.js": "text/javascript"}


def add_routes(app: FastAPI, service: Service, check_key: Callable[[Request], None]) -> None:
    """Add the page and the data that it asks for; the data needs an API key where the gateway has keys."""
    assets = files("radmoe.serve") / "web"

    def asset(name: str) -> Response:
        text = (assets / name).read_bytes()
        return Response(text, 200, _PAGE_HEADERS, f"{_ASSETS[name]}; charset=utf-8")

    sessions: list[str] = []

    def check(request: Request) -> None:
        if not service.settings.keys:
            return
        own = request.cookies.get(_COOKIE, "").encode()
        matches = [hmac.compare_digest(own, known.encode()) for known in sessions]  # all of them
        if not any(matches):
            check_key(request)

    @app.get("/")
    async def page() -> Response:
        return asset("live.html")

    @app.get("/favicon.ico")
    async def icon() -> Response:
        return Response(status_code=204, headers=_PAGE_HEADERS)  # there is none, and a browser need not complain

    @app.get("/assets/{name}")
    async def part(name: str) -> Response:
        if name not in _ASSETS:
            raise ApiError(404, "not_found", "there is no such file")
        return asset(name)

    @app.get("/live")
    async def listed(request: Request, after: int = 0) -> Response:
        check(request)
        document = {"count": service.recent.count, "selections": service.recent.listed(after)}
        return Response(json_text(document), 200, _PAGE_HEADERS, "application/json")

    @app.post("/live/session")
    async def session(request: Request) -> Response:
        """A browser cannot send a key with every link, so it gets a cookie for the one it has."""
        check_key(request)
        token = secrets.token_urlsafe(32)
        sessions.append(token)
        del sessions[:-_MOST_SESSIONS]
        cookie = f"{_COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict"
        return Response("{}", 200, _PAGE_HEADERS | {"Set-Cookie": cookie}, "application/json")

    @app.get("/selections/{identity}")
    async def selection(identity: str) -> Response:
        name = quote(identity, safe="")
        text = live_page(f"/live/{name}/index", f"/live/{name}/problem/", title="radmoe: one selection")
        headers = _PAGE_HEADERS | {"Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'"}
        return Response(text, 200, headers, "text/html; charset=utf-8")

    @app.get("/live/{identity}/{part:path}")
    async def block(request: Request, identity: str, part: str) -> Response:
        check(request)
        blocks = await in_thread(service.recent.blocks, identity)
        if blocks is None or part not in _PARTS:
            raise ApiError(404, "not_found", "this selection is not among the last ones any more")
        return Response(blocks[_PARTS.index(part)], 200, _PAGE_HEADERS, "application/octet-stream")
