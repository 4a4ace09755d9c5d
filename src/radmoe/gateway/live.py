"""The page at /: the last selections, live. It shows text that models wrote, so nothing in it is ever markup."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from importlib.resources import files

from fastapi import FastAPI, Request
from starlette.responses import Response

from radmoe.gateway.faults import Fault
from radmoe.gateway.service import Service
from radmoe.printing import json_text

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
_ASSETS = {"live.html": "text/html", "live.css": "text/css", "live.js": "text/javascript"}


def add_routes(app: FastAPI, service: Service, check_key: Callable[[Request], None]) -> None:
    """Add the page and the data that it asks for; the data needs an API key where the gateway has keys."""
    assets = files("radmoe.gateway") / "web"

    def asset(name: str) -> Response:
        text = (assets / name).read_bytes()
        return Response(text, 200, _PAGE_HEADERS, f"{_ASSETS[name]}; charset=utf-8")

    def check(request: Request) -> None:
        check_key(request)
        if not service.settings.keys:
            _check_host(request, service.settings.host)

    @app.get("/")
    async def page() -> Response:
        return asset("live.html")

    @app.get("/favicon.ico")
    async def icon() -> Response:
        return Response(status_code=204, headers=_PAGE_HEADERS)  # there is none, and a browser need not complain

    @app.get("/assets/{name}")
    async def part(name: str) -> Response:
        if name not in _ASSETS:
            raise Fault(404, "not_found", "there is no such file")
        return asset(name)

    @app.get("/live")
    async def listed(request: Request, after: int = 0) -> Response:
        check(request)
        document = {"count": service.recent.count, "selections": service.recent.listed(after)}
        return Response(json_text(document), 200, _PAGE_HEADERS, "application/json")

    @app.get("/live/{identity}")
    async def one(request: Request, identity: str) -> Response:
        check(request)
        entry = service.recent.get(identity)
        if entry is None:
            raise Fault(404, "not_found", "this selection is not among the last ones any more")
        return Response(json_text(entry), 200, _PAGE_HEADERS, "application/json")


def _check_host(request: Request, own: str) -> None:
    """Without keys, refuse names that others could have pointed at this machine: a page elsewhere must not read this."""
    name = request.url.hostname or ""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if name not in ("localhost", own):
            raise Fault(
                403,
                "unknown_host",
                "the page answers under localhost or an address only: use that, or start with --keys",
            ) from None
