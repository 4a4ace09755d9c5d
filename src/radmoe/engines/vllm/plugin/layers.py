"""The MoE layers of a vLLM model, and where each of them says which experts it chose.

A layer asks a router, or its kernel routes by itself (vLLM calls such kernels monolithic):

    routers                          `_compute_routing` answers weights and ids
    OpenAI's Triton kernel, MXFP4    takes both from `triton_kernels.topk.topk`, which is heard while the layer runs
    FlashInfer's TensorRT-LLM ones   write the ids they chose to a buffer of vLLM's `RoutedExpertsSink`: ids alone

Every other kernel is refused by name. Ids are those of the model's own experts everywhere: expert load balancing
renames them after the places that are listened to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from torch import Tensor

from radmoe.engines.advice import VLLM_KERNEL
from radmoe.engines.vllm.plugin import NAME
from radmoe.errors import EngineError

Write = Callable[[Tensor | None, Tensor], None]  # takes weights and ids [N, K] of one layer and pass
_TRITON = "OAITritonMxfp4ExpertsMonolithic"
_hearing: list[Write] = []  # of the layer whose Triton kernel is being launched


class MoELayer(NamedTuple):
    """A layer that routes: its experts per token, and a function that has their ids and weights passed on in every pass."""

    top_k: int
    listen: Callable[[Write], None]


def moe_layers(model: Any, *, weights: bool) -> list[MoELayer]:
    """The layers of a vLLM model in their order. Raises EngineError where one does not say which experts it chose.

    With `weights` a layer must tell its weights too.
    """
    found: dict[int, MoELayer] = {}
    for module in model.modules():
        if not hasattr(module, "layer_id"):
            continue
        if getattr(module, "router", None) is not None:
            found[int(module.layer_id)] = MoELayer(module.router.top_k, _listener(module, weights))
        elif hasattr(module, "capture_fn"):  # vLLM's mark of a layer that is router and experts in one
            raise _deaf(module, f"is a {type(module).__name__}, which routes by itself")
    if not found:
        raise EngineError("this is not a mixture-of-experts model: without a router there is no routing to capture")
    return [found[number] for number in sorted(found)]


def _listener(module: Any, weights: bool) -> Callable[[Write], None]:
    if not getattr(module, "is_monolithic", False):
        if not hasattr(module.router, "_compute_routing"):
            raise EngineError(
                f"layer {module.layer_id} routes by {type(module.router).__name__}, which the plugin does not know"
            )
        return functools.partial(listen_to_router, module.router)
    experts = getattr(getattr(module._quant_method, "moe_kernel", None), "fused_experts", None)
    kernel = type(experts or module._quant_method).__name__
    if kernel == _TRITON:
        return functools.partial(listen_to_topk, experts)
    if not getattr(experts, "supports_routing_replay_capture", bool)():
        raise _deaf(module, f"runs {kernel}, a monolithic kernel that routes by itself and does not tell")
    if weights:
        raise _deaf(module, f'runs {kernel}, which tells ids alone: set {{"{NAME}": {{"weights": false}}}}, or')
    return functools.partial(_listen_to_sink, module, experts)


def _deaf(module: Any, what: str) -> EngineError:
    return EngineError(f"layer {module.layer_id} {what}{'' if what.endswith('or') else ':'} {VLLM_KERNEL}")


def listen_to_router(router: Any, write: Write) -> None:
    """Hand what a router answers to `write` from now on."""
    compute = router._compute_routing

    def routed(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        weights, ids = compute(*args, **kwargs)
        write(weights, ids)
        return weights, ids

    router._compute_routing = routed


def listen_to_topk(experts: Any, write: Write) -> None:
    """Hand what the Triton kernel of one layer chooses to `write` from now on.

    All layers share one `triton_kernels.topk.topk`, which the kernel looks up anew for every pass, in each of its
    versions: alone (3.6 and later) or through `triton_kernels.routing.routing` (3.5).
    """
    _hear_topk(import_module("triton_kernels.topk"))
    apply = experts.apply

    def applied(*args: Any, **kwargs: Any) -> Any:
        _hearing.append(write)
        try:
            return apply(*args, **kwargs)
        finally:
            _hearing.pop()

    experts.apply = applied


def _hear_topk(module: Any) -> None:
    topk = module.topk
    if getattr(topk, NAME, False):
        return

    @functools.wraps(topk)
    def heard(*args: Any, **kwargs: Any) -> Any:
        answer = topk(*args, **kwargs)
        if _hearing:
            weights, ids = answer[:2] if isinstance(answer, tuple) else (answer.vals, answer.indx)
            for write in _hearing:
                write(weights, ids)
        return answer

    setattr(heard, NAME, True)
    module.topk = heard


def _listen_to_sink(module: Any, experts: Any, write: Write) -> None:
    """Hand the ids that a TensorRT-LLM kernel chose to `write`: by the kernel (vLLM up to 0.32) or by the layer's sink."""
    tell = functools.partial(write, None)
    if hasattr(experts, "set_capture_fn"):
        experts.set_capture_fn(tell)
    else:
        capturer = import_module("vllm.model_executor.layers.fused_moe.routed_experts_capturer")
        module.routed_experts.routing_sink = capturer.RoutedExpertsSink(experts.moe_config, tell)
