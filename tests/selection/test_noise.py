"""A pick within numeric noise is one that a second pass may change, and no other is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from radmoe import select
from radmoe.errors import InputError
from radmoe.types import Rollout, RolloutGroup, RouterShape
from radmoe_lab import planted


@pytest.fixture(scope="module")
def groups() -> list[RolloutGroup]:
    recipe = planted.Planted(RouterShape(3, 8, 4), problems=12, rollouts=12, tokens=60, kind="math")
    return [made.group for made in planted.groups(recipe)]


def moved(group: RolloutGroup, rng: np.random.Generator, scale: float) -> RolloutGroup:
    """The group with weights that a second pass has computed a little differently."""
    rollouts = []
    for rollout in group.rollouts:
        assert isinstance(rollout, Rollout)
        assert rollout.weights is not None
        weights = rollout.weights.astype(np.float32) * np.exp(scale * rng.standard_normal(rollout.weights.shape))
        rollouts.append(replace(rollout, weights=(weights / weights.sum(-1, keepdims=True)).astype(np.float16)))
    return replace(group, rollouts=rollouts)


def test_a_pick_that_a_second_pass_changes_was_within_its_noise(groups: list[RolloutGroup]) -> None:
    rng = np.random.default_rng(0)
    changed = safe = 0
    for group in groups * 4:
        first, second = select(group), select(moved(group, rng, 0.1))
        noise = float(np.nanmax(second.density - first.density) - np.nanmin(second.density - first.density))
        if first.index != second.index:
            changed += 1
            assert first.with_noise(noise * 1.001).within_noise
        safe += first.with_noise(noise).within_noise is False
    assert changed
    assert safe


def test_within_noise_means_that_another_density_is_nearer_than_the_noise(groups: list[RolloutGroup]) -> None:
    pick = select(groups[0])
    second, first = np.sort(pick.density[~np.isnan(pick.density)])[-2:]
    assert pick.with_noise(float(first - second) * 1.01).within_noise is True
    assert pick.with_noise(float(first - second) * 0.99).within_noise is False
    assert pick.with_noise(0.0).within_noise is False
    marked = pick.with_noise(1.0)
    assert "within numeric noise" in repr(marked)
    assert (marked.to_dict()["noise"], marked.to_dict()["within_noise"]) == (1.0, True)


def test_nothing_is_said_where_nothing_was_measured_or_the_score_is_no_density(groups: list[RolloutGroup]) -> None:
    pick = select(groups[0])
    assert (pick.noise, pick.within_noise) == (None, None)
    assert "noise" not in repr(pick)
    alone = replace(groups[0], rollouts=groups[0].rollouts[:1], rollout_indices=None)
    assert select(alone).with_noise(0.5).within_noise is None
    assert select(groups[0], preset="best").with_noise(0.5).within_noise is None  # ranks


@pytest.mark.parametrize("noise", [-0.1, 1.5, float("nan"), float("inf")])
def test_a_noise_that_is_no_difference_of_densities_is_refused(groups: list[RolloutGroup], noise: float) -> None:
    with pytest.raises(InputError, match="a difference of densities from 0 to 1"):
        select(groups[0]).with_noise(noise)
