"""Linear attention (gated delta net) with the rounding of vLLM's CPU kernels.

vLLM computes a prompt by chunks of 64 positions and generated tokens one by one, each in its own way:

    both       beta is rounded after every operation; 1e-5 is added to a squared length, where transformers adds 1e-6
    prompt     parts of the chunk's algebra are rounded, and the state at a chunk's end
    generated  the convolution and its activation are rounded once; the state after every token, which is what
               parts vLLM from itself when it computes the same tokens as a prompt

So routing after a prompt depends on where the prompt ended. Shapes: H heads, S positions, K and V the sizes of a
head's keys and values; the state is [H, K, V].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad, silu, softplus

_CHUNK = 64
_EPS = 1e-5


class Inputs(NamedTuple):
    """Inputs of the delta rule, in float32: query and key [H, S, K], value [H, S, V], log decay and beta [H, S]."""

    query: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor
    beta: Tensor

    def part(self, start: int, stop: int | None) -> Inputs:
        return Inputs(*(x[:, start:stop] for x in self))


def gated_delta_net(module: Any, prompt: int, hidden_states: Tensor, **options: Any) -> Tensor:
    """The layer's pass over one sequence [1, S, D] that starts with `prompt` positions of a prompt."""
    count = hidden_states.shape[1]
    query, key, value, gate, b, a = module.fix_query_key_value_ordering(
        module.in_proj_qkvz(hidden_states), module.in_proj_ba(hidden_states)
    )
    mixed = torch.cat([x.reshape(count, -1) for x in (query, key, value)], -1)
    sizes, widths = [module.key_dim] * 2 + [module.value_dim], [module.head_k_dim] * 2 + [module.head_v_dim]
    parts = torch.split(_convolved(mixed, module.conv1d.weight, prompt).float(), sizes, -1)
    query, key, value = (x.reshape(count, -1, width).transpose(0, 1) for x, width in zip(parts, widths, strict=True))
    shared = module.num_v_heads // module.num_k_heads
    decay = -module.A_log.float().exp() * softplus(a[0].float() + module.dt_bias.float())
    beta = 1 / (1 + (-b[0]).exp())  # in bfloat16
    given = Inputs(query.repeat_interleave(shared, 0), key.repeat_interleave(shared, 0), value, decay.T, beta.float().T)
    before, state = chunked(given.part(0, prompt))
    out = torch.cat([before, stepped(given.part(prompt, None), state)], 1).transpose(0, 1)
    out, norm = _rounded(out), module.norm
    out = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
    out = out * norm.weight.float() * silu(gate[0].float())
    projected: Tensor = module.out_proj(out.bfloat16().reshape(1, count, -1))
    return projected


def chunked(given: Inputs) -> tuple[Tensor, Tensor]:
    """Compute a prompt by chunks: its outputs [H, S, V], and the state after it. The state before it is zero."""
    heads, count, width = given.key.shape
    state, outs = given.key.new_zeros(heads, width, given.value.shape[-1]), []
    query, key = _rounded(_unit(given.query) * width**-0.5), _rounded(_unit(given.key))
    for start in range(0, count, _CHUNK):
        q, k, v, decay, beta = Inputs(query, key, *given[2:]).part(start, start + _CHUNK)
        along, one = decay.cumsum(-1)[..., None], torch.eye(k.shape[1], device=k.device)
        pairs = (along - along.transpose(1, 2)).tril().exp().tril()
        weighted = k * beta[..., None]
        system = one + (weighted @ k.transpose(1, 2) * pairs).tril(-1)
        solved = _rounded(torch.linalg.solve_triangular(system, one.expand_as(system), upper=False, unitriangular=True))
        known = solved @ (weighted * along.exp()) @ state
        new = _rounded(_rounded(solved @ _rounded(v * beta[..., None])) - known)
        within = _rounded(q @ k.transpose(1, 2) * pairs)
        outs.append(_rounded(q * along.exp()) @ state + within @ new)
        last = along[:, -1:]
        state = _rounded(state * last.exp() + _rounded(k * (last - along).exp()).transpose(1, 2) @ new)
    return torch.cat(outs, 1), state


def stepped(given: Inputs, state: Tensor) -> Tensor:
    """Compute generated tokens one by one, after a prompt that left `state`: their outputs [H, S, V]."""
    query, key = _unit(given.query) * given.query.shape[-1] ** -0.5, _unit(given.key)
    decay, outs = given.decay.exp(), []
    for t in range(key.shape[1]):
        state = state * decay[:, t, None, None]
        delta = (given.value[:, t] - (key[:, t, None] @ state)[:, 0]) * given.beta[:, t, None]
        state = state + key[:, t, :, None] * delta[:, None]
        outs.append((query[:, t, None] @ state)[:, 0])
        state = _rounded(state)
    return torch.stack(outs, 1) if outs else given.value


def _convolved(mixed: Tensor, weight: Tensor, prompt: int) -> Tensor:
    """Apply the causal convolution [C, 1, W] and SiLU to [S, C]; it is rounded twice in a prompt, and once after it."""
    padded = pad(mixed.T[None], (weight.shape[-1] - 1, 0))
    twice = silu(conv1d(padded, weight, groups=len(weight)))
    once = silu(conv1d(padded.float(), weight.float(), groups=len(weight))).bfloat16()
    return torch.cat([twice[..., :prompt], once[..., prompt:]], -1)[0].T


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + _EPS)


def _rounded(x: Tensor) -> Tensor:
    return x.bfloat16().float()
