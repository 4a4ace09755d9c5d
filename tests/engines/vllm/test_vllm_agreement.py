"""vLLM's routing, its own and the plugin's, against a transformers replay of the same tokens."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from radmoe.engines.base import Sampling
from radmoe.types import Rollout, RolloutGroup
from vllm_parts import BOTH, FLOAT32_AGREES, GPU, OPTIONS, STOCK, replayed, same_sets, shipped, weights_apart

# vLLM's CPU kernels for Qwen3-Next's linear attention take bfloat16 only
CASES = [("lab-qwen", "float32"), ("lab-oss", "float32"), ("lab-qwen", "bfloat16"), ("lab-oss", "bfloat16"), ("lab-next", "bfloat16")]  # fmt: skip
if GPU:
    CASES.remove(("lab-oss", "float32"))  # attention with sinks has no float32 kernel there


def bfloat16_sinks(model: Any) -> None:
    """vLLM's CPU attention reads gpt-oss's sinks as bfloat16, which is what the checkpoint holds: nothing is lost."""
    import torch

    for module in model.modules():
        attention = getattr(module, "impl", None)
        if getattr(attention, "sinks", None) is not None:
            attention.sinks = attention.sinks.detach().to(torch.bfloat16)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def captured(request: pytest.FixtureRequest, checkpoint: Any) -> Iterator[SimpleNamespace]:
    """Rollouts of four problems, with the request outputs they came from."""
    from radmoe.engines.vllm.engine import VllmEngine, from_vllm, request_parameters, taken
    from radmoe.engines.vllm.plugin import TAKE
    from radmoe_lab.tasks import problems

    name, dtype = request.param
    options = OPTIONS | ({"gdn_prefill_backend": "triton"} if GPU and name == "lab-next" else {})
    engine = VllmEngine(checkpoint(name), dtype=dtype, **BOTH, **options)
    if name == "lab-oss" and not GPU:
        engine.llm.apply_model(bfloat16_sinks)
    prompts = [engine.encode(p.prompt) for p in problems("math-2", limit=4)]
    sampling = Sampling(max_tokens=100, topk_logprobs=5)
    wanted = [request_parameters(sampling, 4, key=f"key{i}", seed=i) for i in range(len(prompts))]
    outputs = engine.llm.generate([{"prompt_token_ids": p} for p in prompts], wanted, use_tqdm=False)
    groups = [
        from_vllm(
            output,
            engine.llm,
            routing=taken(engine.llm.collective_rpc(TAKE, args=({"key": f"key{i}", "n": 4},))),
        )
        for i, output in enumerate(outputs)
    ]
    yield SimpleNamespace(name=name, dtype=dtype, engine=engine, prompts=prompts, outputs=outputs, groups=groups)
    engine.close()


def rollouts(captured: SimpleNamespace) -> Iterator[tuple[list[int], Rollout]]:
    for prompt, group in zip(captured.prompts, captured.groups, strict=True):
        for rollout in group.rollouts:
            yield prompt, rollout


@pytest.mark.skipif(not STOCK, reason="this vLLM returns no routed experts without a GPU")
def test_the_plugin_sees_what_vllm_returns_itself(captured: SimpleNamespace) -> None:
    """Same pass, same ids, in the same order; vLLM's own has no weights."""
    from radmoe.engines.vllm.engine import from_vllm

    for output, group in zip(captured.outputs, captured.groups, strict=True):
        stock = from_vllm(output, captured.engine.llm, problem_id="p")
        assert stock.problem_id == "p"
        for mine, theirs in zip(group.rollouts, stock.rollouts, strict=True):
            assert np.array_equal(mine.token_ids, theirs.token_ids)
            assert np.array_equal(mine.expert_ids, theirs.expert_ids)
            assert theirs.weights is None
            assert mine.topk_logprobs is not None
            assert mine.topk_logprobs.shape == (len(mine), 5)


def test_routing_agrees_with_a_replay(captured: SimpleNamespace, replay: Any) -> None:
    """float32: 99.9% of the sets. bfloat16: as much as the format allows.

    A bfloat16 pass leaves the float32 path wherever two experts are closer than its rounding; transformers' own
    does so as often as vLLM's. What an engine may not do is to add to that (docs/engines.md has the figures).
    """
    exact, own = replay(captured.name, "float32"), replay(captured.name, captured.dtype)
    mine, theirs, each_other, apart = [], [], [], []
    for prompt, rollout in rollouts(captured):
        truth, again = (replayed(engine, prompt, rollout.token_ids) for engine in (exact, own))
        theirs.append(same_sets(again[0], truth[0]).ravel())
        each_other.append(same_sets(again[0], rollout.expert_ids).ravel())
        mine.append(same_sets(rollout.expert_ids, truth[0]).ravel())
        apart.append(weights_apart((rollout.expert_ids, rollout.weights), truth))
    agree, format_allows, both = (float(np.concatenate(x).mean()) for x in (mine, theirs, each_other))
    print(
        f"{captured.name} {captured.dtype}: {agree:.4f} of vLLM's and {format_allows:.4f} of transformers' sets are those of "
        f"a float32 replay, {both:.4f} agree with each other"
    )
    if captured.dtype == "float32":
        assert agree >= FLOAT32_AGREES
        assert max(apart) < 5e-2  # where two experts are nearly tied, a rollout may take another path from there on
        together = [own for own, sets in zip(apart, mine, strict=True) if sets.all()]
        assert len(together) > len(apart) / 2
        assert max(together) < (5e-2 if GPU else 1e-3)
        return
    assert agree >= format_allows - 0.015
    if shipped(captured.name) is not None:  # random routers hardly prefer one expert to the next
        assert agree >= 0.9


def test_a_shifted_row_would_be_noticed(captured: SimpleNamespace, replay: Any) -> None:
    exact = replay(captured.name, "float32")
    prompt, rollout = next(rollouts(captured))
    late = replayed(exact, [*prompt, int(rollout.token_ids[0])], rollout.token_ids[1:])[0]
    assert same_sets(rollout.expert_ids[:-1], late).mean() < 0.6


def test_sets_differ_only_where_experts_are_close(captured: SimpleNamespace, replay: Any) -> None:
    """The experts swapped against the float32 replay weigh about the same there, next to the K-th."""
    exact = replay(captured.name, "float32")
    lost, kept = [], []
    for prompt, rollout in rollouts(captured):
        ids, weights = replayed(exact, prompt, rollout.token_ids)
        for t, layer in np.argwhere(~same_sets(rollout.expert_ids, ids)):
            gone = ~np.isin(ids[t, layer], rollout.expert_ids[t, layer])
            lost += (weights[t, layer][gone]).tolist()
        kept += weights.min(-1).ravel().tolist()
    if not lost:
        assert captured.dtype == "float32"
        return
    # an expert that was dropped weighed hardly more than the weakest chosen one does on average
    assert np.median(lost) <= np.quantile(kept, 0.75)


def test_picks_agree_with_those_of_a_replay(captured: SimpleNamespace, replay: Any) -> None:
    """In bfloat16 density moves by a percent or two, and members of one basin are often closer than that."""
    if captured.name != "lab-qwen" or shipped(captured.name) is None:
        pytest.skip("one model's picks are enough, and random weights write no answer to select by")
    from radmoe import select
    from radmoe_lab.tasks import problems

    engine, own = captured.engine, replay(captured.name, captured.dtype)
    prompts = [engine.encode(p.prompt) for p in problems("math-2", limit=20)]
    sampled: dict[int, list[Rollout]] = {i: [] for i in range(len(prompts))}
    for done in engine.generate(prompts, 6, sampling=Sampling(temperature=1.3, max_tokens=160, topk_logprobs=0)):
        sampled[done.prompt_index].append(done.rollout)
    same, gaps = 0, []
    for i, rolled in sampled.items():
        again = [Rollout(r.token_ids, *as_stored(replayed(own, prompts[i], r.token_ids))) for r in rolled]
        mine, theirs = (select(RolloutGroup("p", g, engine.shape, engine.vocab, "math"), k=3) for g in (rolled, again))
        same += mine.index == theirs.index
        if mine.index != theirs.index and mine.index is not None and theirs.index is not None:
            gaps.append(1 - mine.density[theirs.index] / mine.density[mine.index])
    print(
        f"{captured.dtype}: {same} of {len(sampled)} picks agree; the others' densities are apart by {np.round(gaps, 3)}"
    )
    assert same >= (0.95 if captured.dtype == "float32" else 0.75) * len(sampled)
    assert max(gaps, default=0) < 0.05


def test_compiled_routing_agrees_with_a_replay(checkpoint: Any, replay: Any) -> None:
    """Without enforce_eager, vLLM's default. Its own routed experts are zeros then on a CPU, the plugin's are not."""
    if shipped("lab-qwen") is None:
        pytest.skip("random routers hardly prefer one expert to the next")
    from radmoe.engines.vllm.engine import VllmEngine
    from radmoe_lab.tasks import problems

    engine = VllmEngine(checkpoint("lab-qwen"), dtype="bfloat16", **OPTIONS | {"enforce_eager": False})
    prompts = [engine.encode(p.prompt) for p in problems("math-2", limit=3)]
    exact, agree = replay("lab-qwen", "float32"), []
    for done in engine.generate(prompts, 4, sampling=Sampling(max_tokens=100, topk_logprobs=0)):
        ids = replayed(exact, prompts[done.prompt_index], done.rollout.token_ids)[0]
        agree.append(same_sets(ids, done.rollout.expert_ids).ravel())
    engine.close()
    assert np.concatenate(agree).mean() >= 0.9


def as_stored(routing: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return routing[0], routing[1].astype(np.float16)
