"""Attention with sinks equals gpt-oss's own, and is what the engine gives gpt-oss."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.masking_utils import eager_mask, sdpa_mask, sliding_window_causal_mask_function
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

import tiny_moe
from radmoe.engines.torch.kv_cache import ATTENTION, attend


def both(new: int, columns: int, groups: int, dtype: torch.dtype, **mask: object) -> tuple[torch.Tensor, torch.Tensor]:
    """What `attend` and transformers' reference make of the same random inputs, each with its own kind of mask."""
    generator = torch.Generator().manual_seed(new * 1000 + columns)
    batch, shared, dim = 3, 2, 16

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    module = SimpleNamespace(sinks=normal(shared * groups), num_key_value_groups=groups, training=False)
    query, key = normal(batch, shared * groups, new, dim), normal(batch, shared, columns + 7, dim)[:, :, 5:-2]
    value = normal(batch, shared, columns, dim)
    sizes = {"batch_size": batch, "q_length": new, "kv_length": columns, "q_offset": columns - new, **mask}
    mine, _ = attend(module, query, key, value, sdpa_mask(**sizes), scaling=0.3, s_aux=module.sinks, dropout=0.0)
    wanted, _ = eager_attention_forward(module, query, key, value, eager_mask(**sizes, dtype=dtype), scaling=0.3)
    return mine, wanted


@given(
    new=st.integers(1, 9),
    before=st.integers(0, 20),
    groups=st.sampled_from([1, 3]),
    window=st.sampled_from([None, 4]),
    hidden=st.integers(0, 12),
)
def test_attention_with_sinks_is_the_reference_s(
    new: int, before: int, groups: int, window: int | None, hidden: int
) -> None:
    """One new token or several, a prefill, sliding windows, and rows of which the first columns are hidden."""
    columns = before + new
    seen = torch.ones(3, columns, dtype=torch.bool)
    seen[1, : min(hidden, before)] = False
    mask: dict[str, object] = {"attention_mask": seen if hidden else None}
    if window is not None:
        mask |= {"mask_function": sliding_window_causal_mask_function(window), "local_size": window}
    mine, wanted = both(new, columns, groups, torch.float32, **mask)
    assert mine.shape == wanted.shape
    assert torch.allclose(mine, wanted, atol=2e-6)


@pytest.mark.parametrize("new", [1, 5])
def test_half_precision_is_as_close_as_its_rounding(new: int) -> None:
    mine, wanted = both(new, 20, 3, torch.bfloat16)
    assert mine.dtype == torch.bfloat16
    assert torch.allclose(mine.float(), wanted.float(), atol=2e-2)


def test_a_row_that_sees_no_key_attends_to_its_sink_alone() -> None:
    query, key = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 6, 8)
    mask = torch.tensor([True, False])[:, None, None, None].expand(2, 1, 1, 6)
    out, _ = attend(SimpleNamespace(), query, key, key, mask, scaling=1.0, s_aux=torch.zeros(4))
    assert out[0].isfinite().all()
    assert torch.equal(out[1], torch.zeros(1, 4, 8))


@pytest.mark.parametrize("family", ["gpt-oss", "qwen3-moe"])
def test_the_engine_takes_it_for_families_with_and_without_sinks(family: str) -> None:
    assert tiny_moe.engine(family).model.config._attn_implementation == ATTENTION
