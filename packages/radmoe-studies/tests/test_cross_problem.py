"""Leakage in crowds whose neighbours are known."""

from __future__ import annotations

import numpy as np

from planted_panels import similarity
from radmoe_studies.cross_problem import Crowd, embed, leakage, of_like_length


def crowd(labels: list[int], lengths: list[int] | None = None, signal: float = 0.5) -> Crowd:
    """A crowd in which rollouts of one label are alike."""
    own = np.array(labels)
    S = (0.2 + signal * (own[:, None] == own[None, :])).astype(np.float32)
    np.fill_diagonal(S, 1.0)
    return Crowd(S, np.zeros_like(own), own, np.array(lengths or [100] * len(own)))


def test_labels_that_are_told_apart_leak_nothing_and_larger_neighbourhoods_leak_what_they_must() -> None:
    one = crowd([0, 0, 0, 1, 1, 1])
    nearest, chance = leakage(one, one.problem, 1)
    assert nearest.tolist() == [0.0] * 6
    assert np.allclose(chance, 3 / 5)
    assert np.allclose(leakage(one, one.problem, 5)[0], 3 / 5)


def test_a_rollout_that_has_no_choice_says_nothing() -> None:
    one = crowd([0, 0, 1])
    leaked, chance = leakage(one, one.problem, 1)
    assert np.isnan(leaked[2])  # nobody else of its label
    assert np.isfinite(leaked[:2]).all()
    assert np.array_equal(np.isnan(leaked), np.isnan(chance))


def test_only_those_allowed_are_neighbours() -> None:
    one = crowd([0, 0, 1, 1], [100, 200, 105, 205])
    alike = of_like_length(one, 0.1)
    assert alike.tolist()[0] == [True, False, True, False]
    assert np.isnan(leakage(one, one.problem, 1, alike)[0]).all()  # of like length there are strangers alone
    wide = of_like_length(one, 2.0)
    assert leakage(one, one.problem, 1, wide)[0].tolist() == [0.0] * 4


def test_the_map_keeps_together_what_is_alike() -> None:
    labels = np.repeat([0, 1, 2], 20)
    at = embed(similarity(labels, 0.4, np.random.default_rng(0)), 0)
    apart = np.linalg.norm(at[:, None] - at[None, :], axis=2) + 1e9 * np.eye(60)
    assert np.mean(labels[np.argmin(apart, axis=1)] == labels) > 0.9
    assert np.array_equal(at, embed(similarity(labels, 0.4, np.random.default_rng(0)), 0))
