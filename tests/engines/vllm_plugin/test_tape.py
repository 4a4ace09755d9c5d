"""What routers answer is on the tape, inside a CUDA graph too, and what they did not write is marked."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from radmoe.engines.vllm.plugin.layers import listen_to_router
from radmoe.engines.vllm.plugin.tape import UNWRITTEN, Tape

EXPERTS, TOP_K, LAYERS = 16, 4, 3


class Router:
    """As vLLM's: weights and ids of the top experts; scaled, as DeepSeek's are."""

    def __init__(self, layer: int, device: str) -> None:
        generator = torch.Generator().manual_seed(layer)
        self.gate = torch.randn(8, EXPERTS, generator=generator).to(device)

    def _compute_routing(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, ids = (hidden @ self.gate).softmax(-1).topk(TOP_K)
        return 2.5 * weights, ids.to(torch.int32)


def model(device: str = "cpu", rows: int = 32, **options: bool) -> SimpleNamespace:
    routers = [Router(layer, device) for layer in range(LAYERS)]
    tape = Tape(LAYERS, rows, TOP_K, weights=options.get("weights", True), device=device)
    for layer, router in enumerate(routers):
        listen_to_router(router, partial(tape.write, layer))
    return SimpleNamespace(routers=routers, tape=tape)


def run(made: SimpleNamespace, hidden: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [router._compute_routing(hidden) for router in made.routers]


def check(snapshot, answers, source: np.ndarray) -> None:
    snapshot.wait()
    for layer, (weights, ids) in enumerate(answers):
        assert np.array_equal(snapshot.ids[:, layer].numpy(), ids[source].cpu().numpy())
        expected = weights[source] / weights[source].sum(-1, keepdim=True)
        assert torch.allclose(snapshot.weights[:, layer].float(), expected.cpu(), atol=1e-3)


def test_rows_are_those_of_the_last_pass() -> None:
    made, source = model(), np.array([0, 2, 9])
    for seed in range(3):
        hidden = torch.randn(10, 8, generator=torch.Generator().manual_seed(seed))
        made.tape.arm(10)
        answers = run(made, hidden)
        check(made.tape.read(source), answers, source)


def test_a_layer_that_did_not_run_is_marked() -> None:
    made = model()
    run(made, torch.randn(10, 8))
    made.tape.arm(10)
    made.routers[0]._compute_routing(torch.randn(10, 8))
    ids = made.tape.read(np.arange(10)).ids
    assert (ids[:, 0] >= 0).all()
    assert (ids[:, 1:] == UNWRITTEN).all()


def test_rows_a_router_never_saw_are_marked() -> None:
    """As under sequence parallelism, where a rank routes a part of the batch."""
    made = model()
    made.tape.arm(10)
    run(made, torch.randn(5, 8))
    ids = made.tape.read(np.arange(10)).ids
    assert (ids[:5] >= 0).all()
    assert (ids[5:] == UNWRITTEN).all()


def test_a_pass_larger_than_the_tape_is_cut() -> None:
    made = model(rows=4)
    answers = run(made, torch.randn(9, 8))
    check(made.tape.read(np.arange(4)), answers, np.arange(4))


def test_ids_alone_have_no_weights() -> None:
    made = model(weights=False)
    run(made, torch.randn(3, 8))
    assert made.tape.read(np.arange(3)).weights is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_replayed_graph_writes_the_tape() -> None:
    made, source = model("cuda"), np.array([1, 3, 7])
    hidden = torch.zeros(8, 8, device="cuda")
    run(made, hidden)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(made, hidden)
    waiting = []
    for seed in range(20):
        hidden.copy_(torch.randn(8, 8, generator=torch.Generator().manual_seed(seed)))
        made.tape.arm(8)
        graph.replay()
        waiting.append((made.tape.read(source), run(model("cuda"), hidden.clone())))
    for snapshot, answers in waiting:
        check(snapshot, answers, source)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_graph_recorded_without_taps_is_marked() -> None:
    routers = [Router(layer, "cuda") for layer in range(LAYERS)]
    hidden = torch.randn(8, 8, device="cuda")
    [router._compute_routing(hidden) for router in routers]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        [router._compute_routing(hidden) for router in routers]
    tape = Tape(LAYERS, 32, TOP_K, weights=True, device="cuda")
    for layer, router in enumerate(routers):
        listen_to_router(router, partial(tape.write, layer))
    tape.arm(8)
    graph.replay()
    snapshot = tape.read(np.arange(8))
    snapshot.wait()
    assert (snapshot.ids == UNWRITTEN).all()
