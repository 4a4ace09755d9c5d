"""The pass that rounds as vLLM's CPU kernels do. How well it imitates vLLM is measured where vLLM is: tests/engines/vllm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.qwen3_next import modeling_qwen3_next

import tiny_moe
from radmoe.engines.base import Sampling
from radmoe.engines.replay.delta_rounding import Inputs, chunked, stepped
from radmoe.engines.replay.rounding import COMPILED, EAGER, ROUNDINGS, cut, forced_as_vllm, rounding_as_vllm
from radmoe.engines.replay.run import replay
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.errors import InputError, PoolMismatch
from radmoe.pool import open_pool
from radmoe_lab.models import weights
from radmoe_lab.tasks import problems

FAMILIES = ["qwen3-moe", "gpt-oss", "qwen3-next"]
TOKENS = [(7 * i) % 60 for i in range(90)]


def same(a: Any, b: Any) -> float:
    return float((np.sort(a[0], -1) == np.sort(b[0], -1)).all(-1).mean())


def tiny(family: str, dtype: torch.dtype = torch.bfloat16) -> TransformersEngine:
    return TransformersEngine(tiny_moe.model(family).to(dtype), tokenizer=tiny_moe.tokenizer(), streams=1, threads=1)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False), min_size=1))
def test_cutting_goes_towards_zero_by_less_than_one_step(values: list[float]) -> None:
    x = torch.tensor(values)
    down = cut(x).float()
    assert (down.abs() <= x.abs()).all()
    assert (x.double().abs() - down.double().abs() <= x.double().abs() * 2**-7).all()
    assert torch.equal(cut(down).float(), down)
    assert torch.equal(cut(-x).float(), -down)


@pytest.mark.parametrize("name", ["lab-qwen", "lab-oss", "lab-next"])
def test_it_is_as_near_to_float32_as_another_bfloat16_pass(name: str) -> None:
    """A wrong mask, scale, sink or state would cost far more than rounding does."""
    exact, rough = (TransformersEngine(weights(name), dtype=d, streams=1) for d in ("float32", "bfloat16"))
    prompt = exact.encode(problems("math-2", limit=1)[0].prompt)
    (done,) = exact.generate([prompt], 1, sampling=Sampling(max_tokens=100, seed=1))
    tokens = [*prompt, *done.rollout.token_ids.tolist()]
    truth, plain = exact.teacher_forced(tokens), rough.teacher_forced(tokens)
    compiled, eager = (forced_as_vllm(rough, tokens, len(prompt), rounding) for rounding in (COMPILED, EAGER))
    for found in (compiled, eager):
        assert same(found, truth) >= same(plain, truth) - 0.02
        assert same(found, plain) < 1  # it does round otherwise
    assert same(compiled, eager) < 1


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_rounds_as_before_afterwards(family: str, rounding: str) -> None:
    engine = tiny(family)
    before = engine.teacher_forced(TOKENS)
    forced_as_vllm(engine, TOKENS, 70, rounding)
    with pytest.raises(RuntimeError, match="stop"), rounding_as_vllm(engine.model, 3, rounding):
        raise RuntimeError("stop")
    after = engine.teacher_forced(TOKENS)
    assert np.array_equal(before[0], after[0])
    assert np.array_equal(before[1], after[1])


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_depend_on_earlier_tokens_only(family: str, rounding: str) -> None:
    engine = tiny(family)
    whole = forced_as_vllm(engine, TOKENS, 70, rounding)
    part = forced_as_vllm(engine, TOKENS[:80], 70, rounding)
    assert np.array_equal(whole[0][:80], part[0])
    assert np.allclose(whole[1].sum(-1), 1, atol=1e-5)


def test_where_a_prompt_ended_matters_to_linear_attention_only() -> None:
    for family in FAMILIES:
        engine = tiny(family)
        early, late = (forced_as_vllm(engine, TOKENS, prompt) for prompt in (5, len(TOKENS)))
        assert np.array_equal(early[1], late[1]) == (family != "qwen3-next")


def rule(positions: int) -> Inputs:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, positions, size).bfloat16().float() for size in (16, 16, 24))
    return Inputs(query, key, value, -torch.rand(2, positions), torch.rand(2, positions).bfloat16().float())


@pytest.mark.parametrize("positions", [3, 64, 150])
def test_both_forms_of_the_rule_are_the_reference_up_to_rounding(positions: int) -> None:
    given = rule(positions)
    reference = modeling_qwen3_next.torch_chunk_gated_delta_rule
    arrays = [x.transpose(0, 1)[None] for x in given[:3]]
    wanted, state = reference(
        *arrays,
        g=given.decay.T[None],
        beta=given.beta.T[None],
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    out, after = chunked(given)
    assert torch.allclose(out, wanted[0].transpose(0, 1), atol=0.03)
    assert torch.allclose(after, state[0], atol=0.03)
    assert torch.allclose(stepped(given, torch.zeros(2, 16, 24)), wanted[0].transpose(0, 1), atol=0.03)


def test_a_prompt_and_steps_after_it_are_one_sequence() -> None:
    given = rule(100)
    whole, _ = chunked(given)
    before, state = chunked(given.part(0, 70))
    after = stepped(given.part(70, None), state)
    assert torch.allclose(torch.cat([before, after], 1), whole, atol=0.03)


def test_what_was_not_compared_with_vllm_is_refused() -> None:
    with pytest.raises(InputError, match="that of bfloat16 and the model is in float32: pass dtype bfloat16"):
        forced_as_vllm(tiny_moe.engine("qwen3-moe"), TOKENS, 3)
    with pytest.raises(InputError, match="is known for qwen3_moe, gpt_oss, qwen3_next, not for mixtral"):
        forced_as_vllm(tiny("mixtral"), TOKENS, 3)
    other = tiny_moe.model("qwen3-moe", norm_topk_prob=False).to(torch.bfloat16)
    with pytest.raises(InputError, match="routers without norm_topk_prob"), rounding_as_vllm(other, 3):
        pass


def test_a_replay_says_how_it_was_rounded(tmp_path: Path) -> None:
    engine = tiny("qwen3-next")
    file = tmp_path / "r.jsonl"
    file.write_text(f'{{"id": 1, "prompt_ids": {TOKENS[:30]}, "token_ids": {TOKENS[30:]}}}\n')
    replay(file, engine, tmp_path / "as", rounding="vllm-cpu")
    made = open_pool(tmp_path / "as")
    assert made.sampling["rounding"] == "vllm-cpu"
    rows = forced_as_vllm(engine, TOKENS, 30)[0][29:-1]
    assert np.array_equal(made.group("1").rollouts[0].expert_ids, rows)
    with pytest.raises(PoolMismatch, match="rounding"):
        replay(file, engine, tmp_path / "as")
    with pytest.raises(InputError, match="rounding must be vllm-cpu or vllm-cpu-eager, got 'gpu'"):
        replay(file, engine, tmp_path / "gpu", rounding="gpu")
