"""Continuations of one prompt that are passed together: the same as one at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_moe
from radmoe.engines.base import Sampling
from radmoe.engines.torch import force as module
from radmoe.engines.torch.engine import TransformersEngine
from radmoe.engines.torch.force import force

FAMILIES = tuple(tiny_moe.FAMILIES)
PROMPT = [5, 6, 7, 8, 9, 10, 11]


def tails(seed: int = 0, lengths: tuple[int, ...] = (1, 30, 7, 41, 2, 30, 80)) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 100, length).tolist() for length in lengths]


def compare(engine: TransformersEngine, prompt: list[int], given_tails: list[list[int]]) -> None:
    forced = force(engine.model, engine._recorder, prompt, given_tails, topk_logprobs=0)
    for tail, one in zip(given_tails, forced, strict=True):
        ids, weights = engine.teacher_forced([*prompt, *tail[:-1]])
        same = (np.sort(one.ids, -1) == np.sort(ids[len(prompt) - 1 :], -1)).all(-1)
        assert same.mean() > 0.999
        assert np.allclose(one.weights[same], weights[len(prompt) - 1 :][same], atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_routing_is_that_of_one_pass_each(family: str) -> None:
    compare(tiny_moe.engine(family), PROMPT, tails())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_of_one_token_has_no_cache_to_share(family: str) -> None:
    compare(tiny_moe.engine(family), [5], tails())


@given(st.lists(st.integers(1, 40), min_size=1, max_size=9), st.integers(1, 12), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_any_lengths_go_together(lengths: list[int], prompt: int, seed: int) -> None:
    compare(tiny_moe.engine("qwen3-moe"), PROMPT[: min(prompt, 7)], tails(seed, tuple(lengths)))


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_and_small_batches_change_nothing(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_moe.engine(family)
    whole = force(engine.model, engine._recorder, PROMPT, tails(), topk_logprobs=4)
    monkeypatch.setattr(module, "_POSITIONS", {"cpu": 90})
    monkeypatch.setattr(module, "LOGITS_BYTES", 9 * 4 * engine.model.config.get_text_config().vocab_size)
    pieces = force(engine.model, engine._recorder, PROMPT, tails(), topk_logprobs=4)
    for one, other in zip(whole, pieces, strict=True):
        same = (np.sort(one.ids, -1) == np.sort(other.ids, -1)).all(-1)
        assert same.mean() > 0.999
        assert one.sampled_logprobs is not None
        assert other.sampled_logprobs is not None
        assert np.allclose(one.sampled_logprobs, other.sampled_logprobs, atol=1e-4)
        assert np.allclose(one.topk_logprobs, other.topk_logprobs, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_are_those_that_sampling_kept(family: str) -> None:
    engine = tiny_moe.engine(family)
    sampled = list(engine.generate([PROMPT], 6, sampling=Sampling(max_tokens=40, seed=3, topk_logprobs=5)))
    forced = engine.force(PROMPT, [c.rollout.token_ids.tolist() for c in sampled], topk_logprobs=5)
    for completion, one in zip(sampled, forced, strict=True):
        assert one.sampled_logprobs is not None
        assert one.sampled_logprobs.shape == (len(completion.rollout),)
        assert np.allclose(one.sampled_logprobs, completion.rollout.sampled_logprobs, atol=1e-3)
        assert np.allclose(one.topk_logprobs, completion.rollout.topk_logprobs, atol=1e-3)


def test_without_log_probabilities_none_are_made() -> None:
    (one,) = tiny_moe.engine("qwen3-moe").force(PROMPT, [[1, 2, 3]])
    assert one.sampled_logprobs is None
    assert one.topk_logprobs is None
