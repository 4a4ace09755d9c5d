"""Completions compared: the same rollout up to rounding."""

from __future__ import annotations

import numpy as np

from radmoe.engines.base import Completion


def same(one: Completion, other: Completion) -> bool:
    """Whether tokens, expert sets, text and reason are equal, and log-probabilities up to rounding."""
    return (
        np.array_equal(one.rollout.token_ids, other.rollout.token_ids)
        and np.array_equal(np.sort(one.rollout.expert_ids, -1), np.sort(other.rollout.expert_ids, -1))
        and np.allclose(one.rollout.topk_logprobs, other.rollout.topk_logprobs, atol=1e-3)
        and np.allclose(one.rollout.sampled_logprobs, other.rollout.sampled_logprobs, atol=1e-3)
        and (one.text, one.finish_reason) == (other.text, other.finish_reason)
    )
