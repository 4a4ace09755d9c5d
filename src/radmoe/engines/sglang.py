"""Expert weights from SGLang: a plugin of the server, which SGLang finds by its entry point `sglang.srt.plugins`.

SGLang (`--enable-return-routed-experts`) keeps the ids of every position's experts as int32, of which an id needs the lower half.
The plugin writes the bits of each expert's weight, as float16, into the upper half, where SGLang itself copies ids: inside CUDA
graphs, into its cache by position, and into its answers. Nothing else of SGLang is touched, and there is no route of our own.
It does so only where the variable RADMOE_SGLANG_WEIGHTS is 1, as every other reader of these ids would misread them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

SWITCH = "RADMOE_SGLANG_WEIGHTS"


def register() -> None:
    """Called by SGLang in each of its processes."""
    if os.environ.get(SWITCH) != "1":
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register("sglang.srt.layers.moe.topk._post_process_topk_ids", captured, HookType.AROUND)


def captured(
    original: Callable[..., Any],
    topk_ids: Any,
    topk_weights: Any,
    topk_config: Any,
    router_logits: Any,
    layer_id: int,
    *rest: Any,
    **options: Any,
) -> Any:
    """Let SGLang capture the ids, and then capture them with their weights over it, both as they were before it changed them."""
    from sglang.srt.layers.moe.topk import capture_routed_experts_if_allowed

    both = pack(topk_ids, topk_weights)
    result = original(topk_ids, topk_weights, topk_config, router_logits, layer_id, *rest, **options)
    capture_routed_experts_if_allowed(topk_config, layer_id, both)
    return result


def pack(ids: Any, weights: Any) -> Any:
    """Ids and weights [tokens, K], which are tensors, as int32, the weights' float16 bits in the upper half."""
    import torch

    return ids.to(torch.int32) + (weights.to(torch.float16).view(torch.int16).to(torch.int32) << 16)


def unpack(raw: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float16] | None]:
    """Ids [rows, layers, K], and weights that sum to 1 if the server has the plugin, else None. Rows of no experts have none."""
    if raw.dtype != np.int32 or not raw.size or raw.min() < 0 or raw.max() < 1 << 16:
        return raw, None
    weights = (raw >> 16).astype(np.uint16).view(np.float16).astype(np.float32)
    return raw & 0xFFFF, (weights / np.maximum(weights.sum(-1, keepdims=True), 1e-9)).astype(np.float16)
