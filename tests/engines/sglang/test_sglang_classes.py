"""The plugin in SGLang's own classes, on a CPU: its hooks, its routers and its buffer."""

from __future__ import annotations

import importlib.machinery
import sys
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from radmoe.engines.sglang import SWITCH, unpack

ROOT = Path(__file__).parents[3]
EXPERTS, K, TOKENS = 8, 4, 6


@pytest.fixture(scope="module")
def topk() -> Any:
    """SGLang's module of routers, with what a server process publishes, and with the plugin loaded by SGLang itself."""
    if find_spec("torchvision") is None:  # SGLang imports it for pictures
        from transformers import AutoProcessor  # noqa: F401 it looks for torchvision too, and must not find this one

        for name in ("", ".transforms", ".transforms.functional", ".transforms.v2", ".transforms.v2.functional", ".io"):
            module: Any = MagicMock(__path__=[], __spec__=importlib.machinery.ModuleSpec(f"torchvision{name}", None))
            sys.modules[f"torchvision{name}"] = module
    import sglang.srt.layers.moe.topk as module
    from sglang.srt import plugins, runtime_context
    from sglang.srt.server_args import ServerArgs

    model = ROOT / "packages/radmoe-lab/src/radmoe_lab/weights/lab-qwen"
    runtime_context.publish(
        ServerArgs(model_path=str(model), device="cpu"), role=next(iter(runtime_context.ROLE_NAMESPACE_SETS))
    )
    group = "sglang.srt.plugins"
    value = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][group]["radmoe"]
    found = EntryPoints([EntryPoint("radmoe", value, group)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "entry_points", lambda group: found)
        patch.setenv(SWITCH, "1")
        plugins.load_plugins()
    return module


class Buffer:
    """The device buffer of SGLang's capturer; its host buffer wants CUDA's pinned memory."""

    def __init__(self, module: Any) -> None:
        from sglang.srt.state_capturer.base import BaseDeviceCache

        self.device_cache = BaseDeviceCache(TOKENS, 2, K, "cpu", "test")

    def capture(self, layer_id: int, topk_indices: torch.Tensor) -> None:
        self.device_cache.capture(layer_id, topk_indices)


@pytest.mark.parametrize(
    "options",
    [
        {"renormalize": True},
        {"renormalize": False},
        {"renormalize": True, "scoring_func": "sigmoid"},
        {
            "renormalize": True,
            "use_grouped_topk": True,
            "topk_group": 2,
            "num_expert_group": 4,
            "scoring_func": "sigmoid",
            "correction_bias": torch.linspace(0, 1, EXPERTS),
            "routed_scaling_factor": 2.5,
        },
    ],
    ids=["softmax", "softmax, not renormalised", "sigmoid", "DeepSeek-V3"],
)
def test_what_is_captured_is_what_the_router_returns(
    topk: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    buffer = Buffer(topk)
    monkeypatch.setattr(topk, "get_global_experts_capturer", lambda: buffer)
    router = topk.TopK(K, layer_id=1, output_format=topk.TopKOutputFormat.STANDARD, **options)
    torch.manual_seed(0)
    out = router.forward_native(torch.randn(TOKENS, 16), torch.randn(TOKENS, EXPERTS))
    ids, weights = unpack(buffer.device_cache.buffer.numpy()[:, 1:])
    assert weights is not None
    assert np.array_equal(ids[:, 0], out.topk_ids.numpy())
    mass = out.topk_weights.float().numpy()
    assert np.allclose(weights[:, 0], mass / mass.sum(-1, keepdims=True), atol=1e-3)
