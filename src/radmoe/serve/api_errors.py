"""Errors in OpenAI's shape. Clients learn nothing about the servers behind the gateway from them."""

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


class ApiError(RadmoeError):
    """An error answer. `detail` goes to the log only, and `after` is the number of seconds for Retry-After.

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
        """The header `Retry-After`, if there is a time to wait."""
        return {} if self.after is None else {"Retry-After": str(max(1, round(min(self.after, _LONGEST_WAIT))))}


def bad_request(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """The error for a request that cannot be served; `param` names the field."""
    return ApiError(400, code, message, param=param)


def bad_gateway(detail: str) -> ApiError:
    """The error for an unusable answer of an upstream; `detail` goes to the log."""
    return ApiError(502, "upstream_error", "the model server gave an answer that cannot be used", detail=detail)


def broken_routing(detail: str) -> ApiError:
    """The error for routing that does not fit its tokens; `detail` goes to the log."""
    return ApiError(
        502,
        "routing_invalid",
        "the model server's routing does not fit its tokens, so nothing was selected: ask again, or with "
        '"fallback": "likelihood"; the operator finds the reason in the log',
        detail=detail,
    )


def internal(detail: str) -> ApiError:
    """The error for an unexpected failure of the gateway; `detail` goes to the log."""
    return ApiError(500, "internal_error", "the gateway failed on this request; the log says why", detail=detail)
