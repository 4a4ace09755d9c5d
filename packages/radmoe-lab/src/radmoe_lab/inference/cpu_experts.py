"""The experts of a small model on a CPU, in one pass over the tokens of every expert.

transformers gathers a row per token and expert, multiplies, and scatters, each step into new memory; for experts as
small as the lab's the moving takes as long as the products. Here the token-expert pairs are sorted once, and each expert
takes six tokens at a time from where they lie, through both of its matrices, and adds the result to its row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radmoe.selection.kernels.jit import check_shapes, jit
from radmoe.selection.kernels.simd import LANES
from radmoe_lab.inference.exponential import exponentials
from radmoe_lab.inference.row_threads import in_shares
from radmoe_lab.inference.tile import ROWS, VECTORS, multiply_tile

Array = NDArray[np.float32]
_SAME = 1e-4  # of the largest value: how far two ways of computing experts may differ on the same numbers
_PROBES = 16  # tokens
_LEAST = 64  # tokens of a thread's share


@dataclass(frozen=True)
class _Experts:
    """The weights of a module of experts as arrays, which share its memory, and the constants of its activation."""

    up: Array  # [E, H, 2 I]
    up_bias: Array
    down: Array  # [E, I, H]
    down_bias: Array
    interleaved: bool  # gate and value take turns in the columns of `up`
    slope: float
    limit: float
    shift: float

    def mix(self, hidden: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """The weighted sum [N, H] of the experts of each token."""
        tokens, choices = ids.shape
        check_shapes(hidden=(hidden, (tokens, self.up.shape[1])), weights=(weights, (tokens, choices)))
        out = torch.empty(hidden.shape)
        rows, experts, mass, sums = (x.contiguous().numpy() for x in (hidden, ids, weights, out))
        matrices = (self.up, self.up_bias, self.down, self.down_bias)
        slope, limit, shift = np.float32(self.slope), np.float32(self.limit), np.float32(self.shift)

        def work(share: slice) -> None:
            _mix(
                rows[share], experts[share], mass[share], sums[share], *matrices, self.interleaved, slope, limit, shift
            )

        in_shares(work, len(hidden), _LEAST)
        return out


def fuse_experts(model: Any) -> None:
    """Make the experts of a model compute by `_Experts.mix`, if they are of a known kind, on a CPU and in float32.

    A probe first checks that the result equals the module's own; modules of other kinds stay as they are.
    """
    for module in model.modules():
        experts = _read(module)
        if experts is not None and _agree(module, experts):
            module.forward = MethodType(_forward(experts, module.forward), module)


def _read(module: Any) -> _Experts | None:
    """Read the weights of a module of experts, by how transformers marks its layout; None if the kind is unknown."""
    if getattr(module, "is_transposed", None) is None or not module.has_gate or module.has_post_expert_norm:
        return None
    matrices = [module.gate_up_proj, module.down_proj]
    if any(x.dtype != torch.float32 or x.device.type != "cpu" for x in matrices):
        return None
    up, down = (x.detach() if module.is_transposed else x.detach().transpose(1, 2) for x in matrices)
    if not (up.is_contiguous() and down.is_contiguous()) or up.shape[1] % LANES or up.shape[2] % LANES:
        return None
    if module.has_bias and {"alpha", "limit"} <= vars(module).keys():
        biases = [module.gate_up_proj_bias.detach(), module.down_proj_bias.detach()]
        constants = (float(module.alpha), float(module.limit), 1.0)
    elif not module.has_bias and type(getattr(module, "act_fn", None)).__name__ in ("SiLU", "SiLUActivation"):
        biases = [torch.zeros(len(up), x.shape[2]) for x in (up, down)]
        constants = (1.0, np.inf, 0.0)
    else:
        return None
    up_bias, down_bias = (x.numpy() for x in biases)
    return _Experts(up.numpy(), up_bias, down.numpy(), down_bias, not module.is_concatenated, *constants)


@torch.inference_mode()
def _agree(module: Any, experts: _Experts) -> bool:
    """Whether the fused and the original experts give the same result for a few random tokens."""
    source = torch.Generator().manual_seed(0)
    count, width = experts.up.shape[:2]
    hidden = torch.randn(_PROBES, width, generator=source)
    weights, ids = torch.rand(_PROBES, count, generator=source).topk(min(2, count))
    theirs = module(hidden, ids, weights)
    return bool((theirs - experts.mix(hidden, ids, weights)).abs().max() <= _SAME * theirs.abs().max())


def _forward(experts: _Experts, otherwise: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def forward(_: Any, hidden: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        plain = hidden.ndim == 2 and hidden.device.type == "cpu" and not hidden.requires_grad
        if plain and hidden.dtype == weights.dtype == torch.float32:
            return experts.mix(hidden, ids, weights)
        return otherwise(hidden, ids, weights)

    return forward


@jit
def _by_expert(ids: NDArray[np.int64], experts: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort the token-expert pairs (flat indices into ids [N, K]) by expert. Returns them and where each expert's begin
    [E + 1].
    """
    flat = ids.reshape(-1)
    starts = np.zeros(experts + 2, np.int64)
    for pair in range(len(flat)):
        if 0 <= flat[pair] < experts:
            starts[flat[pair] + 2] += 1
    for e in range(experts):
        starts[e + 2] += starts[e + 1]
    order = np.empty(starts[experts + 1], np.int64)
    for pair in range(len(flat)):
        expert = flat[pair]
        if 0 <= expert < experts:
            order[starts[expert + 1]] = pair
            starts[expert + 1] += 1
    return order, starts[: experts + 1]


@jit
def _mix(
    hidden: Array,
    ids: NDArray[np.int64],
    weights: Array,
    out: Array,
    up: Array,
    up_bias: Array,
    down: Array,
    down_bias: Array,
    interleaved: bool,
    slope: np.float32,
    limit: np.float32,
    shift: np.float32,
) -> None:
    """out[n] = sum over the experts e of token n of weight * (down[e] (value + shift) silu(gate) + down_bias[e]).

    hidden and out [N, H], ids and weights [N, K], up [E, H, 2 I], down [E, I, H]. gate and value are the halves of
    hidden up[e] + up_bias[e], or its even and odd columns where they are interleaved; the limit clamps them.
    """
    experts, width, double = up.shape
    inner, choices, block = double // 2, ids.shape[1], LANES * VECTORS
    order, starts = _by_expert(ids, experts)
    places = np.empty(ROWS, np.int64)
    own = np.arange(ROWS) * inner
    both, result = np.empty((ROWS, double), np.float32), np.empty((ROWS, width), np.float32)
    gate, value = np.empty(ROWS * inner, np.float32), np.empty(ROWS * inner, np.float32)
    bits, active = np.empty(ROWS * inner, np.int32), np.empty(ROWS * inner, np.float32)
    out[:] = 0
    for expert in range(experts):
        for first in range(starts[expert], starts[expert + 1], ROWS):
            rows = min(ROWS, starts[expert + 1] - first)
            for r in range(rows):
                places[r] = order[first + r] // choices * width
            for column in range(0, double, block):
                vectors = min(block, double - column) // LANES
                multiply_tile(
                    hidden, places, 0, rows, up, expert * width * double + column, double, width, both, column, double, vectors
                )  # fmt: skip
            for r in range(rows):
                line, bias = both[r], up_bias[expert]
                to_gate, to_value = gate[r * inner : (r + 1) * inner], value[r * inner : (r + 1) * inner]
                if interleaved:
                    for j in range(inner):
                        to_gate[j] = min(line[2 * j] + bias[2 * j], limit)
                        to_value[j] = min(max(line[2 * j + 1] + bias[2 * j + 1], -limit), limit) + shift
                else:
                    for j in range(inner):
                        to_gate[j] = min(line[j] + bias[j], limit)
                        to_value[j] = min(max(line[inner + j] + bias[inner + j], -limit), limit) + shift
            for j in range(rows * inner):
                active[j] = -slope * gate[j]
            exponentials(active[: rows * inner], bits)
            for j in range(rows * inner):
                active[j] = value[j] * gate[j] / (np.float32(1.0) + active[j])
            for column in range(0, width, block):
                vectors = min(block, width - column) // LANES
                multiply_tile(
                    active, own, 0, rows, down, expert * inner * width + column, width, inner, result, column, width, vectors
                )  # fmt: skip
            for r in range(rows):
                pair = order[first + r]
                target, line, bias, weight = (
                    out[pair // choices],
                    result[r],
                    down_bias[expert],
                    weights[pair // choices, pair % choices],
                )
                for j in range(width):
                    target[j] += weight * (line[j] + bias[j])
