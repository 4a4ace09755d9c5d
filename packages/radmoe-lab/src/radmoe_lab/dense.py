"""Changes to a stock model for training alone: how experts and sinks are computed, and how routers are balanced.

Experts are computed densely, which is the same function with the same gradient. Routers compute the same routing, and
in the backward pass they add the gradient of a load-balancing loss, so that no loss has to be carried out of a compiled
layer. Attention with sinks (gpt-oss) runs through torch's kernel, which keeps no scores: at 1,500 tokens the stock one would need
more memory than a GPU has.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface

from radmoe_lab.inference.dense_experts import compute_densely

_SINKS = "radmoe_training_sinks"


def make_trainable(model: Any, *, balance: float) -> None:
    """Patch every router and experts module of a Qwen3-MoE, Qwen3-Next or gpt-oss model in place."""
    routers = [module for module in model.modules() if type(module).__name__.endswith("TopKRouter")]
    experts = compute_densely(model)
    if not routers or len(routers) != experts:
        raise TypeError(f"{type(model).__name__} has {len(routers)} routers and {experts} experts: unknown layout")
    for router in routers:
        router.balance = balance / len(routers)
        router.forward = MethodType(_oss_router if hasattr(router, "bias") else _qwen_router, router)
    if model.config.model_type == "gpt_oss":
        model.set_attn_implementation(_SINKS)


def attend_with_sinks(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Causal attention of whole sequences, padded on their right, with one more score per head that is no key's.

    The sink becomes a key ahead of all others, whose value is zero. It alone is not zero in one more dimension, in which every
    query is one. query [B, H, T, D], key and value [B, H / G, T, D]; returns [B, T, H, D].
    """
    batch, heads, length, dim = query.shape
    scaling, window = kwargs["scaling"], kwargs.get("sliding_window")
    groups = heads // key.shape[1]
    wider = functional.pad  # to a width that the kernels take, and one row for the sink
    queries = torch.cat([query, query.new_ones(batch, heads, length, 1), query.new_zeros(batch, heads, length, 7)], -1)
    queries = wider(queries, (0, 0, 1, 0))
    sinks = wider((kwargs["s_aux"].to(query.dtype) / scaling).view(1, heads, 1, 1), (dim, 7)).expand(batch, -1, -1, -1)
    keys = torch.cat([sinks, wider(key.repeat_interleave(groups, 1), (0, 8))], 2)
    values = wider(value.repeat_interleave(groups, 1), (0, 8, 1, 0))
    mask = None
    if window is not None:
        at = torch.arange(length + 1, device=query.device)
        behind = at[:, None] - at[None]
        mask = ((behind >= 0) & (behind < window)) | (at[None] == 0)
    out = functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, is_causal=mask is None, scale=scaling
    )
    return out[:, :, 1:, :dim].transpose(1, 2).contiguous(), None


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
    """Return the scores unchanged, and add the gradient of Switch Transformer's load-balancing loss in the backward
    pass.

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


AttentionInterface.register(_SINKS, attend_with_sinks)
