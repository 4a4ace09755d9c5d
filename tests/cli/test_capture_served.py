"""`radmoe capture` from a vLLM server with the plugin: what leaves it is what the pool keeps."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import radmoe.cli as cli
import tiny_moe
from fake_server import FakeServer
from radmoe.engines.http import VllmHttpEngine
from radmoe.pool import open_pool, schema

Serve, Capture = Callable[..., FakeServer], Callable[..., str]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_moe.save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as servers:
        yield lambda **options: servers.enter_context(
            FakeServer(tiny_moe.engine("qwen3-moe"), plugin=True, **options).running()
        )


@pytest.fixture
def capture(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Capture:
    """`capture(server, name, *options)`: the pool tmp_path/name of five problems; or the one error line."""
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("".join(f'{{"id": "q{i}", "prompt": "So the sum is {i}"}}\n' for i in range(5)))

    def call(server: FakeServer, name: str, *options: object, expect: int = 0) -> str:
        capsys.readouterr()
        fixed = ["--engine", "vllm-http", "--url", server.url, "--model", checkpoint, "--data", prompts, "--raw"]
        fixed += ["--kind", "math"]
        asked = ["-n", 2, "--max-tokens", 40, "--batch-size", 1, "--out", tmp_path / name]  # one at a time: in order
        monkeypatch.setattr(sys, "argv", ["radmoe", "capture", *map(str, [*fixed, *asked, *options])])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        said = capsys.readouterr()
        assert (exit_.value.code or 0) == expect, said.err
        return said.err.strip()

    return call


def files(pool: Path) -> dict[str, bytes]:
    """All of a pool, byte for byte."""
    assert open_pool(pool).verify() == []
    return {str(f.relative_to(pool)): f.read_bytes() for f in sorted(pool.rglob("*")) if f.is_file()}


def rows(pool: Path) -> list[int]:
    """Routing rows the pool keeps of each rollout, over all problems in order."""
    opened = open_pool(pool)
    return [len(r) if r.positions is None else len(r.positions) for g in opened.groups() for r in g.rollouts]


def everything(self: Any, *args: Any, generate: Any = VllmHttpEngine.generate, **asked: Any) -> Any:
    """`generate` as if nobody had a profile: all rows are fetched, and the pool leaves the rest."""
    return generate(self, *args, **(asked | {"profile": None}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "readouts",
    ["delimiter:e@4", "boundary: that@marker, delimiter: minus@3, trajectory:so@2, pre-delim@8", "boundary:e@union"],
)
def test_windows_alone_are_fetched_and_the_pool_is_the_same(
    serve: Serve, capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readouts: str
) -> None:
    server = serve()
    capture(server, "windows", "--readouts", readouts)
    few, server.sent = server.sent, []
    monkeypatch.setattr(VllmHttpEngine, "generate", everything)
    capture(server, "full", "--readouts", readouts)
    assert files(tmp_path / "windows") == files(tmp_path / "full")
    found = rows(tmp_path / "windows")
    assert 0 in found  # a rollout without an anchor: its request was dropped in the server
    assert sum(found) > 0
    assert server.kept == {}
    assert len(few) == len(server.sent) == 1 + 10  # the probe, and ten rollouts
    left = open_pool(tmp_path / "full").tokens - sum(found)
    row = 4 + 3 * 4 * 4  # its token; 3 layers, top-4, int16 and float16
    assert abs(sum(server.sent) - sum(few) - left * row) <= 11 * 8  # headers say how many, in digits


@pytest.mark.slow
def test_a_server_that_captures_some_layers_makes_the_pool_of_these(
    serve: Serve, capture: Capture, tmp_path: Path
) -> None:
    """With and without --layers, and with fewer of them; the same as from a server that captures all."""
    whole, some = serve(), serve(captured=[0, 2])
    capture(whole, "whole", "--layers", "0,2")
    capture(some, "some")
    capture(some, "said", "--layers", "0,2")
    assert files(tmp_path / "whole") == files(tmp_path / "some") == files(tmp_path / "said")
    assert sum(some.sent) < 2 * sum(whole.sent)
    body = json.loads((tmp_path / "some" / schema.POOL_JSON).read_text())
    assert (body["layers"], body["run"]["profile"]["layers"]) == (3, [0, 2])
    for server in (whole, some):
        capture(server, f"deep-{server.captured}", "--layers", "2", "--readouts", "delimiter:e@4")
    assert files(tmp_path / "deep-[0, 1, 2]") == files(tmp_path / "deep-[0, 2]")


def test_layers_a_server_does_not_capture_are_refused(serve: Serve, capture: Capture, tmp_path: Path) -> None:
    line = capture(serve(captured=[0, 2]), "none", "--layers", "0-1", expect=2)
    assert line == (
        "radmoe: error: only layers 0,2 are captured here, and 0-1 are to be kept: keep some of the captured ones, "
        "or have more captured"
    )
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_server_that_comes_back_with_other_layers_is_noticed(serve: Serve, capture: Capture, tmp_path: Path) -> None:
    """In the middle of a capture, and when it is resumed."""
    server = serve()
    keep = server.keep

    def keep_less(*said: Any) -> None:
        server.captured = [1] if server.served > 3 else server.captured
        keep(*said)

    server.keep = keep_less
    line = capture(server, "pool", expect=2)
    assert "the capture has layers 1, top-4, not layers all of a router 3x8 top-4: was the server started" in line
    assert "was made with profile" in capture(server, "pool", expect=2)


@pytest.mark.slow
def test_what_is_there_is_not_sampled_again(serve: Serve, capture: Capture, tmp_path: Path) -> None:
    """The first rollout fails when others behind it are finished: a hole, not an end."""
    server = serve()
    capture(server, "whole", "--batch-size", 4)
    answer, before = server.completions, server.served

    def refuse_first(body: dict[str, Any]) -> tuple[int, Any]:
        if len(server.bodies) == asked + 1 or body is not server.bodies[asked + 1]:  # the probe, or behind the first
            return answer(body)
        while server.served < before + 3:
            time.sleep(0.01)
        return 400, {"error": "planted"}

    asked, server.completions = len(server.bodies), refuse_first
    capture(server, "broken", "--batch-size", 4, expect=2)
    server.completions, middle = answer, len(server.bodies)
    capture(server, "broken", "--batch-size", 4)
    first, second = ({b["seed"] for b in part[1:]} for part in (server.bodies[asked:middle], server.bodies[middle:]))
    assert first & second == {server.bodies[asked + 1]["seed"]}
    assert len(first | second) == 10
    assert 2 <= len(first) - 1 < 10
    pools = [open_pool(tmp_path / name) for name in ("whole", "broken")]
    for problem in pools[0].problems:
        a, b = ([r.token_ids.tolist() for r in pool.group(problem).rollouts] for pool in pools)
        assert a == b
