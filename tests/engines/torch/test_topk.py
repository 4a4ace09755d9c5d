"""The largest of every row are torch's."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.engines.torch.topk import largest


@given(st.integers(1, 5), st.integers(1, 60), st.integers(0, 999), st.booleans())
@settings(deadline=None)  # the first call compiles
def test_the_largest_are_topk_s(rows: int, words: int, seed: int, ties: bool) -> None:
    values = torch.randn(rows, words, generator=torch.Generator().manual_seed(seed))
    values = values.round() if ties else values
    count = 1 + seed % words
    assert torch.equal(largest(values, count), values.topk(count).values)


def test_other_layouts_and_types_are_taken_too() -> None:
    values = torch.randn(6, 8)
    assert torch.equal(largest(values.T, 3), values.T.topk(3).values)
    assert torch.equal(largest(values.double(), 3), values.double().topk(3).values)
    values[0, 2] = -torch.inf
    assert largest(values, 8)[0, -1] == -torch.inf
