"""One step of the gated delta rule, with which linear-attention layers decode, in place.

transformers' reference multiplies the state [B, H, K, V] three times per token, into new memory each time; on a
CPU that is two thirds of a small model's step. Here one state after another is changed in place while it is in the
processor's cache, which gives the same sums. On a GPU matrix products change it in place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radmoe.selection.kernels.jit import check_shapes, jit
from radmoe_lab.inference.heads import for_every_head
from radmoe_lab.inference.row_threads import in_shares

Array = NDArray[np.float32]
_NAME = "torch_recurrent_gated_delta_rule"
Rule = Callable[..., tuple[Tensor, Tensor | None]]


def speed_up(model: Any) -> None:
    """Make the modules that define this model's linear attention decode by `step`, where it applies."""
    for home in {type(module).__module__ for module in model.modules()}:
        reference = getattr(sys.modules.get(home), _NAME, None)
        if reference is not None and not hasattr(reference, "reference"):
            setattr(sys.modules[home], _NAME, stepwise(reference))


def stepwise(reference: Rule) -> Rule:
    """The rule as a function that changes the state in place for one token after others; else the reference."""

    @wraps(reference)
    def rule(query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
        state = options.get("initial_state")
        if args or state is None or query.shape[1] != 1 or state.dtype != torch.float32 or not state.is_contiguous():
            return reference(query, key, value, *args, **options)
        query, key = (for_every_head(x, value.shape[2]) for x in (query, key))
        if options.get("use_qk_l2norm_in_kernel"):
            query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (query.float(), key.float()))
        advance = step if state.device.type == "cpu" else step_by_products
        out = advance(query[:, 0], key[:, 0], value[:, 0], options["g"][:, 0], options["beta"][:, 0], state)
        return out[:, None].to(value.dtype), state if options.get("output_final_state") else None

    rule.reference = reference  # type: ignore[attr-defined]
    return rule


def step(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """One token: query and key [B, H, K], value [B, H, V], log_decay and beta [B, H]; the state changes in place."""
    batch, heads, depth, width = state.shape
    check_shapes(
        query=(query, (batch, heads, depth)),
        key=(key, (batch, heads, depth)),
        value=(value, (batch, heads, width)),
        decay=(log_decay, (batch, heads)),
        beta=(beta, (batch, heads)),
    )
    query, key, value = (x.float() for x in (query * query.shape[-1] ** -0.5, key, value))
    out = torch.empty(value.shape)
    tensors = (query, key, value, log_decay.float().exp(), beta.float(), state, out)
    arrays = [x.flatten(0, 1).contiguous().numpy() for x in tensors]
    in_shares(lambda share: _advance(*(x[share] for x in arrays)), len(arrays[0]))
    return out


def step_by_products(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor
) -> Tensor:
    """`step` for a GPU, as matrix products. The state is read four times and written twice."""
    query, key, value = (x.float() for x in (query * query.shape[-1] ** -0.5, key, value))
    state.mul_(log_decay.float().exp()[..., None, None])
    known = (key[..., None, :] @ state)[..., 0, :]
    delta = beta.float()[..., None] * (value - known)
    state.flatten(0, 1).baddbmm_(key.flatten(0, 1)[:, :, None], delta.flatten(0, 1)[:, None])
    out: Tensor = (query[..., None, :] @ state)[..., 0, :]
    return out


@jit
def _advance(query: Array, key: Array, value: Array, decay: Array, beta: Array, state: Array, out: Array) -> None:
    """Advance each state S [K, V]: S = decay S + key x delta with delta = beta (value - decay key S), and out = query S.

    The product with the new state is query S = decay (query old S) + (query . key) delta, so S is read once and
    written once, and the second reading finds it in the processor's cache.
    """
    rows, columns = state.shape[1:]
    for i in range(len(state)):
        known, queried = np.zeros(columns, np.float32), np.zeros(columns, np.float32)
        overlap = np.float32(0)
        for k in range(rows):
            overlap += query[i, k] * key[i, k]
            for v in range(columns):
                known[v] += key[i, k] * state[i, k, v]
                queried[v] += query[i, k] * state[i, k, v]
        for v in range(columns):
            known[v] = beta[i] * (value[i, v] - decay[i] * known[v])
            out[i, v] = decay[i] * queried[v] + overlap * known[v]
        for k in range(rows):
            for v in range(columns):
                state[i, k, v] = decay[i] * state[i, k, v] + key[i, k] * known[v]
