"""LoRA adapters, FP8 and AWQ, with torch in the place of kernels that only GPUs have."""

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
from vllm_parts import FLOAT32_AGREES, GPU, OPTIONS, STOCK, WEIGHTS_APART, replayed, same_sets, weights_apart

RANK, PROMPT = 4, [5, 6, 7, 8]
GROUP = 32  # numbers that share an AWQ scale


def experts_by_torch(
    self: Any,
    output: Any,
    hidden_states: Any,
    w1: Any,
    w2: Any,
    topk_weights: Any,
    topk_ids: Any,
    *_: Any,
    a1q_scale: Any = None,
    **__: Any,
) -> None:
    """The sum over experts that vLLM's Triton kernels compute."""
    x = hidden_states.float() * (1 if a1q_scale is None else a1q_scale)
    quantised = self.quant_config
    output.zero_()
    for expert in topk_ids.unique().tolist():
        rows, place = (topk_ids == expert).nonzero(as_tuple=True)
        gate, up = (x[rows] @ matrix(expert, w1, self.w1_scale, quantised.w1_zp).T).chunk(2, -1)
        term = (torch.nn.functional.silu(gate) * up) @ matrix(expert, w2, self.w2_scale, quantised.w2_zp).T
        output.index_add_(0, rows, (term * topk_weights[rows, place, None]).to(output.dtype))


def matrix(expert: int, weights: Any, scale: Any, zero: Any) -> Any:
    """One expert's matrix in float32, of unquantised, FP8 or 4-bit weights."""
    if scale is None:
        return weights[expert].float()
    if zero is None:
        return weights[expert].float() * scale[expert]
    codes = torch.stack([weights[expert] & 15, weights[expert] >> 4], -1).flatten(1)
    zeros = torch.stack([zero[expert] & 15, zero[expert] >> 4], 1).flatten(0, 1)
    fine = [each.float().repeat_interleave(GROUP, -1) for each in (zeros, scale[expert])]
    return (codes - fine[0]) * fine[1]


def fp8_by_torch(data: Any, scale: Any = None, *_: Any, output: Any = None, **__: Any) -> tuple[Any, Any]:
    """What vLLM's `scaled_fp8_quant` computes with one scale for a tensor."""
    scale = data.abs().max().float().reshape(1) / 448 if scale is None else scale
    rounded = (data.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    return (rounded if output is None else output.copy_(rounded)), scale


@pytest.fixture
def triton_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm._custom_ops
    from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonExperts, TritonWNA16Experts
    from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig

    if GPU:
        return
    monkeypatch.setattr(vllm._custom_ops, "scaled_fp8_quant", fp8_by_torch)
    monkeypatch.setattr(AutoAWQConfig, "get_min_capability", classmethod(lambda _: -1))
    for experts in (TritonExperts, TritonWNA16Experts):
        monkeypatch.setattr(experts, "apply", experts_by_torch)
        for supported in ("_supports_current_device", "_supports_quant_scheme"):
            monkeypatch.setattr(experts, supported, staticmethod(lambda *_: True))


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


@pytest.mark.usefixtures("triton_by_torch")
def test_requests_with_an_adapter_have_its_rows_and_the_others_the_models(
    checkpoint: Any, replay: Any, tmp_path: Path
) -> None:
    from vllm.lora.request import LoRARequest

    from radmoe.engines.torch.engine import TransformersEngine
    from radmoe.engines.vllm.engine import VllmEngine, taken
    from vllm import SamplingParams

    adapter, merged = adapted(checkpoint("lab-qwen"), tmp_path)
    # one place more than adapters: vLLM's CPU build computes requests without an adapter with the last place
    places = {"enable_lora": True, "max_lora_rank": 8, "max_loras": 2}
    engine = VllmEngine(checkpoint("lab-qwen"), dtype="float32", **(OPTIONS | places))
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
        captured = routing.generated(len(tokens))
        truth = replayed(model, PROMPT, tokens)
        assert same_sets(captured[0], truth[0]).mean() >= FLOAT32_AGREES
        assert weights_apart(captured, truth) < WEIGHTS_APART
        assert same_sets(captured[0], replayed(other, PROMPT, tokens)[0]).mean() < 0.9


def in_awq(base: Path, folder: Path) -> tuple[Path, Path]:
    """The checkpoint with its experts in AWQ's 4 bits, and what these stand for."""
    quantised, meant = folder / "quantised", folder / "meant"
    for copy in (quantised, meant):
        shutil.copytree(base, copy)
    plain = load_file(base / "model.safetensors")
    packed, order = {}, [0, 2, 4, 6, 1, 3, 5, 7]

    def words(codes: torch.Tensor) -> torch.Tensor:
        eight = codes.long().unflatten(1, (-1, 8))[..., order]
        return (eight << 4 * torch.arange(8)).sum(-1).to(torch.uint32).view(torch.int32)

    for name, weights in list(plain.items()):
        if ".experts." not in name:
            packed[name] = weights
            continue
        groups = weights.float().T.unflatten(0, (-1, GROUP))
        low, high = groups.amin(1).clamp(max=0), groups.amax(1).clamp(min=0)
        scale = ((high - low) / 15).clamp(min=1e-6).half()
        zero = (-low / scale).round().clamp(0, 15)
        codes = (groups / scale[:, None] + zero[:, None]).round().clamp(0, 15)
        plain[name] = ((codes - zero[:, None]) * scale[:, None].float()).flatten(0, 1).T.contiguous()
        parts = {"qweight": words(codes.flatten(0, 1)), "qzeros": words(zero), "scales": scale}
        packed |= {name.replace("weight", part): data for part, data in parts.items()}
    for copy, tensors in ((quantised, packed), (meant, plain)):
        save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((base / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": GROUP,
        "zero_point": True,
        "version": "gemm",
        "modules_to_not_convert": ["self_attn", "lm_head", "mlp.gate"],
    }
    (quantised / "config.json").write_text(json.dumps(config))
    return quantised, meant


@pytest.mark.usefixtures("triton_by_torch")
def test_a_model_in_awq_has_the_rows_of_what_its_weights_stand_for(checkpoint: Any, tmp_path: Path) -> None:
    from radmoe.engines.base import Sampling
    from radmoe.engines.torch.engine import TransformersEngine
    from radmoe.engines.vllm.engine import VllmEngine

    quantised, meant = in_awq(checkpoint("lab-qwen"), tmp_path)
    awq = {"quantization": "moe_wna16", "moe_backend": "triton"}
    engine = VllmEngine(quantised, dtype="bfloat16", **(OPTIONS | awq))
    try:
        (done,) = engine.generate([PROMPT], 1, sampling=Sampling(temperature=0, max_tokens=40))
    finally:
        engine.close()
    same = {}
    for name, path in (("meant", meant), ("plain", checkpoint("lab-qwen"))):
        ids, _ = replayed(TransformersEngine(path, dtype="float32"), PROMPT, done.rollout.token_ids)
        same[name] = same_sets(done.rollout.expert_ids, ids).mean()
    assert same["meant"] > max(0.85, same["plain"] + 0.1)  # bfloat16 changes 4% of sets, and 4 bits a quarter


@pytest.mark.skipif(not STOCK, reason="this vLLM returns no routed experts without a GPU")
@pytest.mark.usefixtures("triton_by_torch")
def test_a_model_in_fp8_routes_as_vllm_says_itself(checkpoint: Any, replay: Any) -> None:
    from radmoe.engines.vllm.engine import VllmEngine, from_vllm, taken
    from vllm import SamplingParams

    fp8 = {"quantization": "fp8", "moe_backend": "triton", "enable_return_routed_experts": True}
    engine = VllmEngine(checkpoint("lab-qwen"), dtype="bfloat16", **(OPTIONS | fp8))
    try:
        asked = SamplingParams(temperature=0, max_tokens=40, extra_args={"radmoe": "a"})
        (output,) = engine.llm.generate([{"prompt_token_ids": PROMPT}], asked, use_tqdm=False)
        routing = taken(engine.llm.collective_rpc(TAKE, args=({"key": "a", "n": 1},)))
        mine = from_vllm(output, engine.llm, routing=routing).rollouts[0]
        stock = from_vllm(output, engine.llm).rollouts[0]
    finally:
        engine.close()
    assert np.array_equal(mine.expert_ids, stock.expert_ids)
    ids, _ = replayed(replay("lab-qwen", "float32"), PROMPT, mine.token_ids)
    shifted = same_sets(mine.expert_ids[1:], ids[:-1]).mean()
    assert same_sets(mine.expert_ids, ids).mean() > max(0.4, 2 * shifted)  # of the weights before they were rounded
