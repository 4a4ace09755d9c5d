"""Tokens drawn in NumPy are those drawn in torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from radmoe.engines.torch.decode import sample
from radmoe_llamacpp.draw import draw, logprobs


@given(
    seed=st.integers(0, 10_000),
    words=st.integers(1, 400),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
    scale=st.sampled_from([0.0, 1.0, 8.0]),
)
def test_the_token_is_the_one_torch_draws(
    seed: int, words: int, temperature: float, top_p: float, scale: float
) -> None:
    """Equal logits (scale 0) too: the nucleus then takes the lowest ids first. A place within rounding of a boundary may differ."""
    rng = np.random.default_rng(seed)
    logits, chance = (rng.standard_normal(words) * scale).astype(np.float32), float(rng.random())
    place, most = (torch.tensor([[value]], dtype=torch.float64) for value in (chance, top_p))
    (theirs,) = sample(torch.from_numpy(logits)[None], place, torch.tensor([[temperature]]), most)
    mine = draw(logits, chance, temperature, top_p)
    near = {draw(logits, min(max(chance + step, 0), 1), temperature, top_p) for step in (-1e-6, 1e-6)}
    assert int(theirs) in near | {mine}


def test_frequencies_follow_the_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.25, 1e-30, 0.125, 0.125], np.float32))
    places = (np.arange(8000) + 0.5) / 8000
    assert np.bincount([draw(logits, p, 1.0, 1.0) for p in places]).tolist() == [4000, 2000, 0, 1000, 1000]
    nucleus = np.bincount([draw(logits, p, 1.0, 0.7) for p in places], minlength=5)
    assert nucleus[2:].sum() == 0
    assert abs(nucleus[0] - 8000 * 2 / 3) < 2


@pytest.mark.parametrize("count", [1, 20, 500])
def test_logprobs_are_those_of_log_softmax(count: int) -> None:
    logits = (np.random.default_rng(0).standard_normal(300) * 6).astype(np.float32)
    whole = torch.from_numpy(logits).log_softmax(-1)
    own, top = logprobs(logits, 17, count)
    assert own.dtype == top.dtype == np.float32
    assert own == pytest.approx(float(whole[17]), abs=1e-5)
    assert np.allclose(top, whole.topk(min(count, 300)).values, atol=1e-5)
