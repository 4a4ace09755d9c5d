"""A transformers pass that rounds where vLLM's CPU kernels round, so that a bfloat16 replay gives a server's routing.

bfloat16 keeps 8 significant bits. Programs differ in which values they round to it, and how. transformers rounds
after every operation, to the nearest. vLLM 0.30 on a CPU with AVX512 but without its BF16 instructions rounds at the end
of a kernel, and mostly by cutting the other 16 bits off:

                      vllm-cpu-eager (--enforce-eager)             vllm-cpu (compiled, vLLM's default)
    residual          rounded, but normalised before it is         float32
    norms             rounded before and after the weight          float32, rounded at the end
    rotary embedding  float32, cut off                             float32 from the norm on, rounded
    attention         float32, cut off                             the same; its gate is applied in float32
    router            the weights are a bfloat16 softmax           a float32 one, of the same K logits
    experts           float32, cut off after the activation and after the weighted sum, in both
    shared experts    after every operation                        at the ends of dense layers
    linear attention  see `delta_rounding`, for both

Dense layers round alike in all three. What still differs is the order of float32 sums. The table was found by
comparing the programs module by module (docs/log.md); docs/engines.md says how much agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from radmoe.engines.replay.delta_rounding import gated_delta_net
from radmoe.engines.torch.routers import find_routers
from radmoe.errors import InputError

if TYPE_CHECKING:
    from radmoe.engines.torch.engine import TransformersEngine

COMPILED, EAGER = ROUNDINGS = ("vllm-cpu", "vllm-cpu-eager")
KNOWN = ("qwen3_moe", "gpt_oss", "qwen3_next")
_ATTENTION, _ATTENTION_EAGER = "radmoe_vllm_cpu", "radmoe_vllm_cpu_eager"
Hook = Callable[..., Any]


def forced_as_vllm(
    engine: TransformersEngine, token_ids: Sequence[int], prompt: int, rounding: str = COMPILED
) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """`engine.teacher_forced`, rounded as vLLM's CPU kernels round; the first `prompt` tokens were the prompt."""
    with rounding_as_vllm(engine.model, prompt, rounding):
        return engine.teacher_forced(token_ids)


def check_rounding(model: Any, rounding: str) -> None:
    """Refuse roundings, models and precisions that have not been compared with vLLM."""
    if rounding not in ROUNDINGS:
        raise InputError(f"rounding must be {' or '.join(ROUNDINGS)}, got {rounding!r}")
    config = model.config.get_text_config()
    if config.model_type not in KNOWN:
        raise InputError(
            f"rounding {rounding} is known for {', '.join(KNOWN)}, not for {config.model_type}: leave it out"
        )
    if model.dtype != torch.bfloat16:
        kind = str(model.dtype).removeprefix("torch.")
        raise InputError(f"rounding {rounding} is that of bfloat16 and the model is in {kind}: pass dtype bfloat16")
    if not getattr(config, "norm_topk_prob", True):
        raise InputError(f"rounding {rounding} is not known for routers without norm_topk_prob: leave it out")


@contextmanager
def rounding_as_vllm(model: Any, prompt: int, rounding: str = COMPILED) -> Iterator[None]:
    """Make passes over one sequence, without a cache, round as vLLM does while the context lasts."""
    check_rounding(model, rounding)
    eager = rounding == EAGER
    # The residual stream is held in float32, so that a sum reaches the next norm unrounded.
    hooks: list[tuple[nn.Module, Hook]] = [(model.get_input_embeddings(), _to_float)]
    hooks += [(router, _router if eager else _router_float) for router in find_routers(model)]
    forwards: list[tuple[nn.Module, Hook]] = []
    before: list[nn.Module] = []
    for name, module in model.named_modules():
        kind = type(module).__name__
        if kind.endswith("RotaryEmbedding"):
            if eager or kind != "GptOssRotaryEmbedding":  # vLLM keeps those of gpt-oss in float32
                hooks.append((module, lambda _, args, out: tuple(x.bfloat16().float() for x in out)))
        elif kind.endswith("RMSNorm"):
            rotated = name.endswith(("q_norm", "k_norm"))
            forwards.append((module, partial(_norm_eager, module) if eager else partial(_norm, module, rotated)))
        elif kind.endswith("Experts"):
            forwards.append((module, partial(_experts, module)))
        elif kind.endswith("GatedDeltaNet"):
            forwards.append((module, partial(gated_delta_net, module, prompt)))
        elif kind == "Qwen3NextAttention" and not eager:  # query and gate are one projection
            hooks.append((module.q_proj, _to_float))
            before.append(module.o_proj)
        elif kind == "Qwen3NextMLP" and not eager:
            hooks += [(part, _to_float) for part in (module.gate_proj, module.up_proj, module.down_proj)]
            before.append(module.down_proj)
    attention = model.config._attn_implementation
    with ExitStack() as undo:
        for module, hook in hooks:
            undo.callback(module.register_forward_hook(hook, prepend=True).remove)
        for module in before:
            undo.callback(module.register_forward_pre_hook(lambda _, args: (args[0].bfloat16(),)).remove)
        for module, forward in forwards:
            undo.callback(delattr, module, "forward")
            module.forward = forward
        undo.callback(model.set_attn_implementation, attention)
        model.set_attn_implementation(_ATTENTION_EAGER if eager else _ATTENTION)
        yield


def _to_float(module: nn.Module, args: Any, out: Tensor) -> Tensor:
    return out.float()


def cut(x: Tensor) -> Tensor:
    """To bfloat16 by dropping bits, which rounds towards zero."""
    return (x.float().contiguous().view(torch.int32) & -65536).view(torch.float32).bfloat16()


def _norm(module: Any, rotated: bool, x: Tensor) -> Tensor:
    """RMS norm; that of queries and keys stays in float32 until they are rotated."""
    normal = _normal(module, x) * _scale(module).float()
    return normal if rotated else normal.bfloat16()


def _norm_eager(module: Any, x: Tensor) -> Tensor:
    """RMS norm of a float32 sum, which is rounded in place: the caller's residual is the same tensor."""
    normal, scale = _normal(module, x), _scale(module)
    if x.dtype == torch.float32:
        x.copy_(x.bfloat16())
    return (normal.to(scale.dtype) * scale).bfloat16()


def _normal(module: Any, x: Tensor) -> Tensor:
    eps: float = module.eps if hasattr(module, "eps") else module.variance_epsilon
    return x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)


def _scale(module: Any) -> Tensor:
    weight: Tensor = module.weight
    # Qwen3-Next stores it less 1
    return 1 + weight.float() if type(module).__name__.startswith("Qwen3Next") else weight.bfloat16()


def _router(module: nn.Module, args: Any, answer: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    logits, weights, _ = answer
    largest, ids = torch.topk(logits, weights.shape[-1], dim=-1, sorted=False)
    return logits, torch.softmax(largest, -1), ids


def _router_float(module: nn.Module, args: Any, answer: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    logits, _, ids = _router(module, args, answer)
    return logits, torch.softmax(logits.gather(-1, ids).float(), -1), ids


def _experts(module: Any, hidden: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """Hidden states [N, D] through the experts `ids` [N, K], weighted by `weights` [N, K]."""
    total = hidden.new_zeros(hidden.shape, dtype=torch.float32)
    for expert in range(module.num_experts):
        rows, places = torch.where(ids == expert)
        inner = cut(module._apply_gate(_dense(module, "gate_up_proj", expert, hidden[rows].float())))
        outer = _dense(module, "down_proj", expert, inner.float())
        total.index_add_(0, rows, outer * weights[rows, places, None].float())
    return cut(total)


def _dense(module: Any, name: str, expert: int, x: Tensor) -> Tensor:
    weight: Tensor = getattr(module, name)[expert].float()
    out = x @ (weight if module.is_transposed else weight.T)
    return out.add_(getattr(module, f"{name}_bias")[expert]) if module.has_bias else out


def _attend(
    narrow: Callable[[Tensor], Tensor],
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    *,
    scaling: float,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention over query, key and value [B, H, S, D]; query and key come from the rotation in float32."""
    groups = query.shape[1] // key.shape[1]
    query = narrow(query).float() * scaling
    key, value = (x.float().repeat_interleave(groups, 1) for x in (narrow(key), value))
    scores = query @ key.transpose(2, 3) + mask
    if (sinks := options.get("s_aux")) is not None:
        sinks = sinks.float().reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], -1)
    mass = (scores - scores.amax(-1, keepdim=True)).exp()
    out = mass[..., : key.shape[2]] @ value / mass.sum(-1, keepdim=True)
    return cut(out).transpose(1, 2), None


for _name, _narrow in ((_ATTENTION, Tensor.bfloat16), (_ATTENTION_EAGER, cut)):
    AttentionInterface.register(_name, partial(_attend, _narrow))
    AttentionMaskInterface.register(_name, eager_mask)
