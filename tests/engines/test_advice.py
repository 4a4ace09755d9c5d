"""What messages advise is said in one place, and none of it leads to a kernel that our own code refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import radmoe
from radmoe.engines import ENGINES, advice
from radmoe.engines.http.dialects import Sglang, Vllm
from radmoe.engines.vllm.plugin import worker
from radmoe.engines.vllm.plugin.layers import moe_layers
from radmoe.errors import EngineError

SOURCE = Path(radmoe.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"
FLAG = re.compile(r"(--moe-(?:runner-)?backend)[ =`]+(\w+)(?: for (\S+))?")

# The first kernel that vLLM tries for weights and a backend; None is one that asks the router. Recipe: the lists that
# `backend_to_kernel_cls` returns in vllm/model_executor/layers/fused_moe/oracle/*.py of the source distributions
# vllm-0.30.0 and vllm-0.33.0, which agree.
MONOLITHIC = {
    ("4-bit", "triton"): "OAITritonMxfp4ExpertsMonolithic",  # mxfp4: vLLM's own capture refuses it, the plugin hears it
    ("4-bit", "flashinfer_trtllm"): "TrtLlmMxfp4ExpertsMonolithic",
    ("4-bit", "marlin"): None,  # mxfp4, nvfp4, int_wna16: MarlinExperts
    ("16-", "triton"): None,  # unquantized, fp8, int8: TritonExperts
    ("16-", "flashinfer_trtllm"): "TrtLlmBf16ExpertsMonolithic",
}


def layer(**attributes: Any) -> torch.nn.Module:
    module = torch.nn.Module()
    router = SimpleNamespace(_compute_routing=None, top_k=2)
    for name, value in ({"router": router, "layer_id": 0} | attributes).items():
        setattr(module, name, value)
    return module


def refused(weights: str, backend: str) -> str:
    """What the plugin says of the model that vLLM builds so; empty where it captures."""
    kernel = MONOLITHIC[weights, backend]
    experts = (
        SimpleNamespace(supports_routing_replay_capture=lambda: True) if kernel is None else type(kernel, (), {})()
    )
    method = SimpleNamespace(moe_kernel=SimpleNamespace(fused_experts=experts))
    try:
        moe_layers(torch.nn.ModuleList([layer(is_monolithic=kernel is not None, _quant_method=method)]), weights=True)
    except EngineError as error:
        return str(error)
    return ""


def messages() -> Iterator[str]:
    """Every text of ours that may name a kernel's flag."""
    for engine in ENGINES:
        yield from (
            advice.remedy(engine, check) for check in {*advice._VLLM, *advice._SGLANG, *advice._LOCAL, *advice._ANY}
        )
    yield from (Vllm.kernel, Sglang.kernel, worker._BYPASSED, refused("4-bit", "flashinfer_trtllm"))


def test_no_advice_names_a_backend_whose_kernel_the_plugin_refuses() -> None:
    advised = [found for message in messages() for found in FLAG.findall(message)]
    vllm = {(weights, backend) for flag, backend, weights in advised if flag == "--moe-backend"}
    assert vllm == {("4-bit", "marlin"), ("16-", "triton")}
    assert [refused(*pair) for pair in vllm] == ["", ""]
    assert {backend for flag, backend, _ in advised if flag == "--moe-runner-backend"} == {"triton"}  # SGLang's


def test_advice_about_kernels_is_written_once() -> None:
    for file in SOURCE.rglob("*.py"):
        if file.name != "advice.py":
            assert not FLAG.search(file.read_text()), f"{file} names a backend: take it from radmoe.engines.advice"


def test_the_page_on_engines_says_what_the_messages_say() -> None:
    rows = re.findall(r"^\| (\S+) .*?\| `--moe-backend (\w+)` \|", (DOCS / "engines.md").read_text(), re.MULTILINE)
    assert rows == [(weights.split()[0], backend) for weights, backend in advice.VLLM_BACKENDS.items()]
