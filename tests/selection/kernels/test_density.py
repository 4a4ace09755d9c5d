"""Which densities are tied: one rule for the selector and for every study that picks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graded_groups import problem_of
from radmoe.selection.kernels import TIE, levels, tied
from radmoe.selection.readout import Reading
from radmoe.selection.rule import Rule
from radmoe.selection.selector import choose
from radmoe_studies import basins, subcohorts
from radmoe_studies.arrivals import by_ranks

STEPS = np.array([0.5, 0.5 + 0.8 * TIE, 0.5 + 1.6 * TIE], np.float32)  # each is tied with the next; the ends are not


def pairs_of(values: np.ndarray) -> np.ndarray:
    """Rollouts 2i and 2i + 1 are as similar as value i says, and nobody else is: with k=1 these are the densities."""
    S = np.zeros((2 * len(values), 2 * len(values)), np.float32)
    for i, value in enumerate(values):
        S[2 * i, 2 * i + 1] = S[2 * i + 1, 2 * i] = value
    np.fill_diagonal(S, 1.0)
    return S


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(1, 64))
def test_a_level_is_no_wider_than_rounding_and_begins_at_its_highest(places: list[int], k: int) -> None:
    score = 3.0 + np.array(places) * 0.3 * TIE * k
    level = levels(score, k)
    assert sorted(set(level.tolist())) == list(range(level.max() + 1))
    for one in range(level.max() + 1):
        own = score[level == one]
        assert tied(own.max(), own.min(), k)
        if one:
            below = score[level == one - 1].max()
            assert not tied(own.max(), below, k)
            assert below < own.min()


def test_near_ties_do_not_chain() -> None:
    assert levels(STEPS.astype(float), 1).tolist() == [0, 1, 1]
    assert levels(STEPS[:2].astype(float), 1).tolist() == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_selector_and_studies_break_a_tie_alike(reverse: bool) -> None:
    """The lowest density comes first or last; in neither order is it picked, because it is not tied with the highest."""
    S = pairs_of(STEPS[::-1] if reverse else STEPS)
    n, k = len(S), 1
    everyone, order = np.ones(n, bool), np.arange(n)
    reading = Reading(np.zeros((n, 1), np.float32), everyone, (None,) * n)
    group = problem_of(["a"] * n, truth="a").group
    expected = 0 if reverse else 2
    assert choose(group, S, reading, Rule(k=k).settle("math")).index == expected
    assert basins.densest(S[None], everyone[None], k).tolist() == [expected]
    apart = np.where(np.eye(n, dtype=bool), -1.0, S)
    near = np.argsort(-apart, axis=1, kind="stable")[:, : n - 1]
    density = np.zeros(n)
    ranked = np.take_along_axis(S, near, 1).astype(np.float64)
    assert subcohorts.densest(ranked, near, order, everyone, n, k, density) == expected
    assert by_ranks(density, np.zeros(n), order, everyone, n, k) == expected
