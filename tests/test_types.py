"""What a rollout, a group and a router refuse to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from radmoe.errors import InputError, RolloutError
from radmoe.types import Rollout, RolloutGroup, RouterShape
from radmoe_lab import planted


def arrays(**change: Any) -> dict[str, Any]:
    ids = np.tile(np.array([0, 2], np.int16), (4, 3, 1))
    return {"token_ids": np.arange(4), "expert_ids": ids, "weights": np.full((4, 3, 2), 0.5)} | change


def broken(at: tuple[int, int, int], value: float) -> np.ndarray:
    weights = np.full((4, 3, 2), 0.5)
    weights[at] = value
    return weights


def test_arrays_take_the_types_of_the_format() -> None:
    rollout = Rollout(**arrays(sampled_logprobs=[-1.0] * 4, topk_logprobs=np.full((4, 5), -2.0)))
    assert (rollout.token_ids.dtype, rollout.expert_ids.dtype, rollout.weights.dtype) == (
        np.int32,
        np.int16,
        np.float16,
    )
    assert (rollout.sampled_logprobs.dtype, rollout.topk_logprobs.dtype) == (np.float32, np.float32)
    assert len(rollout) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": np.arange(0), "expert_ids": np.empty((0, 3, 2), np.int16), "weights": None}, "zero tokens"),
        ({"token_ids": np.arange(5)}, "expert_ids have 4 rows for 5 tokens"),
        ({"token_ids": np.arange(4.0)}, "token_ids must be integers, got float64"),
        ({"token_ids": -np.arange(4)}, r"token_ids range over \[-3, 0\]"),
        ({"expert_ids": np.zeros((4, 3), int)}, r"expert_ids must have 3 dimension\(s\), got shape \(4, 3\)"),
        ({"expert_ids": np.full((4, 3, 2), 40000)}, "do not fit int16"),
        ({"weights": np.full((4, 3, 1), 1.0)}, r"weights have shape \(4, 3, 1\), expert_ids \(4, 3, 2\)"),
        ({"weights": np.ones((4, 3, 2), int)}, "must be floating point"),
        ({"weights": broken((1, 2, 0), np.nan)}, r"NaN at \[token, layer, k\] = \[1, 2, 0\]"),
        ({"weights": broken((3, 0, 1), -0.5)}, r"negative at \[token, layer, k\] = \[3, 0, 1\]"),
        ({"weights": broken((2, 1, 1), 2.0)}, r"\[token, layer\] = \[2, 1\] sum to 2.5, not 1: divide"),
        ({"weights": broken((2, 1, 1), np.inf)}, "sum to inf, not 1"),
        ({"sampled_logprobs": np.zeros(3)}, "sampled_logprobs have 3 rows for 4 tokens"),
        ({"sampled_logprobs": np.full(4, np.nan)}, "sampled_logprobs are NaN"),
        ({"topk_logprobs": np.zeros(4)}, r"topk_logprobs must be floats with 2 dimension\(s\)"),
    ],
)
def test_contradictory_arrays_are_refused_with_the_value_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RolloutError, match=message):
        Rollout(**arrays(**change))


def test_float16_and_bfloat16_rounding_is_no_fault() -> None:
    exact = np.random.default_rng(0).dirichlet(np.ones(8), (50, 4))
    ids = np.tile(np.arange(8, dtype=np.int16), (50, 4, 1))
    bfloat = (exact.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    for weights in (exact.astype(np.float16), bfloat):
        Rollout(np.arange(50), ids, weights)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [((0, 8, 2), "layers must be a positive"), ((1, 8, 9), "top_k=9 exceeds experts=8"), ((1, 40000, 2), "int16")],
)
def test_impossible_routers_are_refused(numbers: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RouterShape(*numbers)


def test_a_group_checks_every_rollout_against_its_router() -> None:
    rollout = Rollout(**arrays())
    RolloutGroup("p", [rollout], RouterShape(3, 3, 2), planted.vocab())
    small = Rollout(**arrays(expert_ids=np.tile(np.array([0, 1]), (4, 3, 1))))
    with pytest.raises(RolloutError, match=r"rollout 1 of problem 'p' hold 2 .* outside \[0, 2\)"):
        RolloutGroup("p", [small, rollout], RouterShape(3, 2, 2), planted.vocab())
    with pytest.raises(RolloutError, match="3 layers, top-2; the router is 4x3 top-2"):
        RolloutGroup("p", [rollout], RouterShape(4, 3, 2), planted.vocab())
