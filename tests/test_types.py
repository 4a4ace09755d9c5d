"""What a rollout, a group and a router refuse to be."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from radmoe.errors import InputError, RolloutError
from radmoe.pool import open_pool
from radmoe.selection.selector import select
from radmoe.types import SELECTION_KEYS, Rollout, RolloutGroup, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup


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


# -- what a reader sees -----------------------------------------------------------------------------------------------

CONFIG = {"model_type": "qwen3_moe", "num_hidden_layers": 6, "num_experts": 32, "num_experts_per_tok": 8}


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (CONFIG, (6, 32, 8)),
        (CONFIG | {"decoder_sparse_step": 2}, (3, 32, 8)),
        (CONFIG | {"mlp_only_layers": [0, 5]}, (4, 32, 8)),
        ({"text_config": CONFIG | {"first_k_dense_replace": 1}}, (5, 32, 8)),
        (SimpleNamespace(num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2), (2, 4, 2)),
    ],
)
def test_a_router_follows_from_a_configuration(config: Any, shape: tuple[int, int, int], tmp_path: Path) -> None:
    assert RouterShape.from_config(config) == RouterShape(*shape)
    if isinstance(config, dict):
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert RouterShape.from_config(tmp_path) == RouterShape.from_config(str(tmp_path / "config.json"))
        assert RouterShape.from_config(tmp_path) == RouterShape(*shape)


def test_a_configuration_without_a_router_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model_type 'llama'\) has no router"):
        RouterShape.from_config({"model_type": "llama", "num_hidden_layers": 2})
    with pytest.raises(InputError, match=r"cannot read .*config.json"):
        RouterShape.from_config(tmp_path / "config.json")


def test_groups_pools_and_selections_fit_on_a_line(made: list[PlantedGroup], shared_pool: Path) -> None:
    group, pool = made[0].group, open_pool(shared_pool)
    pick, nothing = select(group), select(replace(group, rollouts=group.rollouts[:1], rollout_indices=None))
    for thing in (group, pool, pick, nothing):
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 200
        assert thing._repr_html_().startswith("<table><caption>")
    assert f"rollout {pick.rollout_index} of {len(group)}: density " in repr(pick)
    assert repr(nothing).startswith("Selection(abstained: ")
    assert "<script>" not in replace(group, problem_id="<script>")._repr_html_()


def test_a_selection_has_its_text_and_one_form_in_json(made: list[PlantedGroup]) -> None:
    group = made[0].group
    pick, nothing = select(group), select(replace(group, rollouts=group.rollouts[:1], rollout_indices=None))
    assert pick.text == made[0].texts[pick.index]  # type: ignore[index]
    assert nothing.text is None
    for one in (pick, nothing):
        body = json.loads(json.dumps(one.to_dict(), allow_nan=False))
        assert tuple(body) == SELECTION_KEYS
        page = (Path(__file__).parents[1] / "docs" / "readouts.md").read_text().partition("`Selection.to_dict()` is")[2]
        assert all(f"`{key}`" in page for key in body)
    assert nothing.to_dict()["density"] == [None]


def test_a_pool_is_a_data_frame(shared_pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = open_pool(shared_pool)
    frame = pool.to_pandas()
    assert len(frame) == len(pool)
    assert set(frame["problem_id"]) == set(pool.problems)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        pool.to_pandas()
