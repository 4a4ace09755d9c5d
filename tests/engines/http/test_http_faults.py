"""Servers that are busy, broken, slow or wrong: one line each, and finished rollouts are kept."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

import tiny_moe
from radmoe.engines.base import Completion, Sampling
from radmoe.engines.doctor import examine
from radmoe.engines.http import HttpEngine, SglangHttpEngine, VllmHttpEngine
from radmoe.errors import EngineError, InputError, RadmoeError
from radmoe.pool import Pool, PoolWriter, open_pool

Serve = Callable[..., Any]
CLIENTS = {"vllm": VllmHttpEngine, "sglang": SglangHttpEngine}
PROMPTS = [[5, 6, 7, 8], [9, 10, 11]]


def client(server: Any, checkpoint: Path | None, **options: Any) -> HttpEngine:
    return CLIENTS[server.kind](server.url, checkpoint, **({"retries": 2, "backoff": 0.01} | options))


def run(engine: HttpEngine, n: int = 3, **said: Any) -> list[Completion]:
    options = {"sampling": Sampling(max_tokens=6, seed=1), "batch_size": 4, "keys": ["a", "b"]}
    return list(engine.generate(PROMPTS, n, **(options | said)))


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(RadmoeError) as caught:
        act()
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("no flag", "this server returns no routing: start .*--enable-return-routed-experts"),
        ("zeros", r"\d+ of \d+ \(row, layer\) pairs have no routing: .*--moe-"),
        ("truncated", "(no base64|no rows).*ask the server itself|rows of routing for"),
        ("doubles rows", r"rows of routing for a prompt of \d+ and 2 tokens.*should be"),
        ("drops a layer", "the server returns 2 layers, top-4; tiny has 3 layers"),
        ("out of range", r"outside \[0, 8\)"),
    ],
)
def test_a_server_whose_routing_is_wrong_is_refused_before_a_pool_is_made(
    serve: Serve, checkpoint: Path, kind: str, fault: str, said: str
) -> None:
    server = serve(kind, faults={fault})
    assert re.search(said, refusal(lambda: client(server, checkpoint)))


def test_the_plugins_faults_are_refused_too(serve: Serve, checkpoint: Path) -> None:
    assert "sum to 2.5, not 1" in refusal(lambda: client(serve(plugin=True, faults={"heavy"}), checkpoint))
    assert "no routing payload" in refusal(lambda: client(serve(plugin=True, faults={"truncated"}), checkpoint))
    assert "of 2 rows of this completion" in refusal(
        lambda: client(serve(plugin=True, faults={"loses a row"}), checkpoint)
    )


def test_another_models_directory_is_noticed(serve: Serve, tmp_path: Path) -> None:
    dense = transformers.Qwen3Config(vocab_size=515, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    dense.save_pretrained(tmp_path / "dense")
    tiny_moe.tokenizer().save_pretrained(tmp_path / "dense")
    server = serve("vllm")
    assert "(qwen3) is not a mixture-of-experts model" in refusal(lambda: client(server, tmp_path / "dense"))
    deeper = tiny_moe.save(tmp_path / "deeper", num_hidden_layers=4)
    assert "the server returns 3 layers, top-4; deeper has 4 layers" in refusal(lambda: client(server, deeper))
    with_plugin = serve("vllm", plugin=True)
    assert "the server's router is 3x8 top-4, that of" in refusal(lambda: client(with_plugin, deeper))
    assert "has no config.json" in refusal(lambda: client(server, tmp_path))


def test_a_mismatched_tokenizer_is_noticed(serve: Serve, checkpoint: Path) -> None:
    line = refusal(lambda: client(serve("vllm", faults={"respells"}), checkpoint))
    assert "is not the server's: token 0 of a test text is" in line


def test_a_wrong_model_name_lists_the_right_ones(serve: Serve, checkpoint: Path) -> None:
    server = serve("vllm", name="tiny-moe")
    assert refusal(lambda: client(server, checkpoint, served="tiny")) == (
        f"{server.url} has no model 'tiny': use one of tiny-moe"
    )
    assert client(server, checkpoint, served="tiny-moe").served == "tiny-moe"


def test_a_model_that_is_here_too_need_not_be_named(serve: Serve, checkpoint: Path) -> None:
    assert client(serve("vllm", root=str(checkpoint)), None).local.path == checkpoint
    assert "is no directory here: give the model's directory" in refusal(lambda: client(serve("vllm"), None))


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("busy", [[500, 503], [429, 429]])
def test_a_busy_server_is_asked_again(serve: Serve, checkpoint: Path, kind: str, busy: list[int]) -> None:
    server = serve(kind)
    engine = client(server, checkpoint)
    whole = {c[:2]: c.rollout.token_ids.tolist() for c in run(engine)}
    server.busy = list(busy)
    assert {c[:2]: c.rollout.token_ids.tolist() for c in run(engine)} == whole


def test_a_server_that_stays_busy_is_given_up(serve: Serve, checkpoint: Path) -> None:
    server = serve("vllm")
    engine = client(server, checkpoint)
    server.busy = [503] * 40
    line = refusal(lambda: run(engine))
    assert "answered 503: planted 503 (asked 3 times)" in line
    assert line.startswith("rollout ")


def test_what_asking_again_cannot_change_is_not_asked_again(serve: Serve, checkpoint: Path) -> None:
    server = serve("vllm")
    engine = client(server, checkpoint)
    asked, server.busy = len(server.bodies), [400] * 40
    assert "answered 400: planted 400" in refusal(lambda: run(engine, 1, batch_size=1))
    assert len(server.bodies) == asked + 1


@pytest.mark.parametrize("kind", CLIENTS)
def test_rollouts_finished_before_a_server_dies_are_kept(
    serve: Serve, checkpoint: Path, kind: str, tmp_path: Path
) -> None:
    """And the capture that goes on with another server is the one that would have been."""
    server = serve(kind)
    engine = client(server, checkpoint, retries=1)
    whole = {c[:2]: c.rollout.token_ids.tolist() for c in run(engine, 4)}
    server.dies_after = server.served + 3
    kept: list[Completion] = []
    with pytest.raises(EngineError, match=r"the connection to .* broke"):
        for done in engine.generate(PROMPTS, 4, sampling=Sampling(max_tokens=6, seed=1), batch_size=2, keys=["a", "b"]):
            kept.append(done)
    assert len(kept) >= 3
    with PoolWriter(tmp_path / "pool", shape=engine.shape, vocab=engine.vocab, model="tiny") as writer:
        for done in kept:
            writer.add("ab"[done.prompt_index], done.rollout, rollout_index=done.rollout_index)
    assert len(open_pool(tmp_path / "pool")) == len(kept)
    server.dies_after = None
    rest = run(engine, 4, missing=[[2, 3], range(4)])
    assert {c[:2]: c.rollout.token_ids.tolist() for c in rest} == {k: v for k, v in whole.items() if k >= (0, 2)}


def test_a_slow_server_meets_the_time_limit(serve: Serve, checkpoint: Path) -> None:
    server = serve("vllm")
    engine = client(server, checkpoint, timeout=0.3, retries=0)
    server.delay = 1.0
    assert "did not answer in 0.3 s" in refusal(lambda: run(engine, 1))


def test_requests_are_bounded(serve: Serve, checkpoint: Path) -> None:
    server = serve("vllm", delay=0.02)
    engine = client(server, checkpoint)
    server.most_at_once = 0
    run(engine, 6, batch_size=3)
    assert 1 < server.most_at_once <= 3


def test_who_stops_listening_does_not_wait(serve: Serve, checkpoint: Path) -> None:
    """As an interrupt does: nothing more is asked, and answers under way are not waited for."""
    server = serve("vllm")
    engine = client(server, checkpoint)
    running = engine.generate(PROMPTS, 50, sampling=Sampling(max_tokens=6), batch_size=4, keys=["a", "b"])
    next(running)
    server.delay = 5.0
    began = time.monotonic()
    running.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 2
    server.delay = 0
    assert len(server.bodies) < 20
    assert len(run(engine, 1)) == 2


def test_an_interrupt_ends_requests_and_threads_at_once(serve: Serve, checkpoint: Path) -> None:
    server = serve("vllm")
    engine = client(server, checkpoint)
    server.delay = 30.0
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(engine, 8)
    assert time.monotonic() - began < 5
    assert [thread for thread in threading.enumerate() if thread.name.startswith("radmoe-http_")] == []
    server.delay = 0
    assert len(run(engine, 1)) == 2


def test_an_interrupt_while_the_engine_is_opened_ends_it(serve: Serve, checkpoint: Path) -> None:
    server = serve("vllm", delay=30.0)  # of the first short request
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(1.0, signal.pthread_kill, (main, signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        client(server, checkpoint)
    assert time.monotonic() - began < 5


def test_lost_rows_of_the_plugin_are_sampled_again(serve: Serve, checkpoint: Path) -> None:
    server = serve("vllm", plugin=True)
    engine = client(server, checkpoint)
    keep, lost = server.keep, []

    def forget(key: str, *rows: Any) -> None:
        if len(lost) < 2:
            lost.append(key)
        else:
            keep(key, *rows)

    server.keep = forget
    assert len(run(engine)) == 6
    assert len(lost) == 2


@pytest.mark.parametrize("kind", CLIENTS)
def test_dense_layers_are_left_out(serve: Serve, tmp_path: Path, kind: str) -> None:
    model = tiny_moe.save(tmp_path / "m", "deepseek-v3")
    engine = client(serve(kind, family="deepseek-v3"), model)
    assert str(engine.shape) == "2x8 top-4"
    reference = tiny_moe.engine("deepseek-v3")
    for done in run(engine):
        prompt = PROMPTS[done.prompt_index]
        ids, _ = reference.teacher_forced(prompt + done.rollout.token_ids.tolist())
        assert (np.sort(ids[len(prompt) - 1 : -1], -1) == np.sort(done.rollout.expert_ids, -1)).all()


def test_a_server_that_trims_no_prompt_is_understood(serve: Serve, checkpoint: Path) -> None:
    """Releases before `routed_experts_prompt_start` return the whole sequence."""
    server = serve("vllm")
    engine = client(server, checkpoint)
    expected = [c.rollout.expert_ids.tolist() for c in run(engine, 1, batch_size=1)]
    answer = server.completions
    server.completions = lambda body: answer(body | {"routed_experts_prompt_start": 0})
    assert [c.rollout.expert_ids.tolist() for c in run(engine, 1, batch_size=1)] == expected


def test_an_aborted_rollout_is_not_kept(serve: Serve, checkpoint: Path) -> None:
    server = serve("vllm")
    engine, answer = client(server, checkpoint), server.completions

    def abort(body: dict[str, Any]) -> tuple[int, Any]:
        status, said = answer(body)
        said["choices"][0]["finish_reason"] = "abort"
        return status, said

    server.completions = abort
    assert "it ended with 'abort' after 6 tokens" in refusal(lambda: run(engine, 1))


@pytest.mark.parametrize("kind", CLIENTS)
def test_nothing_is_left_to_the_servers_own_sampling_settings(serve: Serve, checkpoint: Path, kind: str) -> None:
    server = serve(kind)
    run(client(server, checkpoint), 1)
    body = server.bodies[-1]
    said = body.get("sampling_params", body)
    assert (said["top_k"], said["min_p"], said["repetition_penalty"]) == (-1, 0, 1)


@pytest.mark.parametrize("plugin", [False, True])
def test_rollouts_come_by_the_route_for_token_ids_where_it_is_open(
    serve: Serve, checkpoint: Path, plugin: bool
) -> None:
    """But for those with log-probabilities, of which it may leave one out."""
    server = serve("vllm", tokens=True, plugin=plugin)
    engine, routes = client(server, checkpoint), []
    for topk in (0, 5):
        sampling = Sampling(max_tokens=6, seed=1, topk_logprobs=topk)
        routes.append({(c.prompt_index, c.rollout_index): c.rollout for c in run(engine, sampling=sampling)})
        assert ("token_ids" in server.bodies[-1]) == (not topk)
    for key, rollout in routes[0].items():
        assert np.array_equal(rollout.token_ids, routes[1][key].token_ids)
        assert np.array_equal(rollout.expert_ids, routes[1][key].expert_ids)
        assert (rollout.weights is not None) == plugin


def test_vllms_rust_frontend_is_named_where_it_leaves_routing_out(serve: Serve, checkpoint: Path) -> None:
    server = serve("vllm", faults={"no flag"}, rust=True)
    assert "not with VLLM_USE_RUST_FRONTEND=1" in refusal(lambda: client(server, checkpoint))
    found = {f.check: f for f in examine(lambda: client(server, checkpoint, probe=False), "vllm-http")}
    assert "vllm-rs 0.30.0" in found["engine"].seen
    assert found["routing"].status == "failed"
    assert "not with VLLM_USE_RUST_FRONTEND=1" in found["routing"].todo


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://host:port", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is no address of a server"):
        VllmHttpEngine(url)


def test_a_page_that_is_no_model_server_is_said_to_be(serve: Serve, checkpoint: Path) -> None:
    """A vLLM engine at an SGLang server, and the other way round."""
    sglang, vllm = serve("sglang"), serve("vllm")
    assert "/v1/completions answered 404" in refusal(lambda: VllmHttpEngine(sglang.url, checkpoint, retries=0))
    assert "/generate answered 404" in refusal(lambda: SglangHttpEngine(vllm.url, checkpoint, retries=0))


def test_prompts_that_are_none_are_refused(serve: Serve, checkpoint: Path) -> None:
    engine = client(serve("vllm"), checkpoint)
    asked = {"sampling": Sampling(), "batch_size": 1, "keys": ["a"]}
    with pytest.raises(InputError, match="zero tokens"):
        engine.generate([[]], 1, **asked)
    with pytest.raises(InputError, match=r"lie in \[0, 515\)"):
        engine.generate([[515]], 1, **asked)


def test_a_pool_of_a_dead_capture_is_recovered(serve: Serve, checkpoint: Path, tmp_path: Path) -> None:
    server = serve("vllm", plugin=True)
    engine = client(server, checkpoint, retries=0)
    server.dies_after = server.served + 3  # the third rollout's rows are not fetched any more
    with (
        pytest.raises(EngineError),
        PoolWriter(tmp_path / "pool", shape=engine.shape, vocab=engine.vocab, model="tiny") as writer,
    ):
        for done in engine.generate(PROMPTS, 3, sampling=Sampling(max_tokens=6), batch_size=1, keys=["a", "b"]):
            writer.add("ab"[done.prompt_index], done.rollout, rollout_index=done.rollout_index)
    assert len(Pool.recover(tmp_path / "pool")) == 2
    assert open_pool(tmp_path / "pool").has_weights
