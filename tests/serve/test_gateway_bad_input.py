"""Whatever a client sends, it gets an error in OpenAI's shape, and the gateway goes on."""

from __future__ import annotations

import json
import socket
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from running_gateway import JSON, MESSAGES

DEEP = b'{"model": "planted", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        (b"{", 400, "invalid_json", "no JSON"),
        (b"[1]", 400, "invalid_json", "object"),
        (b"\xff\xfe", 400, "invalid_json", "no JSON"),
        (b'{"model": NaN}', 400, "invalid_json", "NaN"),
        (DEEP, 400, "invalid_json", "nested"),
        ({"model": 3}, 400, "invalid_value", "model must be"),
        ({"model": ""}, 400, "invalid_value", "model must be"),
        ({"model": "nobody"}, 404, "model_not_found", "use planted"),
        ({"model": "nobody#rad-8"}, 404, "model_not_found", "use planted"),
        ({"model": "planted#rad-0"}, 400, "invalid_value", "from 2 to 64, got 0"),
        ({"model": "planted#rad-1"}, 400, "invalid_value", "from 2 to 64, got 1"),
        ({"model": "planted#rad-10000"}, 400, "invalid_value", "from 2 to 64, got 10000"),
        ({"model": "planted", "radmoe": {"n": 0}}, 400, "invalid_value", "radmoe.n"),
        ({"model": "planted", "radmoe": {"n": 10_000}}, 400, "invalid_value", "radmoe.n"),
        ({"model": "planted", "radmoe": {"n": 2.5}}, 400, "invalid_value", "radmoe.n"),
        ({"model": "planted", "radmoe": {"n": True}}, 400, "invalid_value", "radmoe.n"),
        ({"model": "planted#rad-8", "radmoe": {"n": 16}}, 400, "invalid_value", "say one"),
        ({"model": "planted", "radmoe": 16}, 400, "invalid_value", "an object"),
        ({"model": "planted", "radmoe": {"rollouts": 3}}, 400, "unknown_field", '"rollouts"'),
        ({"model": "planted", "radmoe": {"kind": "poem"}}, 400, "invalid_value", "unknown kind 'poem'"),
        ({"model": "planted", "radmoe": {"kind": ["math"]}}, 400, "invalid_value", "kind"),
        ({"model": "planted", "radmoe": {"preset": "worst"}}, 400, "invalid_value", "unknown preset 'worst'"),
        ({"model": "planted", "radmoe": {"preset": {}, "n": 4}}, 400, "invalid_value", "preset"),
        ({"model": "planted", "radmoe": {"adaptive": "yes"}}, 400, "invalid_value", "radmoe.adaptive"),
        ({"model": "planted", "radmoe": {"fallback": "vote"}}, 400, "invalid_value", "likelihood"),
        ({"model": "planted", "n": 0}, 400, "invalid_value", "n must be"),
        ({"model": "planted", "n": 10_000}, 400, "invalid_value", "n must be"),
        ({"model": "planted#rad-4", "n": 8}, 400, "invalid_value", "only 4 rollouts"),
        ({"model": "planted#rad-4", "best_of": 8}, 400, "invalid_value", "best_of"),
        ({"model": "planted", "stream": "yes"}, 400, "invalid_value", "stream must be"),
        ({"model": "planted", "stream_options": 3}, 400, "invalid_value", "stream_options"),
    ],
)
def test_a_wrong_body_is_one_clear_error(shared: Any, body: Any, status: int, code: str, words: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps({"messages": MESSAGES} | body).encode()
    answer = shared.client.post("/v1/chat/completions", content=data, headers=JSON)
    error = shared.error(answer)
    assert (answer.status_code, error["code"]) == (status, code)
    assert words in error["message"]
    assert len(error["message"]) < 400


@pytest.mark.parametrize("model", ["planted", "planted#rad-4"])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", [-1, 1e308, 10**400, "1", True, [1]]),
        ("top_p", [-0.1, 1.5, 10**400, "1"]),
        ("min_p", [2, -1]),
        ("frequency_penalty", [1e308]),
        ("presence_penalty", [-(10**400)]),
        ("repetition_penalty", [-1, 1e308]),
        ("max_tokens", [-1, 1.5, 1 << 31, 10**400, "1"]),
        ("max_completion_tokens", [-1, True]),
        ("top_k", [-2, 0.5]),
        ("seed", [1 << 63, -(10**400), 0.5, "1"]),
        ("top_logprobs", [-2, "x"]),
        ("stop", [3, [3], ["x"] * 17, "x" * 1001, "\ud800", {"x": 1}]),
        ("chat_template_kwargs", [3, "x", [1]]),
    ],
)
def test_every_field_of_the_sampling_has_its_bounds(shared: Any, model: str, name: str, values: list[Any]) -> None:
    before = len(shared.upstream.bodies)
    for value in values:
        answer = shared.ask(model=model, **{name: value})
        assert (answer.status_code, shared.error(answer)["param"]) == (400, name), value
        assert len(shared.error(answer)["message"]) < 200
    assert len(shared.upstream.bodies) == before


@pytest.mark.parametrize("prompt", [None, [], ["a", "b"], [["x"], ["y"]]])
def test_best_of_n_takes_one_prompt(shared: Any, prompt: Any) -> None:
    answer = shared.client.post("/v1/completions", json={"model": "planted#rad-4", "prompt": prompt})
    assert shared.error(answer)["param"] == "prompt"


def test_unknown_routes_and_methods_have_the_same_shape(shared: Any) -> None:
    assert shared.error(shared.client.get("/v1/embeddings"))["code"] == "not_found"
    assert shared.error(shared.client.get("/v1/chat/completions"))["code"] == "method_not_allowed"
    assert shared.error(shared.client.get("/live/%3Cscript%3E/index"))["code"] == "not_found"
    assert "<script>alert" not in shared.client.get("/selections/%22%3E%3Cscript%3Ealert(1)").text
    assert shared.client.get("/assets/..%2f..%2fapp.py").status_code == 404


def raw(shared: Any, data: bytes) -> bytes:
    """What the gateway answers to these bytes."""
    host, port = shared.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer


def test_a_body_of_a_gigabyte_is_refused_before_it_is_read(shared: Any) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: 1073741824\r\n\r\n"
    answer = raw(shared, head)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"body_too_large" in answer


def test_a_body_without_a_length_is_refused_where_it_grows_too_large(shared: Any) -> None:
    host, port = shared.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        part, sent = b"%x\r\n%s\r\n" % (1 << 20, b"x" * (1 << 20)), 0
        try:
            while sent < 1 << 30:
                connection.sendall(part)
                sent += 1 << 20
        except OSError:
            pass
        assert sent < 1 << 28  # the connection ended long before a gigabyte
    assert shared.ask(model="planted").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("many", [b"[],", b"{},", b'{"a":1},', b'"ab",', b"1.5,", b"\\,"])
def test_json_of_very_many_values_is_refused_before_it_is_read(shared: Any, many: bytes) -> None:
    """4 MB of empty lists take 90 MB in memory; 16 such requests took the gateway to 1.8 GB."""
    body = b'{"model": "planted", "messages": [{"role": "user", "content": "x\\""}], "x": [' + many * 700_000 + b"1]}"
    tracemalloc.start()
    try:
        answer = shared.client.post("/v1/chat/completions", content=body[: 4 << 20], headers=JSON)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (answer.status_code, shared.error(answer)["code"]) == (400, "invalid_json")
    assert "values" in shared.error(answer)["message"]
    assert peak < 40_000_000


@pytest.mark.parametrize("content", ["[{,:}]" * 500_000, '\\"[,],' * 400_000, "\U0001f600,," * 300_000])
def test_signs_within_a_long_text_are_no_values(shared: Any, content: str) -> None:
    body = {"model": "planted", "messages": [{"role": "user", "content": content}]}
    assert shared.client.post("/v1/chat/completions", json=body).status_code == 200


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_json_is_utf_8(shared: Any, encoding: str) -> None:
    """In others a byte of a quotation mark may be half of another character, and hide what follows from being counted."""
    body = '{"model": "planted", "messages": [{"role": "user", "content": "\xe9"}]}'.encode(encoding)
    answer = shared.client.post("/v1/chat/completions", content=body, headers=JSON)
    assert (answer.status_code, shared.error(answer)["code"]) == (400, "invalid_json")


def test_headers_cannot_be_injected(shared: Any) -> None:
    """A line end in a model's name, a request id or a route never becomes a header of the answer."""
    evil = "planted\r\nX-Evil: 1"
    answer = shared.client.post("/v1/chat/completions", json={"model": evil, "messages": MESSAGES})
    assert answer.status_code == 404
    assert "x-evil" not in answer.headers
    head = b"GET /v1/models/a%0d%0aX-Evil:%201 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert b"x-evil" not in raw(shared, head).lower().split(b"\r\n\r\n")[0]


def test_markup_in_a_completion_stays_text(gateway: Callable[..., Any], upstream: Any) -> None:
    made = gateway(upstreams=(upstream(fault="script").url,))
    answer = made.ask()
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script>" in answer.json()["choices"][0]["message"]["content"]
    page = made.client.get("/")
    assert "script-src 'sha256-" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]


@pytest.mark.slow
def test_a_key_is_needed_where_there_are_keys(gateway: Callable[..., Any], upstream: Any) -> None:
    made = gateway(upstreams=(upstream().url,), keys=("first-key", "second-key"))
    for header in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "first-key"},
        {"Authorization": "Basic first-key"},
    ):
        for path in ("/v1/models", "/metrics", "/live", "/live/x/index"):
            answer = made.client.get(path, headers=header)
            assert answer.status_code == 401, (path, header)
            assert made.error(answer)["code"] == "invalid_api_key"
        refused = made.client.post("/v1/chat/completions", content=b"{", headers=header)
        assert refused.status_code == 401
    for key in ("first-key", "second-key"):
        assert made.client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200
    assert made.client.get("/health").status_code == 200
    assert made.client.get("/").status_code == 200  # the page itself holds nothing


READ = ("/", "/live", "/live/x/index", "/selections/x", "/health", "/metrics", "/v1/models")


@pytest.mark.parametrize("path", [*READ, "/v1/models/planted", "/nowhere"])
def test_without_keys_every_route_answers_under_an_address_only(shared: Any, path: str) -> None:
    """A page elsewhere whose name was pointed at this machine must not read prompts, answers or counts."""
    for host in (
        "evil.example",
        "evil.example:8100",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "a b",
        "[::1",
    ):
        answer = shared.client.get(path, headers={"Host": host})
        assert (answer.status_code, shared.error(answer)["code"]) == (403, "unknown_host"), host
    for host in ("localhost:1234", "LOCALHOST", "127.0.0.1", "[::1]:8100", "192.168.1.7:80"):
        assert shared.client.get(path, headers={"Host": host}).status_code in (200, 404), host


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),  # what a page may send to any site, without asking
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=application/json"}, 415),
        ({"Content-Type": ""}, 415),
        (JSON | {"Origin": "https://evil.example"}, 403),
        (JSON | {"Origin": "null"}, 403),
        (JSON | {"Origin": "http://localhost:3000"}, 403),  # another server of this machine
        (JSON | {"Origin": "http://127.0.0.1.evil.example"}, 403),
        (JSON | {"Host": "evil.example"}, 403),
        (JSON | {"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        (JSON, 200),
        ({"Content-Type": "Application/JSON; charset=utf-8"}, 200),
        (JSON | {"Host": "localhost:8100", "Origin": "http://localhost:8100"}, 200),
    ],
)
def test_without_keys_a_page_of_another_site_samples_nothing(shared: Any, headers: dict[str, str], status: int) -> None:
    before = len(shared.upstream.bodies)
    body = json.dumps({"model": "planted#rad-4", "messages": MESSAGES})
    answer = shared.client.post("/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == status
    assert len(shared.upstream.bodies) - before == (status == 200)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = shared.client.options("/v1/chat/completions", headers={"Origin": "https://evil.example"})
    assert preflight.status_code == 403


@pytest.mark.parametrize("size", [10, 100_000, 5_000_000])
def test_who_is_refused_is_told_why(shared: Any, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A connection that ends while its client is still sending is reset, and the reason is lost."""
    monkeypatch.setattr("radmoe.serve.app._DRAIN_SECONDS", 20.0)  # a busy machine may take long to send
    host, port = shared.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % size)
        time.sleep(0.2)
        connection.sendall(b"x" * size)
        answer = b""
        while b"}}" not in answer:
            answer += connection.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 415")
    assert b"curl does so with --json" in answer


@pytest.mark.slow
def test_with_keys_any_name_and_content_type_will_do(gateway: Callable[..., Any], upstream: Any) -> None:
    """A browser sends no key that its user did not give to that page."""
    made = gateway(upstreams=(upstream().url,), keys=("the-key",))
    headers = {"Authorization": "Bearer the-key", "Host": "radmoe.example"}
    assert made.client.get("/v1/models", headers=headers).status_code == 200
    body = json.dumps({"model": "planted#rad-4", "messages": MESSAGES})
    assert made.client.post("/v1/chat/completions", content=body, headers=headers).status_code == 200
