"""Rows find their requests under other settings of the engine; one engine at a time in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from radmoe.engines.base import Sampling
from radmoe.engines.vllm.plugin import STATUS, TAKE
from vllm_parts import FLOAT32_AGREES, GPU, GREEDY, OPTIONS, check, replayed, same_sets


@contextmanager
def started(path: Any, **options: Any) -> Iterator[Any]:
    from radmoe.engines.vllm.engine import VllmEngine

    engine = VllmEngine(path, dtype="float32", **(OPTIONS | options))
    try:
        yield engine
    finally:
        engine.close()


def test_a_prompt_longer_than_a_chunk(checkpoint: Any, replay: Any) -> None:
    """64 tokens a pass: the prompt comes in four parts, the last of them beside others' decoding."""
    prompts = [[(7 * i + j) % 800 for j in range(200 + i)] for i in range(3)]
    chunks = {"enable_chunked_prefill": True, "max_num_batched_tokens": 64}
    with started(checkpoint("lab-qwen"), **chunks) as engine:
        done = list(engine.generate(prompts, 2, sampling=GREEDY))
    assert len(done) == 6
    for c in done:
        check(replay, prompts[c.prompt_index], c.rollout)


def test_a_preempted_request_is_recorded_once(checkpoint: Any, replay: Any) -> None:
    """Room for three requests of 150 tokens, and 6 of them: some are dropped and computed anew."""
    prompts = [[(3 * i + j) % 800 for j in range(100)] for i in range(6)]
    blocks = 31 if GPU else 7  # of 16 tokens, of 128
    small = {"num_gpu_blocks_override": blocks, "max_model_len": 256, "disable_log_stats": False}
    with started(checkpoint("lab-qwen"), **small) as engine:
        done = list(engine.generate(prompts, 1, sampling=Sampling(max_tokens=50, seed=1)))
        preempted = next(m.value for m in engine.llm.get_metrics() if m.name == "vllm:num_preemptions")
    assert preempted > 0
    assert len(done) == 6
    for c in done:
        check(replay, prompts[c.prompt_index], c.rollout)


@pytest.mark.slow
def test_tensor_parallelism(checkpoint: Any, replay: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers in processes of their own; both route alike, the first records."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    prompts = [[(3 * i + j) % 800 for j in range(30)] for i in range(3)]
    with started(checkpoint("lab-qwen"), tensor_parallel_size=2) as engine:
        assert [answer is None for answer in engine.llm.collective_rpc(STATUS)] == [False, True]
        done = list(engine.generate(prompts, 2, sampling=Sampling(max_tokens=24, seed=1)))
    assert len(done) == 6
    for c in done:
        check(replay, prompts[c.prompt_index], c.rollout)


@pytest.mark.parametrize(
    ("settings", "tokens", "layers"),
    [
        ({"rows": "all", "layers": "0-2"}, range(-31, 24), 3),
        ({"rows": "tail:8", "layers": "s1", "weights": False}, range(16, 24), 1),
    ],
)
def test_windows_and_layers(checkpoint: Any, replay: Any, settings: dict[str, Any], tokens: range, layers: int) -> None:
    """A capture of part of the rows; `tail` may hold a row or two more."""
    from radmoe.engines.vllm.engine import request_parameters, taken
    from vllm import LLM

    llm = LLM(str(checkpoint("lab-qwen")), dtype="float32", additional_config={"radmoe": settings}, **OPTIONS)
    prompt = [(5 * j) % 800 for j in range(32)]
    asked = request_parameters(GREEDY, 1, key="w")
    asked.ignore_eos = True
    (output,) = llm.generate([{"prompt_token_ids": prompt}], asked, use_tqdm=False)
    status = llm.collective_rpc(STATUS)[0]
    routing = taken(llm.collective_rpc(TAKE, args=({"key": "w", "n": 1},)))[0]
    llm.llm_engine.engine_core.shutdown()
    assert set(tokens) <= set(routing.token.tolist())
    assert len(routing.token) <= len(tokens) + 2
    assert routing.layers.tolist() == status["captured_layers"]
    assert len(routing.layers) == layers
    assert (routing.weights is None) == (settings.get("weights") is False)
    ids, _ = replay("lab-qwen", "float32").teacher_forced([*prompt, *output.outputs[0].token_ids])
    rows = len(prompt) - 1 + routing.token
    inside = rows < len(ids)  # a row or two may follow the last token
    assert same_sets(routing.ids[inside], ids[rows[inside]][:, routing.layers]).mean() >= FLOAT32_AGREES


def test_ids_are_the_models_own_under_expert_load_balancing(
    checkpoint: Any, replay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's router names replicas (here: the experts backwards) after the place that the plugin listens to."""
    from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter

    monkeypatch.setattr(BaseRouter, "_apply_eplb_mapping", lambda self, ids: self.global_num_experts - 1 - ids)
    prompt = [5, 6, 7, 8]
    with started(checkpoint("lab-qwen")) as engine:
        (c,) = engine.generate([prompt], 1, sampling=GREEDY)
    ids, _ = replayed(replay("lab-qwen", "float32"), prompt, c.rollout.token_ids)
    assert same_sets(c.rollout.expert_ids[:, 0], ids[:, 0]).all()  # other experts compute, so later layers differ
    assert same_sets(c.rollout.expert_ids, ids).mean() < 0.9
