"""How linear attention is trained: the same recurrence as transformers' reference."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from transformers import AutoModelForCausalLM  # noqa: E402
from transformers.models.qwen3_next import modeling_qwen3_next  # noqa: E402

from radmoe_lab.delta_rule import chunked, matrix_products, unit_lower_inverse  # noqa: E402
from radmoe_lab.models import model_named  # noqa: E402

REFERENCE = modeling_qwen3_next.torch_chunk_gated_delta_rule


def _inputs(length: int, seed: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    shape = (2, length, 2)
    tensors = {name: torch.randn(*shape, 24, generator=draw) for name in ("query", "key", "value")}
    tensors["g"] = -torch.rand(shape, generator=draw)
    tensors["beta"] = torch.rand(shape, generator=draw)
    return {name: tensor.requires_grad_() for name, tensor in tensors.items()}


@pytest.mark.parametrize("length", [1, 17, 64, 150])
def test_outputs_and_gradients_are_those_of_the_reference(length: int) -> None:
    ours, theirs = _inputs(length, 0), _inputs(length, 0)
    out, _ = chunked(**ours, use_qk_l2norm_in_kernel=True)
    expected, _ = REFERENCE(**theirs, use_qk_l2norm_in_kernel=True)
    assert torch.allclose(out, expected, atol=1e-5)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    for name in ours:
        assert torch.allclose(ours[name].grad, theirs[name].grad, atol=1e-4), name


def test_a_head_of_queries_and_keys_serves_consecutive_heads_of_values() -> None:
    given = _inputs(20, 0)
    few = given | {name: given[name][:, :, :1] for name in ("query", "key")}
    wide = few | {name: few[name].repeat_interleave(2, dim=2) for name in ("query", "key")}
    out, _ = chunked(**few, use_qk_l2norm_in_kernel=True)
    assert torch.allclose(out, REFERENCE(**wide, use_qk_l2norm_in_kernel=True)[0], atol=1e-5)


def test_the_hardest_systems_are_inverted_to_many_digits() -> None:
    """Equal keys that are never forgotten give the matrix of ones, whose powers grow fastest."""
    lower = torch.ones(64, 64).tril(-1)
    product = unit_lower_inverse(lower) @ (lower + torch.eye(64))
    assert torch.allclose(product, torch.eye(64), atol=1e-2)
    assert torch.allclose(unit_lower_inverse(lower), torch.linalg.inv(lower + torch.eye(64)), atol=1e-2)


def test_a_state_is_refused_because_training_has_none() -> None:
    with pytest.raises(ValueError, match="use_cache=False"):
        chunked(**_inputs(4, 0), output_final_state=True)


def test_a_model_uses_it_for_a_while_and_gives_the_same_logits() -> None:
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(model_named("lab-next").config(tiny=True)).eval()
    ids = torch.randint(0, 800, (2, 70), generator=torch.Generator().manual_seed(0))
    stood_there = modeling_qwen3_next.torch_chunk_gated_delta_rule  # the reference, or what an engine put around it
    with torch.no_grad():
        before = network(input_ids=ids, use_cache=False).logits
        with matrix_products(network):
            assert modeling_qwen3_next.torch_chunk_gated_delta_rule is chunked
            after = network(input_ids=ids, use_cache=False).logits
    assert modeling_qwen3_next.torch_chunk_gated_delta_rule is stood_there
    assert torch.allclose(before, after, atol=1e-4)
