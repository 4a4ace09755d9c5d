"""A server's life: who may reach it, what its log says of servers and requests, and what it leaves under way."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planted_upstream import PlantedUpstream
from radmoe.errors import InputError
from radmoe.serve.settings import Settings
from running_gateway import RunningGateway, until

pytestmark = pytest.mark.slow


class Log:
    """The lines of the log so far, each of them JSON."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd, self._text = capfd, ""

    def of(self, event: str, count: int) -> list[dict[str, Any]]:
        """The lines of an event, once there are so many."""

        def there() -> bool:
            self._text += self._capfd.readouterr().err
            return self._text.count(f'"event": "{event}"') >= count

        until(there)
        lines = [json.loads(line) for line in self._text.splitlines()]
        return [line for line in lines if line["event"] == event]


@pytest.fixture
def log(capfd: pytest.CaptureFixture[str]) -> Log:
    return Log(capfd)


# -- the state of upstreams ------------------------------------------------------------------------


def test_every_state_of_an_upstream_is_logged_once_with_its_address_and_the_reason(
    served_checkpoint: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was dead at the start, or that a request found dead, was silent."""
    monkeypatch.setattr("radmoe.serve.upstreams._HEALTH_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with RunningGateway(upstreams=(url,), model=str(served_checkpoint), retries=0) as made:
        (dead,) = log.of("upstream", 1)
        with PlantedUpstream(served_checkpoint).running(port):
            _, alive = log.of("upstream", 2)
            until(lambda: made.client.get("/health").status_code == 200)
        made.ask()  # which may be what finds it dead
        states = log.of("upstream", 3)
    assert [state["url"] for state in states] == [url] * 3
    assert [state["up"] for state in states] == [False, True, False]
    assert "Connection refused" in dead["detail"]
    assert (dead["level"], alive["level"], alive["kind"], alive["routing"]) == ("warning", "info", "vllm", True)
    assert states[2]["detail"]


def test_an_upstream_without_routing_says_why(upstream: Any, gateway: Callable[..., Any], log: Log) -> None:
    gateway(upstreams=(upstream(routing="none").url,))
    (state,) = log.of("upstream", 1)
    assert (state["level"], state["up"], state["routing"]) == ("warning", True, False)
    assert "--enable-return-routed-experts" in state["detail"]


# -- who may reach it ------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "my-machine", ""])
def test_it_listens_where_others_reach_it_only_with_keys_or_if_told_so(host: str) -> None:
    with pytest.raises(InputError, match="--keys FILE, or --no-keys"):
        Settings(model="m", host=host)
    Settings(model="m", host=host, keys=("secret",))
    Settings(model="m", host=host, no_keys=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_no_key_is_needed_where_only_this_machine_reaches_it(host: str) -> None:
    Settings(model="m", host=host)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keys": ("secret",), "no_keys": True}, "contradict each other"),
        ({"cors": ("*",)}, "--keys FILE"),
        ({"cors": ("example.org",)}, "got 'example.org'"),
        ({"cors": ("https://example.org/",)}, "got 'https://example.org/'"),
        ({"cors": ("https://Example.org",)}, "got 'https://Example.org'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("*", r"\*")):
        Settings(model="m", **options)


PAGE = {"Origin": "https://page.example"}
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, content-type"}
ALLOWED = "access-control-allow-origin"


@pytest.mark.parametrize("keys", [(), ("secret",)])
def test_a_page_that_was_named_may_ask_and_no_other(upstream: Any, gateway: Callable[..., Any], keys: Any) -> None:
    made = gateway(upstreams=(upstream().url,), cors=(PAGE["Origin"],), keys=keys)
    made.client.headers["Authorization"] = "Bearer secret"
    before = made.client.options("/v1/chat/completions", headers=PAGE | PREFLIGHT)
    assert (before.status_code, before.headers[ALLOWED]) == (200, PAGE["Origin"])
    answer = made.client.get("/v1/models", headers=PAGE)
    assert (answer.status_code, answer.headers[ALLOWED]) == (200, PAGE["Origin"])
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    assert made.client.get("/nowhere", headers=PAGE).headers[ALLOWED] == PAGE["Origin"]  # it may read errors, too
    other = {"Origin": "https://other.example"}
    assert ALLOWED not in made.client.options("/v1/chat/completions", headers=other | PREFLIGHT).headers
    assert ALLOWED not in made.client.get("/v1/models", headers=other).headers
    if not keys:
        assert made.client.get("/v1/models", headers=other).status_code == 403


def test_no_page_may_ask_where_none_was_named(shared: Any) -> None:
    assert ALLOWED not in shared.client.options("/v1/chat/completions", headers=PAGE | PREFLIGHT).headers


# -- requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/chat/completions", {"model": "planted#rad-8", "messages": [{"role": "user", "content": "?"}]}),
        ("POST", "/v1/chat/completions", {"model": "planted", "messages": [], "stream": True}),
        ("POST", "/v1/chat/completions", {"model": 7}),
        ("GET", "/v1/models", None),
        ("GET", "/nowhere", None),
        ("GET", "/", None),
    ],
)
def test_every_answer_has_an_id_of_the_request_the_clients_own_if_it_sent_one(
    shared: Any, method: str, path: str, body: Any
) -> None:
    def asked(**headers: Any) -> str:
        return str(shared.client.request(method, path, json=body, headers=headers).headers["x-request-id"])

    assert asked(**{"X-Request-Id": "from-the-client:7"}) == "from-the-client:7"
    assert len({asked(), asked()}) == 2
    for useless in ("two words", "x" * 129, b"caf\xe9", ""):
        assert asked(**{"X-Request-Id": useless}) not in (useless, "")


def test_every_line_about_a_request_has_its_id(upstream: Any, gateway: Callable[..., Any], log: Log) -> None:
    made = gateway(upstreams=(upstream(fault="status 500").url,))
    made.client.headers["X-Request-Id"] = "mine"
    made.ask()
    (request,) = log.of("request", 1)
    lines = [request, *log.of("retry", 2), *log.of("fault", 1)]
    assert {line["request_id"] for line in lines} == {"mine"}


@pytest.mark.parametrize("stream", [False, True])
def test_the_line_of_a_request_says_who_asked_and_how_the_answer_was_chosen(
    upstream: Any, gateway: Callable[..., Any], log: Log, stream: bool
) -> None:
    made = gateway(upstreams=(upstream().url,))
    chosen = made.ask().json()
    made.ask(stream=stream)
    made.ask(model="planted", stream=stream)
    first, second, plain = log.of("request", 3)
    assert first["id"] == chosen["id"]
    assert {first["client"], plain["client"]} == {"127.0.0.1"}
    assert first["margin"] == pytest.approx(chosen["radmoe"]["margin"], abs=1e-6)
    assert [second[name] for name in ("method", "margin")] == [first[name] for name in ("method", "margin")]
    assert first["method"] == "rad"
    assert "method" not in plain


def test_at_temperature_0_one_rollout_is_sampled_and_the_answer_says_why(upstream: Any, gateway: Any) -> None:
    server = upstream()
    made = gateway(upstreams=(server.url,))
    for fields in ({}, {"adaptive": True}):
        answer = made.ask(fields, temperature=0).json()
        assert server.bodies[-1]["n"] == 1  # vLLM refuses several at temperature 0
        said = answer["radmoe"]
        assert (said["method"], said["pick"], said["sampled"]["rollouts"]) == ("first", 0, 1)
        assert said["reason"].startswith("at temperature 0 all rollouts are equal")
    refused = made.ask(temperature=0.0, n=3)
    assert (refused.status_code, made.error(refused)["param"]) == (400, "n")
    assert made.ask(temperature=0.1).json()["radmoe"]["sampled"]["rollouts"] == 8


# -- what is left under way ------------------------------------------------------------------------


def test_an_adaptive_request_has_nothing_under_way_once_its_pick_is_settled(upstream: Any, gateway: Any) -> None:
    """A round has as many rollouts as the rule needs at least, so none is unfinished when it stops."""
    server = upstream()
    made = gateway(upstreams=(server.url,))
    answer = made.ask({"adaptive": True, "n": 64}, model="planted", seed=0).json()
    assert answer["radmoe"]["adaptive"]["stopped"] == "settled"
    assert answer["radmoe"]["sampled"]["rollouts"] < 64
    assert (server.under_way, server.aborted) == (0, 0)
    assert (
        sum(body.get("n", 1) for body in server.bodies if "messages" in body) == answer["radmoe"]["sampled"]["rollouts"]
    )


@pytest.mark.parametrize("stream", [False, True])
def test_the_round_of_an_adaptive_request_that_is_too_late_is_aborted(
    upstream: Any, gateway: Any, stream: bool
) -> None:
    server = upstream(delay=1.5)
    made = gateway(upstreams=(server.url,), deadline=2.2)
    assert "deadline_exceeded" in made.ask({"adaptive": True, "n": 64}, model="planted", seed=0, stream=stream).text
    until(lambda: server.aborted == 1)
    assert server.under_way == 0
    rounds = [body["n"] for body in server.bodies if "messages" in body]
    assert len(rounds) == 2  # the first ended, and the second was given up
