"""Rows of requests with a LoRA adapter, beside requests without one, on a real engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from radmoe.engines.vllm.plugin import TAKE
from vllm_parts import FLOAT32_AGREES, OPTIONS, WEIGHTS_APART, replayed, same_sets, weights_apart

RANK, PROMPT = 4, [5, 6, 7, 8]


def torch_experts(
    self: Any, output: Any, hidden_states: Any, w1: Any, w2: Any, topk_weights: Any, topk_ids: Any, *_: Any, **__: Any
) -> None:
    """What vLLM's Triton kernel computes, of which a CPU has none: the experts' sum, by torch."""
    output.zero_()
    for expert in topk_ids.unique().tolist():
        rows, place = (topk_ids == expert).nonzero(as_tuple=True)
        gate, up = (hidden_states[rows] @ w1[expert].T).chunk(2, -1)
        term = (torch.nn.functional.silu(gate) * up) @ w2[expert].T
        output.index_add_(0, rows, (term * topk_weights[rows, place, None]).to(output.dtype))


def adapted(base: Path, folder: Path) -> tuple[Path, Path]:
    """An adapter of all queries, and the checkpoint with that adapter merged into it."""
    adapter, merged = folder / "adapter", folder / "merged"
    adapter.mkdir()
    shutil.copytree(base, merged)
    weights = load_file(base / "model.safetensors")
    generator, low = torch.Generator().manual_seed(0), {}
    for name in [name for name in weights if name.endswith("self_attn.q_proj.weight")]:
        rows, columns = weights[name].shape
        a, b = (torch.randn(size, generator=generator) * 0.3 for size in ((RANK, columns), (rows, RANK)))
        low |= {f"base_model.model.{name[:-7]}.lora_A.weight": a, f"base_model.model.{name[:-7]}.lora_B.weight": b}
        weights[name] = weights[name].float() + b @ a
    save_file(weights, merged / "model.safetensors", metadata={"format": "pt"})
    save_file(low, adapter / "adapter_model.safetensors")
    told = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj"], "bias": "none"}
    (adapter / "adapter_config.json").write_text(json.dumps(told))
    return adapter, merged


def test_requests_with_an_adapter_have_its_rows_and_the_others_the_models(
    checkpoint: Any, replay: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.lora.request import LoRARequest
    from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonExperts

    from radmoe.engines.torch.engine import TransformersEngine
    from radmoe.engines.vllm.engine import VllmEngine, taken
    from vllm import SamplingParams

    monkeypatch.setattr(TritonExperts, "apply", torch_experts)
    adapter, merged = adapted(checkpoint("lab-qwen"), tmp_path)
    two = {
        "enable_lora": True,
        "max_lora_rank": 8,
        "max_loras": 2,
    }  # one stays empty: vLLM's CPU build gives it to requests without an adapter
    engine = VllmEngine(checkpoint("lab-qwen"), dtype="float32", **(OPTIONS | two))
    try:
        asked = [SamplingParams(temperature=0, max_tokens=40, extra_args={"radmoe": name}) for name in "ab"]
        prompts = [{"prompt_token_ids": PROMPT}] * 2
        with_and_without = [LoRARequest("queries", 1, str(adapter)), None]
        done = engine.llm.generate(prompts, asked, lora_request=with_and_without, use_tqdm=False)
        rows = [taken(engine.llm.collective_rpc(TAKE, args=({"key": name, "n": 1},)))[0] for name in "ab"]
    finally:
        engine.close()
    changed, plain = TransformersEngine(merged, dtype="float32"), replay("lab-qwen", "float32")
    for output, routing, model, other in zip(done, rows, (changed, plain), (plain, changed), strict=True):
        tokens = np.array(output.outputs[0].token_ids)
        ids, mass = routing.generated(len(tokens))
        truth = replayed(model, PROMPT, tokens)
        assert same_sets(ids, truth[0]).mean() >= FLOAT32_AGREES
        assert weights_apart((ids, mass), truth) < WEIGHTS_APART
        assert same_sets(ids, replayed(other, PROMPT, tokens)[0]).mean() < 0.9
