"""Heads of queries and keys that serve several heads of values."""

from __future__ import annotations

from torch import Tensor


def for_every_head(x: Tensor, heads: int) -> Tensor:
    """Queries or keys [B, T, H, K] for `heads` heads of values: each is repeated for the consecutive heads that it serves.

    Up to 5.22 transformers repeats them before it calls the gated delta rule, from 5.23 on the rule does.
    """
    shared = heads // x.shape[2]
    return x if shared == 1 else x.repeat_interleave(shared, dim=2)
