"""The gated delta rule over whole sequences, in matrix products alone: how lab-next's linear attention is trained.

transformers solves a triangular system per chunk, which a GPU does slowly for many small systems. Here the systems are
inverted block by block. The recurrence is the same; a test compares the two, and their gradients.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from radmoe_lab.inference.heads import for_every_head

CHUNK = 64
_LEAF = 16  # blocks of this size are inverted by squaring; larger ones would lose digits
_NAME = "torch_chunk_gated_delta_rule"


@contextmanager
def matrix_products(model: Any) -> Iterator[None]:
    """A context in which this model's linear attention is computed by `chunked`."""
    homes = [sys.modules[home] for home in {type(module).__module__ for module in model.modules()}]
    references = {home: getattr(home, _NAME) for home in homes if hasattr(home, _NAME)}
    for home in references:
        setattr(home, _NAME, chunked)
    try:
        yield
    finally:
        for home, reference in references.items():
            setattr(home, _NAME, reference)


def chunked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    **_: Any,
) -> tuple[Tensor, None]:
    """Apply the rule from an empty state: query and key [B, T, H', K], value [B, T, H, V], g (log decay) and beta [B,
    T, H].
    """
    if initial_state is not None or output_final_state:
        raise ValueError("training starts from an empty state and keeps none: call the model with use_cache=False")
    query, key = (for_every_head(x, value.shape[2]) for x in (query, key))
    with torch.autocast(query.device.type, enabled=False):
        return _chunked(query, key, value, g, beta, use_qk_l2norm_in_kernel).to(query.dtype), None


def _chunked(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, normalise: bool) -> Tensor:
    batch, length, heads, width = value.shape
    padding = -length % CHUNK
    query, key, value = (functional.pad(x.float(), (0, 0, 0, 0, 0, padding)) for x in (query, key, value))
    g, beta = (functional.pad(x.float(), (0, 0, 0, padding)) for x in (g, beta))
    if normalise:
        query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    query = query * query.shape[-1] ** -0.5
    # [B, T, H, K] -> [B, H, chunks, CHUNK, K]
    query, key, value = (x.reshape(batch, -1, CHUNK, *x.shape[2:]).permute(0, 3, 1, 2, 4) for x in (query, key, value))
    g, beta = (x.reshape(batch, -1, CHUNK, heads).permute(0, 3, 1, 2) for x in (g, beta))
    decay = g.cumsum(-1)
    causal = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=query.device).tril()
    between = (decay[..., :, None] - decay[..., None, :]).masked_fill(~causal, float("-inf")).exp()
    weighted_key = key * beta[..., None]
    system = (weighted_key @ key.transpose(-1, -2)) * between
    inverse = unit_lower_inverse(system.tril(-1))
    new_value = inverse @ (value * beta[..., None])
    old_key = inverse @ (weighted_key * decay.exp()[..., None])
    within = (query @ key.transpose(-1, -2)) * between
    query = query * decay.exp()[..., None]
    key = key * (decay[..., -1:] - decay).exp()[..., None]
    whole = decay[..., -1].exp()[..., None, None]
    state = value.new_zeros(batch, heads, key.shape[-1], width)
    outs = []
    for i in range(query.shape[2]):
        change = new_value[:, :, i] - old_key[:, :, i] @ state
        outs.append(query[:, :, i] @ state + within[:, :, i] @ change)
        state = state * whole[:, :, i] + key[:, :, i].transpose(-1, -2) @ change
    return torch.stack(outs, 2).flatten(2, 3).transpose(1, 2)[:, :length]


def unit_lower_inverse(lower: Tensor) -> Tensor:
    """The inverse of I + lower, for strictly lower triangular matrices [..., n, n], n a power of two times 16 or less."""
    size = lower.shape[-1]
    if size <= _LEAF:
        power = -lower
        inverse = torch.eye(size, device=lower.device, dtype=lower.dtype) + power
        for _ in range((size - 1).bit_length() - 1):
            power = power @ power
            inverse = inverse + power @ inverse
        return inverse
    half = size // 2
    blocks = torch.stack([lower[..., :half, :half], lower[..., half:, half:]], dim=-3)
    first, second = unit_lower_inverse(blocks).unbind(-3)
    corner = -second @ lower[..., half:, :half] @ first
    top = torch.cat([first, torch.zeros_like(first)], dim=-1)
    return torch.cat([top, torch.cat([corner, second], dim=-1)], dim=-2)
