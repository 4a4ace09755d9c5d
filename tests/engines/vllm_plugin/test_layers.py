"""Every kind of layer is listened to where it chooses, and what does not tell is refused by name."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from radmoe.engines.vllm.plugin.layers import moe_layers
from radmoe.engines.vllm.plugin.tape import UNWRITTEN, Tape
from radmoe.errors import EngineError

EXPERTS, TOP_K = 16, 4


def layer(number: int, router: object, **extra: object) -> torch.nn.Module:
    made = torch.nn.Module()
    for name, value in {"layer_id": number, "router": router, **extra}.items():
        object.__setattr__(made, name, value)
    return made


def monolithic(number: int, experts: object) -> torch.nn.Module:
    method = SimpleNamespace(moe_kernel=SimpleNamespace(fused_experts=experts))
    return layer(number, SimpleNamespace(top_k=TOP_K), is_monolithic=True, _quant_method=method)


def topk(logits: Tensor, k: int, apply_softmax: bool = True) -> tuple[Tensor, Tensor, None]:
    """As triton_kernels 3.5: weights and ids in the order of the ids, and a bitmatrix."""
    ids = logits.topk(k).indices.sort(-1).values
    weights = logits.gather(1, ids)
    return weights.softmax(-1) if apply_softmax else weights, ids.to(torch.int16), None


def sparse_topk(logits: Tensor, k: int, apply_softmax: bool = True) -> SimpleNamespace:
    """As triton_kernels 3.6 and 3.8: the same in one object."""
    weights, ids, _ = topk(logits, k, apply_softmax)
    return SimpleNamespace(vals=weights, indx=ids)


class OAITritonMxfp4ExpertsMonolithic:
    """Looks the top-k up anew in every pass, as vLLM's `triton_kernel_moe_forward` does."""

    def apply(self, hidden: Tensor, router_logits: Tensor) -> Tensor:
        from triton_kernels.topk import topk  # type: ignore[import-not-found]

        topk(router_logits, TOP_K)
        return hidden


@pytest.fixture(params=[topk, sparse_topk])
def triton_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for the package, which vLLM's CPU build lacks (benchmarks/vllm_mxfp4.py runs the real one)."""
    package, module = ModuleType("triton_kernels"), ModuleType("triton_kernels.topk")
    module.topk = request.param  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton_kernels", package)
    monkeypatch.setitem(sys.modules, "triton_kernels.topk", module)
    return module


def test_what_the_triton_kernel_chose_is_written_to_its_own_layer(triton_kernels: Any) -> None:
    experts = [OAITritonMxfp4ExpertsMonolithic() for _ in range(3)]
    tape = Tape(3, 32, TOP_K, weights=True, device="cpu")
    layers = moe_layers(torch.nn.ModuleList([monolithic(i, experts[i]) for i in (2, 0, 1)]), weights=True)
    for i, one in enumerate(layers):
        one.listen(partial(tape.write, i))
    for seed in range(2):
        tape.arm(10)
        logits = [torch.randn(10, EXPERTS, generator=torch.Generator().manual_seed(3 * seed + i)) for i in range(3)]
        hidden = torch.zeros(10, 8)
        for i in (0, 2, 1):
            assert experts[i].apply(hidden, router_logits=logits[i]) is hidden
        triton_kernels.topk(logits[0], TOP_K)  # of somebody else: nobody listens
        snapshot = tape.read(np.arange(10))
        for i in range(3):
            weights, ids, _ = topk(logits[i], TOP_K)
            assert torch.equal(snapshot.ids[:, i], ids)
            assert torch.allclose(snapshot.weights[:, i].float(), weights, atol=1e-3)


def test_a_kernel_that_fails_does_not_leave_its_layer_listening(triton_kernels: Any) -> None:
    experts = OAITritonMxfp4ExpertsMonolithic()
    tape = Tape(1, 32, TOP_K, weights=True, device="cpu")
    moe_layers(torch.nn.ModuleList([monolithic(0, experts)]), weights=True)[0].listen(partial(tape.write, 0))
    with pytest.raises(AttributeError):
        experts.apply(torch.zeros(4, 8), router_logits=None)  # type: ignore[arg-type]
    tape.arm(4)
    triton_kernels.topk(torch.randn(4, EXPERTS), TOP_K)
    assert (tape.read(np.arange(4)).ids == UNWRITTEN).all()


class TrtLlmBf16ExpertsMonolithic:
    """Tells ids alone, as vLLM's up to 0.32: to a function that it is given."""

    def supports_routing_replay_capture(self) -> bool:
        return True

    def set_capture_fn(self, tell: Any) -> None:
        self.tell = tell


def test_ids_of_a_kernel_that_tells_them() -> None:
    experts = TrtLlmBf16ExpertsMonolithic()
    model = torch.nn.ModuleList([monolithic(0, experts)])
    with pytest.raises(
        EngineError, match=r'tells ids alone: set \{"radmoe": \{"weights": false\}\}, or start vLLM with'
    ):
        moe_layers(model, weights=True)
    tape = Tape(1, 32, TOP_K, weights=False, device="cpu")
    moe_layers(model, weights=False)[0].listen(partial(tape.write, 0))
    chosen = torch.arange(12, dtype=torch.int16).reshape(3, TOP_K)
    experts.tell(chosen)
    assert torch.equal(tape.read(np.arange(3)).ids[:, 0], chosen)


def test_layers_come_in_their_order() -> None:
    routers = [SimpleNamespace(_compute_routing=None, top_k=i) for i in range(3)]
    model = torch.nn.ModuleList([layer(i, routers[i]) for i in (2, 0, 1)])
    assert [each.top_k for each in moe_layers(model, weights=True)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        (torch.nn.Linear(2, 2), "not a mixture-of-experts model"),
        (
            monolithic(4, SimpleNamespace()),
            "layer 4 runs SimpleNamespace, a monolithic kernel that routes by itself .*--moe-b",
        ),
        (layer(1, SimpleNamespace(top_k=2)), "layer 1 routes by SimpleNamespace, which the plugin does not know"),
        (layer(3, None, capture_fn=None), "layer 3 is a Module, which routes by itself: start vLLM with --moe-backend"),
    ],
)
def test_what_does_not_tell_is_refused_by_name(module: torch.nn.Module, line: str) -> None:
    with pytest.raises(EngineError, match=line):
        moe_layers(torch.nn.ModuleList([module]), weights=False)
