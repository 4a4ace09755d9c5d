"""How sure a pick is: monotone in what it is made of, bound to the model it is for, and plain about what it cannot know."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.certainty import (
    FEATURES,
    SHELF,
    Calibration,
    Dense,
    Fit,
    features,
    load_calibration,
    shipped,
    sure_ranks,
)
from radmoe.errors import InputError
from radmoe.lab import planted
from radmoe.lab.planted import Planted
from radmoe.selector import FUSIONS, select
from radmoe.types import RolloutGroup, RouterShape, Selection

WIDTH = len(FEATURES)
DENSE = Dense(0.5, 10, 3)
FIT = Fit(0.2, (1.0,) * WIDTH, (0.0,) * WIDTH, (1.0,) * WIDTH, 30, 20, (8, 16), DENSE)
OURS = Calibration("m", "a" * 64, {"k": 3}, {"math": FIT}, ("sum",))


@cache
def groups() -> tuple[RolloutGroup, ...]:
    recipe = Planted(problems=4, rollouts=10, tokens=40, shape=RouterShape(5, 16, 3))
    return tuple(made.group for made in planted.groups(recipe))


finite = st.floats(-50, 50, allow_nan=False)


@settings(max_examples=60)
@given(
    weights=st.lists(st.floats(0, 20), min_size=WIDTH, max_size=WIDTH),
    means=st.lists(finite, min_size=WIDTH, max_size=WIDTH),
    values=st.lists(finite, min_size=WIDTH, max_size=WIDTH),
    more=st.lists(st.floats(0, 50), min_size=WIDTH, max_size=WIDTH),
)
def test_more_of_a_feature_never_lowers_the_probability(
    weights: list[float], means: list[float], values: list[float], more: list[float]
) -> None:
    fit = Fit(0.0, tuple(weights), tuple(means), (2.0,) * WIDTH, 30, 20, (8, 16), DENSE)
    low, high = fit.probability(np.array(values)), fit.probability(np.array(values) + more)
    assert 0 <= low <= high + 1e-12 <= 1 + 1e-12


@pytest.mark.parametrize("confidence", [None, *FUSIONS])
def test_features_come_from_the_densities_and_basins_of_a_selection(confidence: str | None) -> None:
    for group in groups():
        s = select(group, confidence=confidence, window=16)
        density, agreement, margin, share, rollouts = features(s)
        scored = np.flatnonzero(~np.isnan(s.density))
        assert density == pytest.approx(s.density[s.index] / s.k)
        assert agreement == pytest.approx(np.mean([s.density[i] / s.k for i in scored]))
        assert share == len(s.basin) / len(scored)
        assert 2**rollouts == pytest.approx(len(scored))
        if confidence is None and not np.isnan(s.margin):
            assert margin == pytest.approx(s.margin / s.k)


def test_a_pick_without_a_rival_basin_has_its_whole_density_for_margin() -> None:
    group = groups()[0]
    i = int(np.flatnonzero(select(group).located)[0])
    same = RolloutGroup("p", [group.rollouts[i]] * 6, group.shape, group.vocab, "math")
    density, agreement, margin, share, _ = features(select(same))
    assert (density, agreement, margin, share) == (1.0, 1.0, 1.0, 1.0)


def test_a_calibration_selects_in_its_own_way_and_abstains_below_a_probability() -> None:
    for group in groups():
        plain = select(group, k=3)
        ours = OURS.select(group)
        assert ours.index == plain.index
        assert ours.probability == FIT.probability(features(plain))
        assert OURS.select(group, abstain_below=0.0).index == plain.index
        cautious = OURS.select(group, abstain_below=1.0)
        assert cautious.abstained
        assert cautious.rollout_index is None
        assert cautious.probability == ours.probability
    with pytest.raises(InputError, match=r"a probability from 0 to 1, got 1\.5"):
        OURS.select(groups()[0], abstain_below=1.5)


def nothing() -> Selection:
    group = groups()[0]
    return select(RolloutGroup("p", group.rollouts[:1], group.shape, group.vocab, "math"))


def test_a_selection_that_abstained_has_no_probability() -> None:
    assert OURS.probability(nothing()) is None
    assert OURS.judge(nothing()).probability is None
    assert not OURS.dense(nothing())
    with pytest.raises(InputError, match="has no pick to be sure of"):
        features(nothing())


def test_another_kind_is_refused_by_name() -> None:
    code = Planted(problems=1, rollouts=6, tokens=40, kind="code", shape=RouterShape(5, 16, 3))
    (made,) = planted.groups(code)
    with pytest.raises(InputError, match="is for math, the pick is of kind code: fit one"):
        OURS.select(made.group)


@pytest.mark.parametrize(
    ("checkpoints", "note"),
    [
        (["a" * 64], ""),
        ([None], "has the same name"),
        (["a" * 64, None], "has the same name"),
        ([], "has the same name"),
    ],
)
def test_the_weights_are_compared_where_they_are_known(checkpoints: list[str | None], note: str) -> None:
    assert OURS.check_model("m", checkpoints).endswith(note)
    assert bool(OURS.check_model("m", checkpoints)) == bool(note)


def test_other_weights_are_refused() -> None:
    with pytest.raises(InputError, match=r"fitted for m \(aaaaaaaaaaaa\), the rollouts are of m \(bbbbbbbbbbbb\)"):
        OURS.check_model("m", ["b" * 64])
    assert "is called other" in OURS.check_model("other", [None])


def test_a_calibration_that_was_written_reads_back_the_same(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(OURS.to_json()))
    assert load_calibration(file) == OURS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "is no calibration"),
        ({"version": 2}, "of version 2"),
        ({"features": ["density"]}, "other features"),
        ({"kinds": {}}, "unknown kinds or options, or none"),
        ({"kinds": {"prose": OURS.to_json()["kinds"]["math"]}}, "unknown kinds"),
        ({"kinds": {"math": {}}}, "cannot be read"),
        ({"kinds": {"math": OURS.to_json()["kinds"]["math"] | {"weights": [1, 2, 3, 4, -1]}}}, "weights of 0 or more"),
        ({"kinds": {"math": OURS.to_json()["kinds"]["math"] | {"scales": [1, 1, 1, 1, 0]}}}, "scales above 0"),
        ({"kinds": {"math": OURS.to_json()["kinds"]["math"] | {"means": [1, float("nan"), 1, 1, 1]}}}, "5 finite"),
        ({"options": {"seed": 3}}, "unknown kinds or options"),
        ({"checkpoint": 7}, "the checkpoint of this calibration is 7"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused_in_one_line(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(OURS.to_json() | change))
    with pytest.raises(InputError, match=message) as raised:
        load_calibration(file)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_are_missing_or_not_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the calibration"):
        load_calibration(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        load_calibration(tmp_path / "text.json")


def test_a_shipped_calibration_is_found_by_the_fingerprint_of_its_checkpoint() -> None:
    assert shipped(None) is None
    assert shipped("0" * 64) is None
    assert shipped("../certainty") is None
    for file in SHELF.glob("*.json"):
        found = shipped(file.stem)
        assert found is not None
        assert found.checkpoint == file.stem


def test_ranks_put_the_densest_pick_of_a_kind_first_and_leave_abstentions_out() -> None:
    selections = [*(select(group) for group in groups()), nothing()]
    ranks = sure_ranks(selections)
    assert ranks[-1] is None
    densities = [features(selection)[0] for selection in selections[:-1]]
    assert sorted(range(4), key=lambda i: -densities[i]) == sorted(range(4), key=lambda i: ranks[i] or 0)
    assert sorted(rank for rank in ranks if rank is not None) == [1, 2, 3, 4]


def test_the_share_of_dense_picks_that_were_wrong_comes_with_its_interval() -> None:
    # Wilson's interval for 3 of 10, by statsmodels 0.14 proportion_confint(3, 10, method="wilson"): 0.1078, 0.6032
    assert DENSE.interval == pytest.approx((0.1078, 0.6032), abs=1e-4)
    assert "of the 10 graded picks of mean similarity 0.500 or more, 3 were wrong (30% [11, 60])" in str(DENSE)
    assert Dense(0.5, 4, 0).interval[0] == 0
