"""Hidden states of given rows against hooks on the model's own layers, and the pick that follows from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks.hidden_states import hidden_means, hidden_similarity, select_by_hidden

import tiny_moe
from radmoe.errors import InputError
from radmoe.selection.rule import Rule
from radmoe.types import Rollout, RolloutGroup
from radmoe_lab import planted

PROMPT = [5, 6, 7, 8]
FAMILIES = ("qwen3-moe", "qwen3-next", "gpt-oss")


def layer_outputs(model: torch.nn.Module, tokens: list[int]) -> list[torch.Tensor]:
    """What every decoder layer gives for a sequence [tokens, width], by hooks."""
    outputs: list[torch.Tensor] = []

    def take(module: object, inputs: object, output: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        outputs.append((output if isinstance(output, torch.Tensor) else output[0])[0])

    hooks = [layer.register_forward_hook(take) for layer in model.model.layers]  # type: ignore[union-attr]
    try:
        with torch.inference_mode():
            model(input_ids=torch.tensor([tokens]), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return outputs


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_those_of_the_pass_that_predicts_the_token(family: str) -> None:
    model = tiny_moe.engine(family).model
    tail = np.random.default_rng(0).integers(0, 100, 20).tolist()
    means = hidden_means(model, PROMPT, tail, [(3, 7), (9, 10)])
    rows = [3 + t for t in (3, 4, 5, 6, 9)]  # input 3 is the prompt's last token, which predicts token 0
    expected = layer_outputs(model, [*PROMPT, *tail])
    assert len(means) == len(expected)
    for mean, layer in zip(means[:-1], expected[:-1], strict=True):  # the last is given normalised
        np.testing.assert_allclose(mean, layer[rows].mean(0), atol=2e-4, rtol=2e-3)
    normed = model.model.norm(expected[-1][None])[0].detach()
    np.testing.assert_allclose(means[-1], normed[rows].mean(0), atol=2e-4, rtol=2e-3)


def test_later_tokens_change_nothing() -> None:
    model = tiny_moe.engine("qwen3-moe").model
    tail = np.random.default_rng(1).integers(0, 100, 20).tolist()
    other = [*tail[:10], *reversed(tail[10:])]
    np.testing.assert_array_equal(
        hidden_means(model, PROMPT, tail, [(4, 10)]), hidden_means(model, PROMPT, other, [(4, 10)])
    )


def test_similarity_is_the_mean_cosine_of_the_layers() -> None:
    one = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32)
    other = np.array([[3.0, 0.0], [1.0, 1.0]], np.float32)
    away = np.array([[-1.0, 0.0], [0.0, 0.0]], np.float32)
    S = hidden_similarity([one, other, away])
    np.testing.assert_allclose(S[0], [1.0, (1 + np.sqrt(0.5)) / 2, 0.0], atol=1e-6)
    np.testing.assert_array_equal(S, S.T)
    assert hidden_similarity([]).shape == (0, 0)


@pytest.mark.slow
def test_the_pick_is_the_densest_by_hidden_states() -> None:
    engine = tiny_moe.engine("qwen3-moe")
    texts = ["so \\boxed{7} then", "so \\boxed{7} then", "Now \\boxed{91} and", "no answer", "so \\boxed{7} now"]
    rollouts = []
    for text in texts:
        ids = planted.tokenizer().encode(text).ids
        rollouts.append(Rollout(np.array(ids), np.zeros((len(ids), 3, 4), np.int16)))
    group = RolloutGroup("p", rollouts, engine.shape, engine.vocab, "math")
    picked = select_by_hidden(engine.model, group, PROMPT, Rule(readout="closing@-16", k=1).settle("math"))
    assert picked.index == 0
    assert picked.located.tolist() == [True, True, True, False, True]
    assert picked.density[0] == pytest.approx(1.0, abs=1e-5)  # the second one says the same
    assert picked.density[2] < 1.0


def test_rows_outside_the_rollout_are_refused() -> None:
    model = tiny_moe.engine("qwen3-moe").model
    for spans in ([], [(0, 4)]):
        with pytest.raises(InputError, match="do not lie in a rollout of 3 tokens"):
            hidden_means(model, PROMPT, [1, 2, 3], spans)
    with pytest.raises(InputError, match="give the prompt's tokens"):
        hidden_means(model, [], [1, 2, 3], [(0, 1)])
