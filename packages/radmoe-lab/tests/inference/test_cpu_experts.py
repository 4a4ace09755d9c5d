"""Experts in one kernel: the same as transformers' own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tiny_moe
from radmoe_lab.inference.cpu_experts import fuse_experts
from radmoe_lab.inference.engine import LabEngine


def experts_of(model: Any) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "is_transposed")]


def fused(model: Any) -> list[bool]:
    return ["forward" in vars(module) for module in experts_of(model)]


def routed(module: Any, tokens: int, top_k: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(tokens)
    width = min(module.gate_up_proj.shape[1], module.gate_up_proj.shape[2]) if module.is_transposed else 0
    width = width or module.gate_up_proj.shape[2]
    weights, ids = torch.rand(tokens, len(module.gate_up_proj), generator=source).topk(top_k)
    return torch.randn(tokens, width, generator=source), ids, weights


@pytest.mark.parametrize("family", tiny_moe.FAMILIES)
@pytest.mark.parametrize("tokens", [1, 5, 6, 7, 300])
@torch.inference_mode()
def test_every_family_computes_what_transformers_computes(family: str, tokens: int) -> None:
    mine, plain = experts_of(tiny_moe.lab_engine(family).model), experts_of(tiny_moe.model(family))
    assert len(mine) == len(plain) > 0
    for module, other in zip(mine, plain, strict=True):
        assert "forward" in vars(module)
        hidden, ids, weights = routed(other, tokens)
        result, reference = module(hidden, ids, weights), other(hidden, ids, weights)
        assert torch.allclose(result, reference, rtol=0, atol=1e-5 * float(reference.abs().max()))


@torch.inference_mode()
def test_large_numbers_are_clamped_as_transformers_clamps_them() -> None:
    mine, other = experts_of(tiny_moe.lab_engine("gpt-oss").model)[0], experts_of(tiny_moe.model("gpt-oss"))[0]
    hidden, ids, weights = routed(other, 50)
    result, reference = mine(hidden * 1e3, ids, weights), other(hidden * 1e3, ids, weights)
    assert torch.allclose(result, reference, rtol=1e-4, atol=1e-3)


@torch.inference_mode()
def test_threads_share_the_tokens_and_change_no_bit() -> None:
    module = experts_of(tiny_moe.lab_engine("qwen3-moe").model)[0]
    inputs = routed(module, 300)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(module(*inputs))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@torch.inference_mode()
def test_an_expert_id_beyond_the_last_means_no_expert() -> None:
    module = experts_of(tiny_moe.lab_engine("qwen3-moe").model)[0]
    hidden, ids, weights = routed(module, 20)
    without = weights.clone()
    without[:, 2] = 0
    masked = ids.clone()
    masked[:, 2] = len(module.gate_up_proj)
    assert torch.allclose(module(hidden, masked, weights), module(hidden, ids, without), atol=1e-6)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen3-moe", {"hidden_act": "gelu"}),
        ("qwen3-moe", {"hidden_size": 72, "num_attention_heads": 4}),
        ("qwen3-moe", {"moe_intermediate_size": 12}),
        ("qwen3-moe", {"hidden_size": 528}),  # not small
    ],
)
def test_other_experts_are_left_alone(family: str, changes: dict[str, Any]) -> None:
    model = tiny_moe.model(family, **changes)
    LabEngine(model, tokenizer=tiny_moe.tokenizer(), streams=1, threads=1)
    assert not any(fused(model))


def test_bfloat16_is_left_alone() -> None:
    model = tiny_moe.model("qwen3-moe").bfloat16()
    LabEngine(model, tokenizer=tiny_moe.tokenizer(), streams=1, threads=1)
    assert not any(fused(model))


def test_experts_that_look_known_and_compute_otherwise_are_left_alone() -> None:
    model = tiny_moe.model("gpt-oss")
    odd = experts_of(model)[1]
    odd._apply_gate = lambda gate_up: gate_up[..., ::2] + gate_up[..., 1::2]
    fuse_experts(model)
    assert fused(model) == [True, False, True, True]
