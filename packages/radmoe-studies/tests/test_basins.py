"""Purities, densities and picks of many problems at once are those of one problem at a time."""

from __future__ import annotations

import numpy as np

from planted_panels import panel
from radmoe.selection.kernels import knn_density
from radmoe_studies.basins import densest, densities, majority_label, purities
from radmoe_studies.evidence import Request
from radmoe_studies.picks import highest
from reference_purity import knn_purity

REQUEST = Request("delimiter@16")
PANEL = panel(problems=12, n=16, requests=[REQUEST], located=0.7, right=[0.0, 1.0, *[0.5] * 10])
READ = PANEL.read(REQUEST)


def test_purities_are_those_of_one_problem_at_a_time() -> None:
    for k in (1, 8, 40):
        ours = purities(READ.values, READ.located, PANEL.answer, k)
        for row, inside in enumerate(READ.located):
            S = np.ascontiguousarray(READ.values[row][np.ix_(inside, inside)])
            alone = knn_purity(S, [str(a) for a in PANEL.answer[row, inside]], k)
            assert (alone is None and np.isnan(ours[row])) or np.isclose(ours[row], alone or 0.0)
    assert np.isnan(purities(READ.values, READ.located, PANEL.answer)[1])  # everyone is right: one label


def test_the_plug_in_chance_is_a_little_larger() -> None:
    fair = purities(READ.values, READ.located, PANEL.answer)
    plug_in = purities(READ.values, READ.located, PANEL.answer, chance="plug-in")
    known = np.isfinite(fair) & (fair < 1)
    assert (plug_in[known] < fair[known]).all()
    assert (fair[known] - plug_in[known]).max() < 0.2


def test_densities_and_picks_are_those_of_selection() -> None:
    density = densities(READ.values, READ.located, PANEL.setting.k)
    for row, inside in enumerate(READ.located):
        S = np.ascontiguousarray(READ.values[row][np.ix_(inside, inside)])
        assert np.allclose(density[row, inside], knn_density(S, PANEL.setting.k))
        assert np.isnan(density[row, ~inside]).all()
    assert np.array_equal(densest(READ.values, READ.located, PANEL.setting.k), highest(PANEL.density(REQUEST)))


def test_a_tie_goes_to_the_lowest_index_and_a_lone_rollout_has_no_density() -> None:
    S = np.full((2, 4, 4), 0.5, np.float32)
    inside = np.array([[False, True, True, True], [False, False, True, False]])
    assert densest(S, inside, 10).tolist() == [1, -1]
    assert np.isnan(purities(S, inside, np.arange(8).reshape(2, 4))[1])


def test_the_majority_is_counted_inside_the_mask() -> None:
    one = panel(problems=1, n=6)
    one.answer[0] = [0, 0, 0, 1, 1, 2]
    inside = np.array([[True, False, False, True, True, True]])
    assert majority_label(one, inside).tolist() == [[0, 0, 0, 1, 1, 0]]
