"""A captured row is the row a teacher-forced pass over the same tokens has, in every family."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tiny_moe
from radmoe.engines.base import Completion, Sampling
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.types import RouterShape

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [9], [20, 21, 22] * 7, [4, 5]]  # one token; longer than the sliding window
SHAPES = {
    "qwen3-next": RouterShape(4, 8, 4),
    "qwen3.5-moe": RouterShape(4, 8, 4),
    "gpt-oss": RouterShape(4, 8, 4),
    "mixtral": RouterShape(3, 8, 2),
    "deepseek-v3": RouterShape(2, 8, 4),
}


def agreement(engine: TransformersEngine, done: Completion) -> tuple[np.ndarray, float]:
    """Which (token, layer) expert sets agree with teacher forcing, and how far weights are off where they do."""
    prompt, rollout = PROMPTS[done.prompt_index], done.rollout
    ids, weights = engine.teacher_forced(prompt + rollout.token_ids.tolist())
    rows = slice(len(prompt) - 1, len(prompt) - 1 + len(rollout))  # R(t) is input position P-1+t
    order, forced = np.argsort(rollout.expert_ids), np.argsort(ids[rows])
    same = (np.take_along_axis(rollout.expert_ids, order, -1) == np.take_along_axis(ids[rows], forced, -1)).all(-1)
    mine = np.take_along_axis(rollout.weights.astype(np.float32), order, -1)
    off = np.abs(mine - np.take_along_axis(weights[rows], forced, -1))[same]
    return same, float(off.max(initial=0))


@pytest.mark.parametrize("family", tiny_moe.FAMILIES)
def test_captured_rows_equal_teacher_forcing(family: str) -> None:
    """Rows start and end at different times (12 rollouts through a batch of 5), so refilling is tested too."""
    engine = tiny_moe.engine(family)
    assert engine.shape == SHAPES.get(family, RouterShape(3, 8, 4))
    engine_eos, engine.eos = engine.eos, frozenset(range(0, 500, 23))  # a random model hardly ever ends by itself
    try:
        done = list(engine.generate(PROMPTS, 3, sampling=Sampling(max_tokens=40, seed=1), batch_size=5))
    finally:
        engine.eos = engine_eos
    assert sorted((c.prompt_index, c.rollout_index) for c in done) == [(p, r) for p in range(4) for r in range(3)]
    assert len({len(c.rollout) for c in done}) > 3
    for c in done:
        same, off = agreement(engine, c)
        assert same.all()
        assert off < 1e-3
        assert np.allclose(c.rollout.weights.astype(np.float32).sum(-1), 1, atol=2e-3)


def test_a_shifted_row_would_be_noticed() -> None:
    engine = tiny_moe.engine("qwen3-moe")
    (done, *_) = engine.generate(PROMPTS[:1], 1, sampling=Sampling(max_tokens=30))
    ids, _ = engine.teacher_forced(PROMPTS[0] + done.rollout.token_ids.tolist())
    late = np.sort(ids[len(PROMPTS[0]) :][: len(done.rollout)], -1)
    assert (late == np.sort(done.rollout.expert_ids, -1)).all(-1).mean() < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3-moe", "gpt-oss", "mixtral"])
def test_bfloat16_capture_mostly_agrees_with_replay(family: str) -> None:
    """1,322 of 1,329 sets for Qwen3-MoE, 1,771 of 1,772 for gpt-oss, 1,326 of 1,329 for Mixtral (torch 2.13, CPU)."""
    engine = TransformersEngine(tiny_moe.model(family).to(torch.bfloat16), tokenizer=tiny_moe.tokenizer())
    done = engine.generate(PROMPTS, 3, sampling=Sampling(max_tokens=40, seed=1), batch_size=5)
    same = np.concatenate([agreement(engine, c)[0].ravel() for c in done])
    assert same.mean() >= 0.9, f"{same.sum()}/{same.size}"


@pytest.mark.parametrize("family", ["qwen3-moe", "qwen3-next", "gpt-oss", "deepseek-v3"])
def test_greedy_tokens_are_those_of_generate(family: str) -> None:
    """Against transformers' own loop, on a model the engine has not touched."""
    untouched, engine = tiny_moe.model(family), tiny_moe.engine(family)
    for c in engine.generate(PROMPTS, 1, sampling=Sampling(temperature=0, max_tokens=24), batch_size=3):
        prompt = torch.tensor([PROMPTS[c.prompt_index]])
        mask = torch.ones_like(prompt)
        whole = untouched.generate(
            prompt, attention_mask=mask, max_new_tokens=24, do_sample=False, pad_token_id=0, temperature=None
        )
        assert whole[0, prompt.shape[1] :].tolist() == c.rollout.token_ids.tolist()
