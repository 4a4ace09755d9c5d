"""What a server may do wrong, as a table of named cases on real sockets, and a function that runs one.

`CASES` maps names to cases; `run_case(case)` opens an engine at a server that misbehaves so, asks it for one rollout,
and returns what came of it in one line, the seconds it took and the bytes by which memory grew at most. A case in which
the server is odd but right ends with `RIGHT`, the same rollout that an undisturbed server gives.
"""

from __future__ import annotations

import gzip
import re
import resource
import tempfile
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import tiny_moe
from misbehaving_server import (
    COMPLETIONS,
    HANG_SECONDS,
    MODELS,
    PROMPT,
    RIGHT,
    TOKENIZE,
    TOKENS,
    VERSION,
    Case,
    FakeServer,
    Misbehaving,
    OnceThen,
    chunked,
    drips,
    endless,
    head,
    plain,
    put,
    resets,
    sends,
    sends_with,
    silent,
)
from misread_answers import wrong_fields, wrong_routing
from radmoe.engines.base import Completion, Sampling
from radmoe.engines.http import HttpEngine, SglangHttpEngine, VllmHttpEngine
from radmoe.errors import EngineError

CLIENTS: dict[str, type[HttpEngine]] = {"vllm": VllmHttpEngine, "sglang": SglangHttpEngine}


class Outcome(NamedTuple):
    """What came of a case."""

    line: str
    seconds: float
    peak_bytes: int


def _wire() -> Iterator[Case]:
    """What happens below HTTP's contents."""
    late = partial(Case, seconds=HANG_SECONDS)
    time_limit = r"did not answer in 1 s, to the last byte"
    broken, large = r"the connection to .* broke \(", r"answered .*bytes, where [\d,]+ suffice"
    yield late("never answers", time_limit, silent())
    yield late("never answers the first question", time_limit, silent(), MODELS)
    yield late("stops within the status line", time_limit, silent(b"HTTP/1.1 20"))
    yield late("stops within the headers", time_limit, silent(b"HTTP/1.1 200 OK\r\nContent-Le"))
    yield Case("huge content length and no body", large, silent(head("200 OK", f"Content-Length: {10**15}")))
    yield Case(
        "content length of a thousand digits",
        f"{broken}|{large}",
        silent(head("200 OK", f"Content-Length: {'9' * 1000}")),
    )
    yield late(
        "content length too large for the body", time_limit, silent(head("200 OK", "Content-Length: 999") + b"{")
    )
    yield late("drips its answer", time_limit, drips)
    yield late("drips the list of models", time_limit, drips, MODELS)
    yield late("drips spaces for ever", time_limit, endless(head("200 OK"), b" ", 0.05))
    yield late("drips headers for ever", time_limit, endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.05))
    yield late("drips one header for ever", time_limit, endless(b"HTTP/1.1 200 OK\r\nX: ", b"y", 0.05))
    yield late("drips an error", time_limit, endless(head("400 Bad Request"), b"e", 0.05))
    yield late("endless 100 Continue", time_limit, endless(b"", head("100 Continue")))
    yield late("endless 103 Early Hints, slowly", time_limit, endless(b"", head("103 Early Hints", "Link: x"), 0.05))
    yield late(
        "events for ever", time_limit, endless(head("200 OK", "Content-Type: text/event-stream"), b"data: {}\n\n", 0.05)
    )
    yield Case("endless headers", broken, endless(b"HTTP/1.1 200 OK\r\n", b"X-Filler: " + b"y" * 1000 + b"\r\n"))
    yield Case("one endless header", broken, endless(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65536))
    yield Case("endless status line", broken, endless(b"HTTP/1.1 200 ", b"O" * 65536))
    yield Case("endless body", large, endless(head("200 OK"), b" " * 65536))
    yield Case("endless body of models", large, endless(head("200 OK"), b" " * 65536), MODELS)
    yield Case("endless JSON", large, endless(head("200 OK") + b"[", b"[]," * 20000))
    yield Case("endless text", large, endless(head("200 OK") + b'{"choices": "', b"a" * 65536))
    yield Case(
        "endless chunks",
        large,
        endless(head("200 OK", "Transfer-Encoding: chunked"), b"10000\r\n" + b" " * 65536 + b"\r\n"),
    )
    yield Case(
        "endless chunk extension", broken, endless(head("200 OK", "Transfer-Encoding: chunked") + b"1;", b"x" * 65536)
    )
    yield Case(
        "a chunk of 2^60 bytes",
        large,
        endless(head("200 OK", "Transfer-Encoding: chunked") + b"1000000000000000\r\n", b" " * 65536),
    )
    yield Case("chunked rubbish", broken, sends(head("200 OK", "Transfer-Encoding: chunked") + b"zz\r\nrubbish\r\n"))
    yield Case("negative chunk", broken, sends(head("200 OK", "Transfer-Encoding: chunked") + b"-5\r\nhello\r\n"))
    yield Case("chunks that end early", broken, sends(head("200 OK", "Transfer-Encoding: chunked") + b"5\r\nhel"))
    yield Case("closes at once", broken, sends(b""))
    yield Case("closes at the first question", broken, sends(b""), MODELS)
    yield Case("resets", broken, resets)
    yield Case("closes within the headers", broken, sends(b"HTTP/1.1 200 OK\r\nContent-Le"))
    yield Case("closes within the body", broken, sends(head("200 OK", "Content-Length: 999") + b"{"))
    yield Case("content length too small", "not JSON as it should be", sends_with(change=lambda body: body[:40]))
    yield Case("negative content length", broken, sends(head("200 OK", "Content-Length: -1") + b"{}"))
    yield Case("content length in words", broken, sends(head("200 OK", "Content-Length: many") + b"{}"))
    yield Case("two content lengths", broken, sends(head("200 OK", "Content-Length: 2", "Content-Length: 3") + b"{}"))
    yield Case("speaks another protocol", broken, sends(b"SSH-2.0-OpenSSH_9.6\r\n"))
    yield Case("speaks HTTP/2", broken, sends(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00" * 18))
    yield Case("random bytes", broken, sends(bytes(np.random.default_rng(1).integers(0, 256, 5000, np.uint8))))
    yield Case("status of no number", broken, sends(b"HTTP/1.1 OK fine\r\n\r\n"))
    yield Case("status 999", "answered 999: nothing", sends(head("999 What", "Content-Length: 0")))
    yield Case("header with a zero byte", broken, sends(b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n"))
    yield Case(
        "gzip bomb",
        "in the encoding 'gzip', and none was asked for",
        sends(plain(gzip.compress(bytes(1 << 26)), "200 OK", "Content-Encoding: gzip")),
    )
    yield Case("unknown encoding", "in the encoding 'br, gzip'", sends_with("Content-Encoding: br, gzip"))
    yield Case("gzip without saying so", "not JSON as it should be", sends_with(change=gzip.compress))
    for name, target in {
        "to a file": "file:///etc/passwd",
        "to another port": "http://127.0.0.1:9/v1/completions",
        "to itself": COMPLETIONS,
        "to a host inside": "http://169.254.169.254/latest/meta-data",
        "to rubbish": "http://[::1",
    }.items():
        line = "Invalid URL in location header" if name == "to rubbish" else "a redirect to .*, and none is followed"
        yield Case(f"redirect {name}", line, sends_with(f"Location: {target}", status="307 Temporary Redirect"))
    yield Case(
        "redirect of the models",
        "a redirect to .*, and none is followed",
        sends_with("Location: /elsewhere", status="301 Moved"),
        MODELS,
    )
    yield Case("300 without a place", "answered 300", sends_with(status="300 Multiple Choices"))
    yield Case(
        "101 Switching Protocols",
        "answered 101|broke",
        sends(head("101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade")),
    )
    yield Case("204 No Content", "not JSON as it should be", sends(head("204 No Content")))
    for status in ("400 Bad Request", "401 Unauthorized", "404 Not Found", "418 Teapot", "500 Internal", "503 Busy"):
        yield Case(
            f"{status[:3]} with an endless body", f"answered {status[:3]}: e+", endless(head(status), b"e" * 65536)
        )
    yield Case("error of a million lines", "answered 400: line", sends(plain(b"line\n" * 10**6, "400 Bad Request")))
    yield Case("error in deep JSON", r"answered 400: \[", sends(plain(b"[" * 10**4, "400 Bad Request")))
    yield Case(
        "error of wrong types",
        r"answered 400: \[1, 2",
        sends(plain(b'{"error": {"message": [1, 2]}}', "400 Bad Request")),
    )
    yield Case("error that is no UTF-8", "answered 400: ", sends(plain(b"\xff\xfe\x00", "400 Bad Request")))
    yield Case("busy for ever", r"answered 503: .*\(asked 3 times\)", sends(plain(b"later", "503 Busy")))
    yield Case(
        "come back in a year",
        "it says to come back in 3.1536e",
        sends(plain(b"later", "429 Too Many", "Retry-After: 31536000")),
    )
    yield Case(
        "come back in 10^1000 seconds",
        "it says to come back in inf s",
        sends(plain(b"later", "429 Too Many", f"Retry-After: 1{'0' * 1000}")),
    )
    yield Case(
        "come back at a date",
        r"answered 429: later \(asked 3 times\)",
        sends(plain(b"later", "429 Too Many", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT")),
    )
    yield Case(
        "come back at -5",
        r"answered 503: later \(asked 3 times\)",
        sends(plain(b"later", "503 Busy", "Retry-After: -5")),
    )
    yield Case(
        "nobody listens", "no connection to .*: is the server running there", sends(b""), url="http://127.0.0.1:1"
    )
    yield Case(
        "no such host",
        "no connection to .*: is the server running there",
        sends(b""),
        url="http://nowhere.invalid:8000",
    )


def _odd_but_right() -> Iterator[Case]:
    """What is unusual and does no harm."""
    yield Case("in small chunks", RIGHT, chunked)
    yield Case("without a content length", RIGHT, lambda connection, body, _: connection.wfile.write(head() + body))
    yield Case("byte order mark", RIGHT, sends_with(change=lambda body: b"\xef\xbb\xbf" + body))
    yield Case("wrong content type", RIGHT, sends_with("Content-Type: image/png"))
    yield Case("no content type, many headers", RIGHT, sends_with(*(f"X-{i}: {'y' * 50}" for i in range(200))))
    yield Case(
        "early hints first",
        RIGHT,
        lambda connection, body, _: connection.wfile.write(head("103 Early Hints", "Link: x") + plain(body)),
    )
    yield Case("resets once", RIGHT, OnceThen(resets))
    yield Case("busy once", RIGHT, OnceThen(sends(plain(b"later", "503 Busy", "Retry-After: 0"))))
    yield Case("unknown fields", RIGHT, sends_with(change=put("choices", 0, "x", value={"deep": [[[]]]})))
    yield Case("a text that nobody reads", RIGHT, sends_with(change=put("choices", 0, "text", value=[1])))
    yield Case("no logprobs", RIGHT, sends_with(change=put("choices", 0, "logprobs", value=None)))
    yield Case(
        "null for the longest sequence", RIGHT, sends_with(change=put("data", 0, "max_model_len", value=None)), MODELS
    )
    yield Case("usage of wrong types", RIGHT, sends_with(change=put("usage", value="much")))
    yield Case("HTTP/1.0", RIGHT, lambda connection, body, _: connection.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + body))
    yield Case("cookies", RIGHT, sends_with("Set-Cookie: a=b; Max-Age=99999999"))
    yield Case("no version", RIGHT, sends(plain(b"no", "404 Not Found")), VERSION)
    yield Case("tokenises nothing", RIGHT, sends(plain(b"no", "404 Not Found")), TOKENIZE)


def _json() -> Iterator[Case]:
    """Bodies that are no JSON, or JSON that is not taken."""
    strict = "not JSON as it should be"
    for name, body in {
        "empty body": b"",
        "one space": b" ",
        "HTML": b"<!DOCTYPE html><html><body>It works!</body></html>",
        "half of a JSON": b'{"choices": [',
        "two JSONs": b"{}{}",
        "events": b'data: {"choices": []}\n\ndata: [DONE]\n\n',
        "no UTF-8": b'{"choices": "\xff\xfe"}',
        "UTF-16": '{"choices": []}'.encode("utf-16"),
        "zero bytes": bytes(1000),
        "NaN": b'{"choices": NaN}',
        "Infinity": b'{"choices": [-Infinity]}',
        "number of 5000 digits": b'{"choices": ' + b"9" * 5000 + b"}",
        "deep lists": b"[" * 90_000,
        "deep objects": b'{"a":' * 90_000,
        "key that comes twice": b'{"choices": [], "choices": []}',
        "control characters": b'{"choices": "\x1b[2J"}',
    }.items():
        yield Case(name, strict, sends(plain(body)))
        if name in ("HTML", "deep lists", "empty body", "NaN"):
            yield Case(f"{name} for models", strict, sends(plain(body)), MODELS)
    yield Case("very deep lists", r"JSON of up to [\d,]+ values", sends(plain(b"[" * 4_000_000)))
    yield Case(
        "a million empty lists", r"JSON of up to [\d,]+ values", sends(plain(b"[" + b"[]," * 1_000_000 + b"[]]"))
    )
    yield Case(
        "a million small objects for models",
        r"JSON of up to [\d,]+ values",
        sends(plain(b"[" + b"{}," * 1_000_000 + b"{}]")),
        MODELS,
    )


def _table() -> dict[str, Case]:
    cases = [*_wire(), *_odd_but_right(), *_json(), *wrong_fields(), *wrong_routing()]
    table = {case.name: case for case in cases}
    assert len(table) == len(cases), "two cases have one name"
    return table


CASES = _table()


@cache
def model() -> Path:
    """The directory of the model that is served."""
    return tiny_moe.save(Path(tempfile.mkdtemp(prefix="radmoe-served-")) / "tiny")


def sample(engine: HttpEngine) -> Completion:
    (done,) = engine.generate([PROMPT], 1, sampling=Sampling(max_tokens=TOKENS, seed=1), batch_size=1, keys=["a"])
    return done


@cache
def undisturbed(kind: str, plugin: bool) -> Completion:
    """The rollout of a server that is right; it also computes what the misbehaving ones send."""
    with FakeServer(tiny_moe.engine("qwen3-moe"), kind, plugin=plugin).running() as server:
        engine = CLIENTS[kind](server.url, model())
        try:
            return sample(engine)
        finally:
            engine.close()


def run_case(case: Case) -> Outcome:
    """Run one case: the line that came of it, its seconds, and the bytes by which memory grew at most."""
    expected = undisturbed(case.kind, case.plugin)
    before = _fresh_peak()
    server = Misbehaving(case)
    with server.running():
        begun = time.monotonic()
        try:
            url = case.url or server.url
            engine = CLIENTS[case.kind](url, model(), timeout=case.seconds, retries=2, backoff=0.01, probe=case.probe)
            try:
                done = sample(engine)
            finally:
                engine.close()
            same = np.array_equal(done.rollout.token_ids, expected.rollout.token_ids)
            same = same and np.array_equal(done.rollout.expert_ids, expected.rollout.expert_ids)
            line = RIGHT if same else "another rollout than that of an undisturbed server"
        except EngineError as error:
            line = str(error)
        finally:
            server.over.set()
        return Outcome(line, time.monotonic() - begun, max(0, _peak() - before))


def prepare() -> None:
    """Load and sample what all cases share, before processes are forked for them. No thread is left."""
    import torch

    torch.set_num_threads(1)
    for kind, plugin in {(case.kind, case.plugin) for case in CASES.values()}:
        undisturbed(kind, plugin)


def expect(case: Case) -> None:
    """Run one case as a command does, which ends with 0, or with 2 after the line that it must come to, or worse."""
    line = run_case(case).line
    if not re.search(case.line, line):
        raise AssertionError(f"{case.name} came to {line!r}, not to {case.line!r}")
    print(line)
    if line != RIGHT:
        raise SystemExit(2)


def _fresh_peak() -> int:
    """Begin to measure the peak of memory; the bytes in use now. Where the kernel cannot, the peak so far."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak()
    return _status("VmRSS")


def _peak() -> int:
    try:
        return _status("VmHWM")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
