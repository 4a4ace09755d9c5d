"""The delta rule's step equals transformers' reference, state included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.qwen3_next import modeling_qwen3_next

from radmoe.errors import KernelError
from radmoe_lab.inference.delta_step import stepwise

REFERENCE = modeling_qwen3_next.torch_recurrent_gated_delta_rule
REFERENCE = getattr(REFERENCE, "reference", REFERENCE)  # an engine loaded earlier in this process may have wrapped it


def inputs(tokens: int = 1, dtype: torch.dtype = torch.float32) -> tuple[list[torch.Tensor], dict[str, Any]]:
    torch.manual_seed(0)
    batch, heads, k, v = 5, 2, 16, 24
    arrays = [torch.randn(batch, tokens, heads, size, dtype=dtype) for size in (k, k, v)]
    options = {
        "g": -torch.rand(batch, tokens, heads),
        "beta": torch.rand(batch, tokens, heads),
        "initial_state": torch.randn(batch, heads, k, v),
        "output_final_state": True,
        "use_qk_l2norm_in_kernel": True,
    }
    return arrays, options


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("norm", [True, False])
def test_a_step_is_the_reference_s(dtype: torch.dtype, norm: bool) -> None:
    arrays, options = inputs(dtype=dtype)
    options["use_qk_l2norm_in_kernel"] = norm
    wanted, state = REFERENCE(*arrays, **options)
    ours = options | {"initial_state": options["initial_state"].clone()}
    found, after = stepwise(REFERENCE)(*arrays, **ours)
    assert found.dtype == wanted.dtype == dtype
    assert torch.allclose(found.float(), wanted.float(), atol=1e-5 if dtype == torch.float32 else 3e-2)
    assert torch.allclose(after, state, atol=1e-5)


def test_a_head_of_queries_and_keys_serves_consecutive_heads_of_values() -> None:
    """As transformers 5.23 calls the rule; before, it repeated the heads itself, which the reference is given here."""
    (query, key, value), options = inputs()
    wide = [x.repeat_interleave(3, dim=2) for x in (query, key, value)]
    options |= {name: options[name].repeat_interleave(3, dim=-1) for name in ("g", "beta")}
    options["initial_state"] = torch.randn(5, 6, 16, 24)
    wanted, state = REFERENCE(*wide, **options)
    ours = options | {"initial_state": options["initial_state"].clone()}
    found, after = stepwise(REFERENCE)(query, key, wide[2], **ours)
    assert torch.allclose(found, wanted, atol=1e-5)
    assert torch.allclose(after, state, atol=1e-5)


def test_the_state_is_changed_in_place_and_kept_from_whom_did_not_ask() -> None:
    arrays, options = inputs()
    before = options["initial_state"].clone()
    _, state = stepwise(REFERENCE)(*arrays, **options | {"output_final_state": False})
    assert state is None
    assert not torch.equal(options["initial_state"], before)


def test_threads_share_the_states_and_change_no_bit() -> None:
    arrays, options = inputs()
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            mine = options | {"initial_state": options["initial_state"].clone()}
            found.append(stepwise(REFERENCE)(*arrays, **mine))
    finally:
        torch.set_num_threads(before)
    for one, three in zip(*found, strict=True):
        assert torch.equal(one, three)


@pytest.mark.parametrize("change", [{"initial_state": None}, {"initial_state": "half"}, {"tokens": 3}])
def test_what_it_does_not_do_goes_to_the_reference(change: dict[str, Any]) -> None:
    arrays, options = inputs(change.get("tokens", 1))
    if "initial_state" in change:
        state = options["initial_state"]
        options["initial_state"] = (
            None if change["initial_state"] is None else state.transpose(2, 3).contiguous().transpose(2, 3)
        )
    called = []

    def reference(*args: Any, **kwargs: Any) -> Any:
        called.append(True)
        return REFERENCE(*args, **kwargs)

    found, _ = stepwise(reference)(*arrays, **options)
    assert called == [True]
    assert torch.equal(found, REFERENCE(*arrays, **options)[0])


@pytest.mark.parametrize("name", ["g", "beta", "initial_state"])
def test_a_changed_head_count_is_an_error_and_no_other_memory_is_read(name: str) -> None:
    arrays, options = inputs()
    axis = 1 if name == "initial_state" else 2
    options[name] = options[name].repeat_interleave(2, dim=axis)
    with pytest.raises(KernelError, match=r"has shape .* was expected"):
        stepwise(REFERENCE)(*arrays, **options)
