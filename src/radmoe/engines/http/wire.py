"""One server: requests with limits on time, size and retries, and a way to end all waiting.

A server is not trusted (docs/security.md): no redirect is followed, no proxy or password is taken from the
environment, and no compressed answer is unpacked.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx

from radmoe.engines.http.fields import Field, parse, short
from radmoe.engines.http.loop import Loop
from radmoe.errors import EngineError, InputError, RadmoeError

BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses after which a request is sent again
SMALL_BYTES, SMALL_VALUES = 4 << 20, 100_000  # of an answer that carries no rollout
_ERROR_BYTES = 1 << 14  # of an error's body that are read
_CONNECT_SECONDS = 2.0
_QUESTION_SECONDS = 10.0  # for an answer that needs no sampling
_LONGEST_WAIT = 4.0  # between two attempts, where the server does not say
_PATIENCE = 14.0  # seconds of waiting between all attempts of one request


class Refused(EngineError):
    """The server answered with an error that sending the request again would not change; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Reply(NamedTuple):
    """One answer: its status, its body, and the seconds after which the server wants to be asked again."""

    status: int
    body: bytes
    after: float | None


class Limit(NamedTuple):
    """How large an answer may be: its bytes, and the values in it if it is JSON."""

    size: int = SMALL_BYTES
    values: int = SMALL_VALUES


class Server:
    """A server's address, and the client that asks it.

    A request may take `timeout` seconds from the connection to the last byte of its answer; a question that needs no
    sampling may take ten at most. When the server is busy or the connection breaks, the request is sent again, up to
    `retries` times: `backoff` seconds later, then twice as long each time, or when the server's Retry-After says. A
    server that has never answered is not asked again where no connection can be made. `largest` bytes are read of an
    answer; by default what was asked for decides. Threads may share one server. `stop` ends all waiting, `resume`
    allows requests again, and `close` is the end.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 600.0,
        retries: int = 5,
        backoff: float = 0.5,
        api_key: str | None = None,
        largest: int | None = None,
    ) -> None:
        address = server_address(url)
        if not (0 < timeout < math.inf and 0 <= backoff < math.inf) or retries < 0:
            raise InputError(
                f"timeout {timeout} must be a positive number of seconds, retries {retries} and backoff {backoff} "
                "must not be negative"
            )
        if largest is not None and largest < 1:
            raise InputError(f"largest must be a number of bytes, at least 1, got {largest}")
        self.url = str(address).rstrip("/").removesuffix("/v1")
        self._timeout, self._retries, self._backoff, self._largest = timeout, retries, backoff, largest
        self._client = open_client(address, api_key)
        self._answered = False  # whether the server has ever answered
        self._loop = Loop(self._client.aclose)

    def get(self, path: str) -> Field:
        """The JSON that a path answers to a GET request."""
        return parse(self.fetch("GET", path, question=True), self.url + path, SMALL_VALUES)

    def post(self, path: str, body: dict[str, Any], limit: Limit | None = None) -> Field:
        """The JSON that a path answers to a POST request with a JSON body; without a `limit` it is a short question."""
        answer = self.fetch("POST", path, body, limit=limit or Limit(), question=limit is None)
        return parse(answer, self.url + path, (limit or Limit()).values)

    def fetch(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        limit: Limit = Limit(),  # noqa: B008 a tuple
        question: bool = False,
    ) -> bytes:
        """The bytes that a path answers; the request is sent again where the server is busy or the connection breaks."""
        data = None if body is None else json.dumps(body).encode()
        seconds = min(self._timeout, _QUESTION_SECONDS) if question else self._timeout
        return self._loop.call(self._fetch(method, path, data, self._largest or limit.size, seconds))

    def stop(self) -> None:
        """End all waiting: a thread that waits for an answer gets an error, and so does every new request."""
        self._loop.stop()

    def resume(self) -> None:
        """Allow requests again after `stop`."""
        self._loop.resume()

    def close(self) -> None:
        """Close every connection and end the client's thread; the server cannot be asked any more."""
        self._loop.close()

    async def _fetch(self, method: str, path: str, data: bytes | None, most: int, seconds: float) -> bytes:
        where, waited = self.url + path, 0.0
        for attempt in range(self._retries + 1):
            wait = min(self._backoff * 2**attempt * (1 + random.random() / 4), _LONGEST_WAIT)
            try:
                async with asyncio.timeout(seconds):
                    status, answer, after = await self._once(method, where, data, most)
            except TimeoutError:
                advice = (
                    "raise the time limit (--timeout), or ask for less"
                    if seconds == self._timeout
                    else "is it overloaded?"
                )
                raise EngineError(f"{where} did not answer in {seconds:g} s, to the last byte: {advice}") from None
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                trouble = f"no connection to {where} ({reason_of(error)}): is the server running there?"
                if not self._answered:
                    raise EngineError(trouble) from None
            except RadmoeError:
                raise
            except Exception as error:  # httpx.TransportError as a rule; libraries below it have raised others
                trouble = f"the connection to {where} broke ({reason_of(error)}): is the model's server running there?"
            else:
                if 200 <= status < 300:
                    return answer
                refusal = f"{where} answered {status}: {error_message(answer)}"
                if status not in BUSY:
                    raise Refused(status, refusal)
                trouble = f"{refusal} (asked {attempt + 1} times)"
                if after is not None:
                    trouble, wait = f"{trouble}; it says to come back in {after:g} s", after
            waited += wait
            if attempt == self._retries or waited > _PATIENCE:
                raise EngineError(trouble)
            await asyncio.sleep(wait)
        raise AssertionError("the loop above ends by itself")

    async def _once(self, method: str, where: str, data: bytes | None, most: int) -> Reply:
        def note() -> None:
            self._answered = True

        return await send(self._client, method, where, data, most, note)


def open_client(address: httpx.URL, api_key: str | None = None) -> httpx.AsyncClient:
    """A client for one server, which follows no redirect, takes nothing from the environment and has no read limit."""
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "radmoe"}
    if api_key is not None:
        if not (api_key.isascii() and api_key.isprintable() and api_key.strip() == api_key != ""):
            raise InputError("the API key must be printable ASCII without spaces around it: look at RADMOE_API_KEY")
        headers["Authorization"] = f"Bearer {api_key}"
    return httpx.AsyncClient(
        headers=headers,
        timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),  # the caller has a deadline for the whole request
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        follow_redirects=False,
        trust_env=False,
        verify=ssl.create_default_context() if address.scheme == "https" else False,
    )


async def send(
    client: httpx.AsyncClient,
    method: str,
    where: str,
    data: bytes | None,
    most: int,
    answered: Callable[[], None] = lambda: None,
    grew: Callable[[int], None] = lambda size: None,
) -> Reply:
    """Send one request and read at most so many bytes of its answer.

    `answered` is called when its headers are there, and `grew` with the bytes of every part; what they raise ends it.
    """
    async with client.stream(method, where, content=data) as response:
        answered()
        headers, status = response.headers, response.status_code
        if response.has_redirect_location:
            raise Refused(
                status,
                f"{where} answered {status}, a redirect to {short(headers['location'])}, and none is followed: "
                "give the address of the model's server itself",
            )
        coding = headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise EngineError(
                f"{where} answered in the encoding {short(coding)}, and none was asked for: turn compression off in "
                "the server, or in the proxy before it"
            )
        failed = not 200 <= status < 300
        length = _number(headers.get("content-length", ""))
        if not failed and length is not None and length > most:
            raise _too_large(where, f"{length:,.0f}", most)
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            grew(len(part))
            if failed and len(body) > _ERROR_BYTES:
                break
            if not failed and len(body) > most:
                raise _too_large(where, f"more than {most:,}", most)
        return Reply(status, bytes(body), _number(headers.get("retry-after", "")))


def server_address(url: str) -> httpx.URL:
    """The address of a server, without query; InputError for what is none, or holds a password."""
    example = "use http://localhost:8000"
    try:
        address = httpx.URL(url if "://" in url else f"http://{url}")
    except httpx.InvalidURL as error:
        raise InputError(f"{short(url)} is no address of a server ({error}): {example}") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise InputError(f"{short(url)} is no address of a server: {example}")
    if address.userinfo:
        raise InputError(f"the address of {address.host} holds a password: leave it out, and give a key as --api-key")
    return address.copy_with(query=None, fragment=None)


def _too_large(where: str, size: str, most: int) -> EngineError:
    return EngineError(
        f"{where} answered {size} bytes, where {most:,} suffice for what was asked: is this a model's server? "
        "Ask for as many tokens as it sends, or raise the limit (`largest`)"
    )


def _number(header: str) -> float | None:
    """The number that a header is; None where it is none, such as the date of a Retry-After."""
    return float(header) if header.isascii() and header.isdecimal() else None


def reason_of(error: Exception) -> str:
    """What the system said of an error, which lies below those of the libraries; else what they say."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.errno is not None:
            known = isinstance(below, ConnectionError | TimeoutError)  # asyncio puts words of its own there
            return (os.strerror(below.errno) if known else below.strerror or str(below))[:120]
        below = below.exceptions[0] if isinstance(below, BaseExceptionGroup) else below.__cause__ or below.__context__
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def error_message(answer: bytes) -> str:
    """The message in the body of an error, as one line; vLLM, SGLang and FastAPI put it in different places."""
    text = answer.decode("utf-8", "replace").strip()
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text.splitlines()[0][:200] if text else "nothing"
    while isinstance(body, dict):
        body = next((body[key] for key in ("error", "message", "detail") if key in body), short(body))
    return " ".join((body if isinstance(body, str) else short(body)).split())[:300]
