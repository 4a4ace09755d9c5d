"""`vllm serve` with the plugin: ids over HTTP as vLLM sends them, ids and weights from the plugin's route."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radmoe.engines.checkpoint import RouterLayout
from radmoe.engines.http.answers import stock_rows
from radmoe.engines.vllm.plugin.endpoint import ROUTING, STATUS_PATH
from radmoe.engines.vllm.plugin.payload import decode
from radmoe.types import RouterShape
from vllm_parts import FLOAT32_AGREES, STOCK, WEIGHTS_APART, replayed, same_sets
from vllm_server import OPTIONS, Server, running

LAYOUT = RouterLayout(RouterShape(11, 32, 8), 11, tuple(range(11)), "lab-qwen")
PROMPT = [(5 * j) % 800 for j in range(40)]


@pytest.fixture(scope="module")
def server(checkpoint: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(checkpoint("lab-qwen"), tmp_path_factory.mktemp("serve") / "log") as made:
        yield made


def test_status_says_what_is_captured(server: Server) -> None:
    code, answer = server.ask(STATUS_PATH)
    status = json.loads(answer)
    assert code == 200
    assert (status["layers"], status["experts"], status["top_k"]) == (11, 32, 8)
    assert status["row_bytes"] == 11 * 8 * 3
    assert status["settings"]["memory_mib"] == 64


def test_ids_and_weights_over_http_agree_with_a_replay(server: Server, replay: Any) -> None:
    """Both ways at once: `routed_experts` of the response, and the plugin's route."""
    choices = server.complete("one", 4, prompt=PROMPT)["choices"]
    code, payload = server.ask(ROUTING, {"key": "one", "n": 4})
    assert code == 200
    routing = decode(payload)
    assert len(payload) < 4 * 24 * 11 * 8 * 3 + 1000
    for choice in choices:
        tokens = np.array(choice["token_ids"])
        ids, weights = routing[choice["index"]].generated(len(tokens))
        if STOCK:
            sent = np.load(io.BytesIO(base64.b64decode(choice["routed_experts"])))
            assert np.array_equal(stock_rows(sent, None, len(tokens), LAYOUT, "it"), ids)
        truth, mass = replayed(replay("lab-qwen", "float32"), PROMPT, tokens)
        assert same_sets(ids, truth).mean() >= FLOAT32_AGREES
        assert weights is not None
        assert np.allclose(np.sort(weights.astype(np.float32)), np.sort(mass), atol=WEIGHTS_APART)


def test_chat_and_several_requests_at_once(server: Server, replay: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    messages = [[{"role": "user", "content": f"What is {i} plus 3?"}] for i in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda i: server.complete(f"chat{i}", 2, messages=messages[i]), range(6)))
    for i in (3, 0, 5, 1, 4, 2):  # in any order
        routing = decode(server.ask(ROUTING, {"key": f"chat{i}", "n": 2})[1])
        prompt = answers[i]["prompt_token_ids"]
        for choice in answers[i]["choices"]:
            tokens = np.array(choice["token_ids"])
            truth, _ = replayed(replay("lab-qwen", "float32"), prompt, tokens)
            assert same_sets(routing[choice["index"]].generated(len(tokens))[0], truth).mean() >= FLOAT32_AGREES


def test_only_the_windows_asked_for_are_sent(server: Server) -> None:
    server.complete("windows", 2, prompt=PROMPT)
    code, payload = server.ask(ROUTING, {"key": "windows", "n": 2, "spans": {"0": [[8, 12]], "1": [[0, 4], [20, 99]]}})
    assert code == 200
    assert {i: r.token.tolist() for i, r in decode(payload).items()} == {
        0: [8, 9, 10, 11],
        1: [0, 1, 2, 3, 20, 21, 22, 23],
    }
    assert len(payload) < 12 * 11 * 8 * 3 + 1000


def test_of_a_profile_only_its_rows_are_sent(server: Server, checkpoint: Any) -> None:
    """Over HTTP too: kept rows are those of a full fetch, and a rollout without an anchor is dropped in the server."""
    from radmoe.engines.base import Completion, Sampling
    from radmoe.engines.http import VllmHttpEngine
    from radmoe.engines.prompts import encode
    from radmoe.pool import Profile

    engine, sent = VllmHttpEngine(f"http://127.0.0.1:{server.port}", checkpoint("lab-qwen")), list[int]()
    fetch, held = engine.server.fetch, json.loads(server.ask(STATUS_PATH)[1])["requests"]
    prompts = [encode(engine.tokenizer, "Start with 4. Add 17. What do you get?")[1], PROMPT]
    sampling = Sampling(temperature=0, max_tokens=100, topk_logprobs=0)

    def counted(method: str, path: str, body: Any = None, **limits: Any) -> bytes:
        answer = fetch(method, path, body, **limits)
        if path == ROUTING:
            sent.append(len(answer))
        return answer

    def run(profile: Profile | None) -> list[Completion]:
        kinds = ["math"] * len(prompts)
        return list(engine.generate(prompts, 1, sampling=sampling, batch_size=1, kinds=kinds, profile=profile))

    engine.server.fetch = counted  # type: ignore[method-assign]
    profile = Profile(readouts=("trajectory:/plus|add|minus|4/@4", "delimiter@8"))
    pairs = list(zip(run(None), run(profile), strict=True))
    rows = [profile.kept_rows(whole.rollout.token_ids, engine.vocab, "math") for whole, _ in pairs]
    for (whole, part), at in zip(pairs, rows, strict=True):
        assert np.array_equal(whole.rollout.token_ids, part.rollout.token_ids)
        assert np.array_equal(part.rollout.positions, at)
        assert np.array_equal(whole.rollout.expert_ids[at], part.rollout.expert_ids)
        assert np.array_equal(whole.rollout.weights[at], part.rollout.weights)
    print([len(at) for at in rows], sent)
    for (whole, _), at, full, few in zip(pairs, rows, sent[:2], sent[2:], strict=True):
        assert full - few == pytest.approx(
            (len(whole.rollout) - len(at)) * (4 + 11 * 8 * 3), abs=16
        )  # row counts differ
    assert json.loads(server.ask(STATUS_PATH)[1])["requests"] == held


def test_the_route_for_token_ids_gives_the_same_rollouts(server: Server, checkpoint: Any) -> None:
    """It is asked where no log-probabilities are wanted."""
    from radmoe.engines.base import Sampling
    from radmoe.engines.http import VllmHttpEngine

    engine, asked = VllmHttpEngine(f"http://127.0.0.1:{server.port}", checkpoint("lab-qwen")), list[str]()
    post = engine.server.post
    engine.server.post = lambda path, *said: asked.append(path) or post(path, *said)  # type: ignore
    (mine,), (theirs,) = (
        engine.generate([PROMPT], 1, sampling=Sampling(temperature=0, max_tokens=24, topk_logprobs=c)) for c in (0, 5)
    )
    engine.close()
    assert asked == ["/inference/v1/generate", "/v1/completions"]
    assert np.array_equal(mine.rollout.token_ids, theirs.rollout.token_ids)
    assert np.array_equal(mine.rollout.expert_ids, theirs.rollout.expert_ids)
    assert mine.rollout.weights is not None


def test_a_client_that_leaves_does_not_stay_in_memory(server: Server) -> None:
    """The connection is cut in mid-generation: vLLM aborts, and later requests are served and fetched as ever."""
    for i in range(3):
        body = {"model": "lab", "prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True}
        data = json.dumps(body | {"vllm_xargs": {"radmoe": f"gone{i}"}}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/v1/completions", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            answer.readline()
    server.complete("after", prompt=PROMPT)
    assert decode(server.ask(ROUTING, {"key": "after"})[1])[0].token.tolist()[:24] == list(range(24))
    for i in range(3):
        server.ask(ROUTING, {"key": f"gone{i}", "spans": {}})  # what a tidy client sends
    status = json.loads(server.ask(STATUS_PATH)[1])
    assert (status["requests"], status["bytes"]) == (0, 0)


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        ({"key": "never"}, 409, "holds nothing under the key 'never'"),
        ({"key": "few", "n": 3}, 409, "holds 2 choices under the key 'few', not 3 choices"),
        ({"n": 3}, 400, "a routing request is"),
        ([1], 400, "a routing request is"),
    ],
)
def test_errors_are_one_line(server: Server, body: Any, code: int, line: str) -> None:
    if "few" in str(body):
        server.complete("few", 2, prompt=PROMPT)
    got, answer = server.ask(ROUTING, body)
    assert got == code
    assert line in json.loads(answer)["error"]


def test_a_server_that_does_not_capture_says_how_to(server: Server) -> None:
    """Of a request that named no key there is nothing to fetch."""
    server.complete(None, prompt=PROMPT)
    assert json.loads(server.ask(STATUS_PATH)[1])["requests"] <= 2


def capture(server: Server, model: Path, prompts: Path, out: Path) -> subprocess.Popen[str]:
    fixed = [
        "-n",
        "1",
        "--temperature",
        "0",
        "--max-tokens",
        "12",
        "--batch-size",
        "16",
        "--engine",
        "vllm-http",
        "--raw",
    ]
    named = ["--url", f"http://127.0.0.1:{server.port}", "--model", model, "--data", prompts, "--out", out]
    command = [sys.executable, "-m", "radmoe", "capture", *map(str, named), *fixed]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_capture_survives_the_death_of_its_server(server: Server, checkpoint: Any, tmp_path: Path) -> None:
    """200 requests at temperature 0; the server is killed in the middle, started anew, and the capture goes on."""
    from radmoe import open_pool

    model, prompts = checkpoint("lab-qwen"), tmp_path / "prompts.jsonl"
    lines = [{"id": f"p{i:03d}", "prompt": f"Start with {i}. Add {7 * i % 100}."} for i in range(200)]
    prompts.write_text("\n".join(json.dumps(line) for line in lines))
    whole = capture(server, model, prompts, tmp_path / "whole")
    assert whole.wait(300) == 0, whole.stderr.read()
    before = server.log.read_text().count(ROUTING)
    broken = capture(server, model, prompts, tmp_path / "broken")
    while server.log.read_text().count(ROUTING) < before + 60:
        assert broken.poll() is None, broken.stderr.read()
        time.sleep(0.05)
    server.kill()
    _, error = broken.communicate(timeout=120)
    assert broken.returncode == 2
    assert "Traceback" not in error
    again = Server(model, tmp_path / "log", *OPTIONS, port=server.port)
    try:
        again.wait()
        rest = capture(again, model, prompts, tmp_path / "broken")
        error = rest.communicate(timeout=300)[1]
        assert rest.returncode == 0, error
    finally:
        again.close()
    assert 0 < again.log.read_text().count(ROUTING) < 200  # the finished ones were not asked again
    pools = [open_pool(tmp_path / name) for name in ("whole", "broken")]
    assert [len(list(pool.groups())) for pool in pools] == [200, 200]
    for line in lines:  # they lie in the order they were finished in
        (a,), (b,) = (pool.group(line["id"]).rollouts for pool in pools)
        assert np.array_equal(a.token_ids, b.token_ids)
        assert same_sets(a.expert_ids, b.expert_ids).all()
        assert np.allclose(np.sort(a.weights), np.sort(b.weights), atol=WEIGHTS_APART)
