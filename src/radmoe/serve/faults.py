"""Errors as a client sees them: in OpenAI's shape, and with nothing of what stands behind the gateway."""

from __future__ import annotations

from typing import Any

from radmoe.errors import RadmoeError

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
}


_LONGEST_WAIT = 3600.0  # seconds that a client is told to wait at most, whatever an upstream said


class Fault(RadmoeError):
    """An answer that is an error. `detail` is for the log alone, `after` the seconds to wait before asking again.

    `unread` says that the request's body was not read to its end, so that the connection cannot be used again.
    """

    unread = False

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        after: float | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.after, self.detail = status, code, param, after, detail

    def document(self) -> dict[str, Any]:
        """The body that OpenAI's clients read."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After` where there is a time to wait."""
        return {} if self.after is None else {"Retry-After": str(max(1, round(min(self.after, _LONGEST_WAIT))))}


def bad_request(message: str, param: str | None = None, code: str = "invalid_value") -> Fault:
    """A request that cannot be served as it is; `param` names the field."""
    return Fault(400, code, message, param=param)


def bad_gateway(detail: str) -> Fault:
    """An upstream that answered what no client should see; `detail` goes to the log."""
    return Fault(502, "upstream_error", "the model server gave an answer that cannot be used", detail=detail)


def broken_routing(detail: str) -> Fault:
    """Routing that does not fit the tokens it came with; `detail` goes to the log."""
    return Fault(
        502,
        "routing_invalid",
        "the model server's routing does not fit its tokens, so nothing was selected: ask again, or with "
        '"fallback": "likelihood"; the operator finds the reason in the log',
        detail=detail,
    )


def internal(detail: str) -> Fault:
    """What nobody expected; `detail` goes to the log."""
    return Fault(500, "internal_error", "the gateway failed on this request; the log says why", detail=detail)
