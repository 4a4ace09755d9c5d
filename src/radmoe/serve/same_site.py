"""Protects a gateway without keys from pages of other sites that a browser has open. Programs and its own page may ask."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from radmoe.serve.api_errors import ApiError

_JSON = "application/json"
Refuse = Callable[[Scope, Receive, Send, ApiError], Awaitable[None]]


class SameSiteOnly:
    """Checks every request, whatever its route, before anything of it is read.

    A browser says in Host which name it was told, in Origin whose page asks, and sends application/json to another site only
    if that site allows it, which this one does for `pages` alone. `own` is the name that the gateway listens on, and `refuse` answers.
    """

    def __init__(self, app: ASGIApp, own: str, pages: Collection[str], refuse: Refuse) -> None:
        self._app, self._own, self._pages, self._refuse = app, own.lower(), pages, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._check(scope["method"], Headers(scope=scope))
            except ApiError as fault:
                await self._refuse(scope, receive, send, fault)
                return
        await self._app(scope, receive, send)

    def _check(self, method: str, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if not all(self._is_ours(host) for host in hosts):
            raise ApiError(
                403,
                "unknown_host",
                "without keys this gateway answers under localhost or an address only: use that, or start it with --keys",
            )
        others = (origin.lower() for origin in headers.getlist("origin") if origin.lower() not in self._pages)
        if any(origin.partition("://")[2] not in hosts for origin in others):
            raise ApiError(
                403,
                "foreign_origin",
                "this gateway answers no page of another site: ask from a program, or start it with --cors ORIGIN",
            )
        if method == "POST" and headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            raise ApiError(
                415, "not_json", f"send the request with the header Content-Type: {_JSON}; curl does so with --json"
            )

    def _is_ours(self, host: str) -> bool:
        """Whether a Host is an address, or a name that nobody else can have pointed at this machine."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in ("localhost", self._own):
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
