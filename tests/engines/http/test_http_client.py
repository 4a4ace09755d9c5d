"""A server's address and its client: what is sent, what is refused here, and how all of it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ended_threads import every_thread_ends  # noqa: F401 used by all tests here
from radmoe.engines.http.client import ModelServer, Refused
from radmoe.errors import EngineError, InputError

Serve = Callable[..., Any]


def recorded(server: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The headers of every request that reaches a fake server."""
    headers: list[dict[str, str]] = []
    handle = server.handle

    def note(request: Any, data: bytes | None) -> None:
        headers.append({name.lower(): value for name, value in request.headers.items()})
        handle(request, data)

    monkeypatch.setattr(server, "handle", note)
    return headers


def test_compression_is_not_asked_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve("vllm")
    headers, client = recorded(server, monkeypatch), ModelServer(server.url, api_key="k3y")
    client.get("/version")
    client.close()
    assert headers[0]["accept-encoding"] == "identity"
    assert headers[0]["authorization"] == "Bearer k3y"


def test_the_environments_proxy_and_netrc_are_not_used(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server = serve("vllm")
    headers, client = recorded(server, monkeypatch), ModelServer(server.url)
    assert client.get("/version").get("version").text() == "0.30.0"
    client.close()
    assert "authorization" not in headers[0]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("http://localhost:8000/v1/", "http://localhost:8000"),
        ("https://host/behind/a/proxy/v1", "https://host/behind/a/proxy"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_is_that_of_the_server(url: str, expected: str) -> None:
    client = ModelServer(url)
    client.close()
    assert client.url == expected


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(InputError, match="the address of host holds a password") as caught:
        ModelServer("http://me:secret@host:8000")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["", " k", "a\nb", "schlüssel", "a\x00"])
def test_a_key_that_no_header_can_hold_is_refused(key: str) -> None:
    with pytest.raises(InputError, match="the API key must be printable ASCII"):
        ModelServer("http://host", api_key=key)


@pytest.mark.parametrize(
    "limits",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"retries": -1},
        {"backoff": -1.0},
        {"backoff": float("nan")},
        {"largest": 0},
    ],
)
def test_limits_that_are_none_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must"):
        ModelServer("http://host", **limits)


def test_the_size_limit_can_be_set(serve: Serve) -> None:
    client = ModelServer(serve("vllm").url, largest=10)
    with pytest.raises(EngineError, match=r"answered 21 bytes, where 10 suffice"):
        client.get("/version")
    client.close()


def test_a_wrong_port_fails_in_a_second_with_all_retries() -> None:
    client, begun = ModelServer("http://127.0.0.1:1"), time.monotonic()
    with pytest.raises(EngineError, match=r"no connection to .*\(Connection refused\): is the server running there"):
        client.get("/v1/models")
    client.close()
    assert time.monotonic() - begun < 2


def test_a_server_that_went_away_is_asked_again(serve: Serve) -> None:
    server = serve("vllm", dies_after=0)
    client = ModelServer(server.url, retries=50, backoff=0.05)
    threading.Timer(0.3, lambda: setattr(server, "dies_after", None)).start()
    assert client.get("/version").get("version").text() == "0.30.0"
    client.close()


def test_stopping_ends_what_waits_and_resuming_allows_more(serve: Serve) -> None:
    server = serve("vllm")
    client, errors = ModelServer(server.url), []
    answer, entered, over = server.answer, threading.Event(), threading.Event()

    def late(path: str, body: Any) -> Any:
        entered.set()
        over.wait(30)
        return answer(path, body)

    server.answer = late

    def ask() -> None:
        with pytest.raises(EngineError) as caught:
            client.get("/version")
        errors.append(str(caught.value))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert entered.wait(5)
    client.stop()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    assert len(errors) == 3
    assert set(errors) <= {
        "the request was given up here, before the server had answered",
        "the connection to the server was closed here",
    }
    with pytest.raises(EngineError, match="was closed here"):
        client.get("/version")
    over.set()
    server.answer = answer
    client.resume()
    assert client.get("/version").get("version").text() == "0.30.0"
    client.close()


def test_a_closed_client_says_so(serve: Serve) -> None:
    client = ModelServer(serve("vllm").url)
    client.close()
    client.close()
    client.resume()
    with pytest.raises(EngineError, match="was closed here"):
        client.get("/version")


def test_a_client_that_nobody_closes_leaves_no_thread(serve: Serve) -> None:
    ModelServer(serve("vllm").url).get("/version")


def test_a_refusal_has_its_status(serve: Serve) -> None:
    client = ModelServer(serve("vllm").url)
    with pytest.raises(Refused, match="answered 404: Not Found") as caught:
        client.get("/nothing")
    client.close()
    assert caught.value.status == 404
