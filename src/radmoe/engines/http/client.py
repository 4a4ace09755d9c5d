"""One client for model servers: requests with limits on time, size and retries, and a way to end all waiting.

`Client` is asynchronous, and the gateway asks its upstreams through it. `Server` is the same for threads, with retries, for
engines. A server is not trusted (docs/security.md): no redirect is followed, no proxy or password is taken from the
environment, and no compressed answer is unpacked.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from itertools import count
from typing import Any, NamedTuple, TypeVar

import httpx

from radmoe.engines.http.fields import Field, parse, short
from radmoe.engines.http.loop import Loop
from radmoe.errors import EngineError, InputError, RadmoeError

Result = TypeVar("Result")
BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses after which a request is sent again
SMALL_BYTES, SMALL_VALUES = 4 << 20, 100_000  # limits of an answer that carries no rollout
LONGEST_WAIT = 4.0  # seconds between two attempts, where the server does not say
_ERROR_BYTES = 1 << 14  # of an error's body that are read
_CONNECT_SECONDS = 2.0
_QUESTION_SECONDS = 10.0  # for an answer that needs no sampling
_PATIENCE = 14.0  # seconds of waiting between all attempts of one request


class Refused(EngineError):
    """The server answered with an error that sending the request again would not change.

    `status` is HTTP's, and `reason` is what the server itself said.
    """

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class Busy(EngineError):
    """The server was busy or the connection broke: another attempt may succeed.

    `status` is HTTP's where there was an answer, and `after` the seconds after which the server wants to be asked again.
    With `elsewhere` another server can be asked at once.
    """

    elsewhere = False

    def __init__(self, message: str, status: int | None = None, after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.after = status, after


class NoConnection(Busy):
    """No connection could be made."""


class Limit(NamedTuple):
    """How large an answer may be: its bytes, and the values in it if it is JSON."""

    size: int = SMALL_BYTES
    values: int = SMALL_VALUES


class Client:
    """The asynchronous client of one server. `answered` says whether the server has ever answered."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        address = server_address(url)
        self.url, self.answered = str(address).rstrip("/").removesuffix("/v1"), False
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "radmoe"}
        if api_key is not None:
            if not (api_key.isascii() and api_key.isprintable() and api_key.strip() == api_key != ""):
                raise InputError("the API key must be printable ASCII without spaces around it: look at RADMOE_API_KEY")
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),  # the caller has a deadline for the whole request
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            follow_redirects=False,
            trust_env=False,
            verify=ssl.create_default_context() if address.scheme == "https" else False,
        )
        self.close = self._http.aclose  # not a method of ours: `Loop` must not keep this object alive

    async def ask(
        self,
        method: str,
        path: str,
        data: bytes | None,
        most: int,
        *,
        busy: frozenset[int] = BUSY,
        grew: Callable[[int], None] = lambda size: None,
    ) -> bytes:
        """The body of an answer of status 2xx, which may have `most` bytes.

        Raises as `open` does, and EngineError for an answer that is too large. `grew` is called with the size of every
        part that arrives; what it raises ends the request.
        """
        where = self.url + path
        async with aclosing(await self.open(method, path, data, busy=busy)) as response:
            length = _number(response.headers.get("content-length", ""))
            if length is not None and length > most:
                raise _too_large(where, f"{length:,.0f}", most)
            body = bytearray()
            with connection_to(where):
                async for part in response.aiter_raw():
                    body += part
                    grew(len(part))
                    if len(body) > most:
                        raise _too_large(where, f"more than {most:,}", most)
        return bytes(body)

    async def open(self, method: str, path: str, data: bytes | None, *, busy: frozenset[int] = BUSY) -> httpx.Response:
        """Send a request; returns the head of an answer of status 2xx, whose body the caller reads and closes.

        Raises Busy where another attempt may succeed, which is so for the statuses `busy`, Refused for all other statuses,
        and EngineError for an answer in an encoding that nobody asked for.
        """
        where = self.url + path
        with connection_to(where):
            response = await self._http.send(self._http.build_request(method, where, content=data), stream=True)
        self.answered = True
        try:
            await _check(response, where, busy)
        except BaseException:
            await response.aclose()
            raise
        return response


class ModelServer:
    """A client for threads: it waits for answers and sends requests again.

    A request may take `timeout` seconds from the connection to the last byte of its answer; a question that needs no
    sampling may take ten at most. When the server is busy or the connection breaks, the request is sent again, up to
    `retries` times (see `with_retries`), first after `backoff` seconds. A server that has never answered is not asked
    again where no connection can be made. `largest` bytes are read of an answer; by default what was asked for decides.
    `stop` ends all waiting, `resume` allows requests again, and `close` is the end.
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
        if not (0 < timeout < math.inf and 0 <= backoff < math.inf) or retries < 0:
            raise InputError(
                f"timeout {timeout} must be a positive number of seconds, retries {retries} and backoff {backoff} "
                "must not be negative"
            )
        if largest is not None and largest < 1:
            raise InputError(f"largest must be a number of bytes, at least 1, got {largest}")
        self._client = Client(url, api_key)
        self.url = self._client.url
        self._timeout, self._retries, self._backoff, self._largest = timeout, retries, backoff, largest
        self._loop = Loop(self._client.close)

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
        """The bytes that a path answers."""
        data = None if body is None else json.dumps(body).encode()
        seconds = min(self._timeout, _QUESTION_SECONDS) if question else self._timeout

        async def once() -> bytes:
            try:
                async with asyncio.timeout(seconds):
                    return await self._client.ask(method, path, data, self._largest or limit.size)
            except TimeoutError:
                own = seconds == self._timeout
                advice = "raise the time limit (--timeout), or ask for less" if own else "is it overloaded?"
                raise EngineError(
                    f"{self.url + path} did not answer in {seconds:g} s, to the last byte: {advice}"
                ) from None
            except NoConnection as error:
                if not self._client.answered:
                    raise EngineError(str(error)) from None
                raise

        return self._loop.call(with_retries(once, self._retries, self._backoff))

    def stop(self) -> None:
        """End all waiting: a thread that waits for an answer gets an error, and so does every new request."""
        self._loop.stop()

    def resume(self) -> None:
        """Allow requests again after `stop`."""
        self._loop.resume()

    def close(self) -> None:
        """Close every connection and end the client's thread; the server cannot be asked any more."""
        self._loop.close()


async def with_retries(
    work: Callable[[], Awaitable[Result]],
    retries: int,
    first_wait: float,
    *,
    patience: float = _PATIENCE,
    longest_after: float = math.inf,
) -> Result:
    """The result of `work`, which is repeated up to `retries` times while it raises Busy.

    Before the first repetition come `first_wait` seconds, then twice as long each time, LONGEST_WAIT at most; or the
    server's own `after`, up to `longest_after`. Raises the last Busy where the attempts or `patience` seconds of waiting are
    spent.
    """
    waited = 0.0
    for attempt in count():
        try:
            return await work()
        except Busy as error:
            wait = min(first_wait * 2**attempt * (1 + random.random() / 4), LONGEST_WAIT)
            if error.after is not None:
                wait = min(max(wait, error.after), longest_after)
            wait = 0.0 if error.elsewhere else wait
            waited += wait
            if attempt >= retries or waited > patience:
                times = "" if error.status is None else f" (asked {attempt + 1} times)"
                after = "" if error.after is None else f"; it says to come back in {error.after:g} s"
                raise Busy(f"{error}{times}{after}", error.status, error.after) from None
        await asyncio.sleep(wait)
    raise AssertionError("the loop above ends by itself")


@contextmanager
def connection_to(where: str) -> Iterator[None]:
    """Turns whatever a connection may raise into Busy, which names the address."""
    try:
        yield
    except RadmoeError:
        raise
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise NoConnection(f"no connection to {where} ({_reason(error)}): is the server running there?") from None
    except Exception as error:  # httpx.TransportError as a rule; libraries below it have raised others
        raise Busy(
            f"the connection to {where} broke ({_reason(error)}): is the model's server running there?"
        ) from None


async def _check(response: httpx.Response, where: str, busy: frozenset[int]) -> None:
    """Refuse an answer that is not of status 2xx, or that is encoded."""
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
    if 200 <= status < 300:
        return
    body = bytearray()
    with connection_to(where):
        async for part in response.aiter_raw():
            body += part
            if len(body) > _ERROR_BYTES:
                break
    reason = _error_message(bytes(body))
    if status in busy:
        raise Busy(f"{where} answered {status}: {reason}", status, _number(headers.get("retry-after", "")))
    raise Refused(status, f"{where} answered {status}: {reason}", reason)


def server_address(url: str) -> httpx.URL:
    """The address of a server, without query; InputError for a URL that is none, or that holds a password."""
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
    """The number that a header holds; None where it holds anything else, such as the date of a Retry-After."""
    return float(header) if header.isascii() and header.isdecimal() else None


def _reason(error: Exception) -> str:
    """The operating system's reason for an error, which lies below those of the libraries; else their own message."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.errno is not None:
            known = isinstance(below, ConnectionError | TimeoutError)  # asyncio puts words of its own there
            return (os.strerror(below.errno) if known else below.strerror or str(below))[:120]
        below = below.exceptions[0] if isinstance(below, BaseExceptionGroup) else below.__cause__ or below.__context__
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _error_message(answer: bytes) -> str:
    """The message in the body of an error, as one line; vLLM, SGLang and FastAPI put it in different places."""
    text = answer.decode("utf-8", "replace").strip()
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text.splitlines()[0][:200] if text else "nothing"
    while isinstance(body, dict):
        body = next((body[key] for key in ("error", "message", "detail") if key in body), short(body))
    return " ".join((body if isinstance(body, str) else short(body)).split())[:300]
