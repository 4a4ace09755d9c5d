"""What is changed in a stock model for training alone: how experts are computed, and how routers are balanced.

Experts are computed densely: every expert on every token, masked by the routing weights. This is the same function as
sparse dispatch, with the same gradient, in three large matrix products instead of many small ones. Routers compute
the same routing, and in the backward pass they add the gradient of a load-balancing loss, so that no loss has to be
carried out of a compiled layer.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def make_trainable(model: Any, *, balance: float) -> None:
    """Patch every router and experts module of a Qwen3-MoE, Qwen3-Next or gpt-oss model in place."""
    modules = list(model.modules())
    routers = [m for m in modules if type(m).__name__.endswith("TopKRouter")]
    experts = [m for m in modules if type(m).__name__.endswith("Experts")]
    if not routers or len(routers) != len(experts):
        raise TypeError(f"{type(model).__name__} has {len(routers)} routers and {len(experts)} experts: unknown layout")
    for router in routers:
        router.balance = balance / len(routers)
        router.forward = MethodType(_oss_router if hasattr(router, "bias") else _qwen_router, router)
    for module in experts:
        module.forward = MethodType(_oss_experts if hasattr(module, "gate_up_proj_bias") else _qwen_experts, module)


def _qwen_router(self: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits = functional.linear(hidden.reshape(-1, self.hidden_dim), self.weight)
    probability = logits.softmax(-1, dtype=torch.float)
    scores, index = probability.topk(self.top_k, dim=-1)
    scores = (scores / scores.sum(-1, keepdim=True)).to(logits.dtype)
    return logits, _balanced(self, scores, index, probability), index


def _oss_router(self: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits = functional.linear(hidden, self.weight, self.bias)
    top, index = logits.topk(self.top_k, dim=-1)
    scores = top.softmax(1, dtype=top.dtype)
    return logits, _balanced(self, scores, index, logits.softmax(-1, dtype=torch.float)), index


def _balanced(self: Any, scores: Tensor, index: Tensor, probability: Tensor) -> Tensor:
    """The scores, with the gradient of the load-balancing loss of Switch Transformer added in the backward pass.

    The loss is E * sum_e share_e * probability_e, which is 1 when all experts are used evenly.
    """
    share = torch.zeros_like(probability).scatter(1, index, 1.0 / self.top_k).mean(0)
    loss = probability.shape[-1] * (share.detach() * probability.mean(0)).sum()
    balanced: Tensor = _AddGradient.apply(scores, loss * self.balance)  # type: ignore[no-untyped-call]
    return balanced


class _AddGradient(torch.autograd.Function):
    """Passes `value` on; in the backward pass, `loss` gets the gradient that it would have as part of the total loss."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, loss: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, torch.ones((), dtype=torch.float, device=gradient.device)


def _qwen_experts(self: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    experts, double, width = self.gate_up_proj.shape
    up = hidden @ self.gate_up_proj.reshape(experts * double, width).T
    gate, value = up.view(-1, experts, double).chunk(2, dim=-1)
    mixed = functional.silu(gate) * value * _mask(index, weights, experts, up.dtype)[..., None]
    out: Tensor = mixed.flatten(1) @ self.down_proj.permute(0, 2, 1).reshape(-1, width)
    return out


def _oss_experts(self: Any, hidden: Tensor, router_indices: Tensor, routing_weights: Tensor) -> Tensor:
    experts, width, double = self.gate_up_proj.shape
    up = hidden @ self.gate_up_proj.permute(1, 0, 2).reshape(width, experts * double)
    pairs = (up.view(-1, experts, double) + self.gate_up_proj_bias.to(up.dtype)).unflatten(-1, (-1, 2))
    gate = pairs[..., 0].clamp(max=self.limit)
    value = pairs[..., 1].clamp(-self.limit, self.limit)
    mask = _mask(router_indices, routing_weights, experts, up.dtype)
    mixed = (value + 1) * gate * torch.sigmoid(gate * self.alpha) * mask[..., None]
    out: Tensor = mixed.flatten(1) @ self.down_proj.reshape(-1, width) + mask @ self.down_proj_bias
    return out


def _mask(index: Tensor, weights: Tensor, experts: int, dtype: torch.dtype) -> Tensor:
    """Routing weights [N, E], zero where an expert was not chosen."""
    empty = torch.zeros(len(index), experts, dtype=dtype, device=index.device)
    return empty.scatter(1, index, weights.to(dtype))
