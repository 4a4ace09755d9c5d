"""Continuations of one prompt that are passed as a tree: the same as in batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_moe
from radmoe.engines.torch.force import force
from radmoe_lab.inference import force_tree as module
from radmoe_lab.inference.engine import LabEngine
from radmoe_lab.inference.force_tree import force_tree, knows_trees
from radmoe_lab.inference.tree_layers import under_way

pytestmark = pytest.mark.slow

UNKNOWN = "deepseek-v3"  # its keys have 24 dimensions
FAMILIES = tuple(family for family in tiny_moe.FAMILIES if family != UNKNOWN)
PROMPT = [5, 6, 7, 8, 9, 10, 11]


def branches(seed: int = 0) -> list[list[int]]:
    """Tails that begin alike, one of them twice, one the beginning of another, one of a single token."""
    rng = np.random.default_rng(seed)
    stem = rng.integers(0, 100, 40).tolist()
    tails = [[*stem[:cut], *rng.integers(0, 100, more).tolist()] for cut, more in ((3, 20), (17, 5), (17, 31), (0, 9))]
    return [*tails, stem, stem[:25], stem, stem[:1]]


def compare(engine: LabEngine, prompt: list[int], tails: list[list[int]], positions: int = 1024) -> None:
    assert knows_trees(engine.model, engine._recorder)
    mine = force_tree(engine.model, engine._recorder, prompt, tails, topk_logprobs=4, positions=positions)
    theirs = force(engine.model, engine._recorder, prompt, tails, topk_logprobs=4)
    for one, other, tail in zip(mine, theirs, tails, strict=True):
        assert one.ids.shape == other.ids.shape
        assert one.ids.dtype == other.ids.dtype
        assert len(one.ids) == len(tail)
        same = (np.sort(one.ids, -1) == np.sort(other.ids, -1)).all(-1)
        assert same.mean() > 0.99
        assert np.allclose(one.weights[same], other.weights[same], atol=1e-4)
        assert one.sampled_logprobs is not None
        assert other.sampled_logprobs is not None
        assert np.allclose(one.sampled_logprobs, other.sampled_logprobs, atol=1e-4)
        assert np.allclose(one.topk_logprobs, other.topk_logprobs, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tree_gives_what_batches_give(family: str) -> None:
    compare(tiny_moe.lab_engine(family), PROMPT, branches())


@pytest.mark.parametrize("family", FAMILIES)
def test_it_does_not_matter_where_a_tree_is_cut(family: str) -> None:
    compare(tiny_moe.lab_engine(family), PROMPT, branches(), positions=9)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_may_have_one_token(family: str) -> None:
    compare(tiny_moe.lab_engine(family), [5], branches())


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=30), min_size=1, max_size=8), st.integers(4, 60))
@settings(max_examples=15, deadline=None)
@pytest.mark.parametrize("family", ["gpt-oss", "qwen3-next"])
def test_any_tree_gives_what_batches_give(family: str, tails: list[list[int]], positions: int) -> None:
    compare(tiny_moe.lab_engine(family), PROMPT, tails, positions)


def test_many_rollouts_are_several_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROLLOUTS", 3)
    compare(tiny_moe.lab_engine("qwen3-moe"), PROMPT, branches())


def test_the_engine_passes_a_token_once_where_rollouts_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_moe.lab_engine("qwen3-moe")
    engine.force(PROMPT, [[1]])
    passed: list[int] = []
    handle = engine.model.register_forward_pre_hook(
        lambda model, args, options: passed.append(options["input_ids"].numel()), with_kwargs=True
    )
    engine.force(PROMPT, [[1, 2, 3, 4]] * 5)
    handle.remove()
    assert sum(passed) == len(PROMPT) + 3


def test_a_model_with_an_unknown_attention_is_passed_in_batches() -> None:
    engine = tiny_moe.lab_engine(UNKNOWN)
    assert not knows_trees(engine.model, engine._recorder)
    assert under_way.walk is None
    (one,) = engine.force(PROMPT, [[1, 2, 3]])
    assert one.ids.shape[0] == 3


def test_a_layer_that_mixes_positions_in_another_way_is_noticed() -> None:
    model = tiny_moe.model("qwen3-moe")
    norm = model.model.layers[1].input_layernorm
    norm.register_forward_hook(lambda module, inputs, output: output + output.cumsum(1))
    engine = LabEngine(model, tokenizer=tiny_moe.tokenizer(), streams=1, threads=1)
    assert not knows_trees(model, engine._recorder)


def test_other_kinds_of_numbers_are_passed_in_batches() -> None:
    model = tiny_moe.model("qwen3-moe").bfloat16()
    engine = LabEngine(model, tokenizer=tiny_moe.tokenizer(), streams=1, threads=1)
    assert not knows_trees(model, engine._recorder)


def test_without_log_probabilities_none_are_made() -> None:
    engine = tiny_moe.lab_engine("qwen3-moe")
    (one,) = force_tree(engine.model, engine._recorder, PROMPT, [[1, 2, 3]], topk_logprobs=0)
    assert one.ids.shape[0] == 3
    assert one.sampled_logprobs is None
    assert one.topk_logprobs is None
