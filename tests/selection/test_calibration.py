"""How sure a pick is: monotone in its density, a number only inside of what was fitted, and else a reason."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planted_pools import write_pool
from radmoe.errors import InputError
from radmoe.pool import open_pool
from radmoe.selection import calibration
from radmoe.selection.calibration import (
    SHELF,
    Calibration,
    density_ranks,
    find_calibration,
    load_calibration,
    shelf_name,
    shipped,
)
from radmoe.selection.curves import Curve, Dense, Fit, closeness
from radmoe.selection.origin import Origin, origin_of
from radmoe.selection.rule import Rule
from radmoe.selection.selector import select, similarity
from radmoe.types import Fusion, Rollout, RolloutGroup, RouterShape, Selection
from radmoe_lab import planted
from radmoe_lab.planted import Planted

DENSE = Dense(0.5, 10, 3)
CURVE = Curve(8, 0.2, 1.0, 1.5, 0.5, 0.0, 6.0, DENSE)
FIT = Fit((CURVE, replace(CURVE, rollouts=16, intercept=0.6)), 98, 1.0)
ORIGIN = Origin("m", "a" * 64, "thinking", 0.8, 1.0)
OURS = Calibration(ORIGIN, Rule(preset="paper", k=3), {"math": FIT}, ("sums",), ("sum",))
SHAPE = RouterShape(5, 16, 3)


@cache
def groups(rollouts: int = 10) -> tuple[RolloutGroup, ...]:
    """Groups of so many rollouts, which are all located."""
    recipe = Planted(problems=4, rollouts=2 * rollouts + 4, tokens=40, shape=SHAPE)
    made = [one.group for one in planted.groups(recipe)]
    kept = [[r for r, here in zip(g.rollouts, select(g).located, strict=True) if here][:rollouts] for g in made]
    return tuple(RolloutGroup(g.problem_id, own, g.shape, g.vocab, g.kind) for g, own in zip(made, kept, strict=True))


def unlocated(group: RolloutGroup, count: int) -> RolloutGroup:
    """The same group, where the first rollouts are cut off before their answer."""
    short = [
        type(r)(r.token_ids[:3], r.expert_ids[:3], None if r.weights is None else r.weights[:3])
        for r in group.rollouts[:count]
    ]
    return RolloutGroup("p", [*short, *group.rollouts[count:]], group.shape, group.vocab, "math")


@settings(max_examples=80)
@given(
    slopes=st.lists(st.floats(0, 20), min_size=3, max_size=3),
    intercepts=st.lists(st.floats(-50, 50), min_size=3, max_size=3),
    rollouts=st.integers(8, 64),
    density=st.floats(0, 1),
    more=st.floats(0, 1),
    problems=st.integers(1, 10_000),
)
def test_a_denser_pick_is_never_less_sure_and_none_is_surer_than_the_graded_problems_allow(
    slopes: list[float], intercepts: list[float], rollouts: int, density: float, more: float, problems: int
) -> None:
    curves = [
        replace(CURVE, rollouts=n, slope=b, intercept=a)
        for n, a, b in zip((8, 20, 64), intercepts, slopes, strict=True)
    ]
    fit = Fit(tuple(curves), problems, 1.0)
    low, high = fit.probability(rollouts, density), fit.probability(rollouts, min(1.0, density + more))
    assert 1 / (problems + 2) <= low <= high + 1e-12 <= 1 - 1 / (problems + 2) + 1e-12


@given(rollouts=st.integers(8, 16), density=st.floats(0, 1))
def test_between_two_fitted_numbers_of_rollouts_the_probability_lies_between_theirs(
    rollouts: int, density: float
) -> None:
    ends = sorted(FIT.probability(n, density) for n in (8, 16))
    assert ends[0] - 1e-12 <= FIT.probability(rollouts, density) <= ends[1] + 1e-12


@pytest.mark.parametrize("fusion", [None, *get_args(Fusion)])
def test_the_density_of_a_pick_is_its_mean_similarity_to_its_neighbours(fusion: str | None) -> None:
    for group in groups():
        s = select(group, fusion=fusion, rule=Rule(confidence_window=16))
        assert 0 <= s.density[s.index] <= 1 + 1e-6
    assert closeness(0.9) == pytest.approx(2.302585, abs=1e-6)  # log 10
    assert closeness(1.0) == closeness(0.9995)


def test_a_calibration_selects_in_its_own_way_and_abstains_below_a_probability() -> None:
    for group in groups():
        plain = select(group, k=3)
        ours = OURS.select(group)
        assert ours.index == plain.index
        assert ours.probability == FIT.probability(10, float(plain.density[plain.index]))
        assert ours.probability_reason == ""
        assert OURS.select(group, abstain_below=0.0).index == plain.index
        cautious = OURS.select(group, abstain_below=1.0)
        assert cautious.abstained
        assert cautious.rollout_index is None
        assert cautious.probability == ours.probability
    with pytest.raises(InputError, match=r"a probability from 0 to 1, got 1\.5"):
        OURS.select(groups()[0], abstain_below=1.5)


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (lambda: groups(7)[0], "there are 7 rollouts, and it was fitted for 8 to 16"),
        (lambda: groups(20)[0], "there are 20 rollouts, and it was fitted for 8 to 16"),
        (lambda: unlocated(groups()[0], 3), "70% of the rollouts are located, and it was fitted for 90% or more"),
        (lambda: replace(groups()[0], kind="choice"), "the kind is choice, and it was fitted for math"),
    ],
)
def test_outside_of_what_was_fitted_there_is_no_number_but_a_reason(group: Any, reason: str) -> None:
    calibration = OURS
    made = group()
    if made.kind == "choice":
        selection = replace(select(groups()[0], k=3), kind="choice")
        judged = calibration.judge(selection, made)
    else:
        judged = calibration.select(made)
    assert judged.index is not None  # it is a pick all the same
    assert judged.probability is None
    assert reason in judged.probability_reason
    with pytest.raises(
        InputError, match=r"abstaining below 0\.3 needs a probability, and there is none: outside"
    ) as raised:
        calibration.judge(replace(judged, probability_reason=""), made, abstain_below=0.3)
    assert "\n" not in str(raised.value)


def test_a_density_far_from_the_fitted_ones_has_no_number() -> None:
    group = groups()[0]
    far = replace(OURS, kinds={"math": Fit((replace(CURVE, rollouts=10, low=5.0),), 98, 1.0)})
    assert "the pick's mean similarity is" in far.select(group).probability_reason
    assert far.select(group).probability is None
    assert far.select(group).dense is None
    edge = closeness(float(np.nanmax(select(group, k=3).density)))
    for low, number in ((edge, True), (edge + 0.001, False)):  # there is no number outside the range, however near
        ours = replace(OURS, kinds={"math": Fit((replace(CURVE, rollouts=10, low=low),), 98, 1.0)})
        assert (ours.select(group).probability is not None) == number


def test_curves_take_how_much_all_rollouts_agree_at_their_readout() -> None:
    group = groups()[0]
    marker = replace(OURS, kinds={"math": replace(FIT, evidence="delimiter@marker")})
    plain, ours = OURS.select(group), marker.select(group)
    S, reading = similarity(group, replace(Rule(k=3).settle("math", 10), readout="delimiter@marker"))
    agreeing = float(np.mean([np.sort(np.delete(row, i))[-3:].mean() for i, row in enumerate(S)]))
    assert reading.located.all()
    assert ours.index == plain.index  # the pick is not touched
    assert ours.probability == pytest.approx(FIT.probability(10, agreeing))
    assert ours.probability != plain.probability
    assert ours.dense == (agreeing >= DENSE.density)
    assert Calibration.from_json(json.loads(json.dumps(marker.to_json()))) == marker
    far = replace(
        OURS, kinds={"math": replace(FIT, curves=(replace(CURVE, rollouts=10, low=5.0),), evidence="delimiter@marker")}
    )
    assert "the mean similarity of all rollouts at delimiter@marker is" in far.select(group).probability_reason


def test_rollouts_without_the_rows_that_a_curve_reads_have_no_number() -> None:
    group = groups()[0]
    before = replace(OURS, kinds={"math": replace(FIT, evidence="pre-delim@32")})
    windows = [
        kept(rollout, anchor.start) for rollout, anchor in zip(group.rollouts, select(group).anchors, strict=True)
    ]
    cut = RolloutGroup("p", windows, group.shape, group.vocab, "math")
    assert OURS.select(cut).probability is not None
    ours = before.select(cut)
    assert ours.index is not None
    assert ours.probability is None
    assert "the routing that pre-delim@32 reads was not kept" in ours.probability_reason


def kept(rollout: Rollout, start: int) -> Rollout:
    """The rollout with the routing of its window delimiter@16 alone."""
    rows = np.arange(start, min(start + 16, len(rollout)), dtype=np.int32)
    weights = None if rollout.weights is None else rollout.weights[rows]
    return Rollout(rollout.token_ids, rollout.expert_ids[rows], weights, positions=rows)


def test_one_rollout_in_ten_without_an_answer_breaks_no_number() -> None:
    whole, cut = OURS.select(groups()[0]), OURS.select(unlocated(groups()[0], 1))
    assert cut.probability is not None
    assert whole.probability is not None
    assert abs(cut.probability - whole.probability) < 0.2


def nothing() -> Selection:
    group = groups()[0]
    return select(RolloutGroup("p", group.rollouts[:1], group.shape, group.vocab, "math"))


def test_a_selection_that_abstained_has_no_probability() -> None:
    judged = OURS.judge(nothing(), groups()[0], abstain_below=0.5)
    assert (judged.probability, judged.dense, judged.probability_reason) == (None, None, "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"model": "renamed"}, ""),  # the weights are the same
        ({"checkpoint": "b" * 64}, "fitted for m (aaaaaaaaaaaa), these rollouts are of m (bbbbbbbbbbbb)"),
        ({"checkpoint": None}, "these rollouts are of m (weights not recorded)"),
        ({"style": "instruct"}, "fitted for style thinking, these rollouts have style instruct"),
        ({"style": None}, "these rollouts have style not recorded"),
        ({"temperature": 0.7}, "fitted for temperature 0.8, these rollouts have temperature 0.7"),
        ({"top_p": 0.9}, "fitted for top-p 1, these rollouts have top-p 0.9"),
        (
            {"routing": "all layers without weights"},
            "for routing all layers, these rollouts have routing all layers without weights",
        ),
        ({"adaptive": True}, "these are sampled until the pick was settled"),
    ],
)
def test_a_given_calibration_is_for_rollouts_of_its_own_origin(change: dict[str, Any], reason: str) -> None:
    match = find_calibration(replace(ORIGIN, **change), OURS, rule=OURS.rule)
    assert (match.calibration is OURS) == (not reason)
    assert reason in match.reason
    judged = match.judge(select(groups()[0], k=3), groups()[0])
    assert (judged.probability is None) == bool(reason)
    assert judged.probability_reason == match.reason


def test_where_nobody_recorded_weights_the_names_are_compared() -> None:
    ours = replace(OURS, origin=replace(ORIGIN, checkpoint=None))
    assert find_calibration(replace(ORIGIN, checkpoint=None), ours, rule=OURS.rule).calibration is ours
    other = find_calibration(Origin("other", None, "thinking", 0.8, 1.0), ours, rule=OURS.rule)
    assert "it was fitted for m, these rollouts are of other" in other.reason


def test_a_shipped_calibration_is_found_by_checkpoint_style_sampling_task_and_way_to_select(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "SHELF", tmp_path)
    plain = replace(OURS, rule=Rule(preset="paper"))
    for origin in (ORIGIN, replace(ORIGIN, style="instruct"), replace(ORIGIN, temperature=0.7, top_p=0.9)):
        file = tmp_path / shelf_name(origin)
        file.write_text(json.dumps(replace(plain, origin=origin).to_json()))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "aaaaaaaaaaaaaaaa-instruct-t0.8-p1.json",
        "aaaaaaaaaaaaaaaa-thinking-t0.7-p0.9.json",
        "aaaaaaaaaaaaaaaa-thinking-t0.8-p1.json",
    ]
    assert find_calibration(ORIGIN).calibration == plain
    assert find_calibration(ORIGIN, rule=Rule(preset="paper")).calibration == plain
    assert find_calibration(ORIGIN, rule=Rule(k=10)).calibration == plain  # what the preset has anyway
    for origin in (replace(ORIGIN, temperature=0.7, top_p=0.9), replace(ORIGIN, task="sums")):
        found = find_calibration(origin).calibration
        assert found is not None
        assert found.origin == origin
    for origin, options, reason in (
        (ORIGIN, {"k": 3}, "is for another way to select (--preset paper)"),
        (ORIGIN, {"preset": "best"}, "is for another way to select"),
        (replace(ORIGIN, temperature=0.3), {}, "these rollouts are of m, style thinking, temperature 0.3, top-p 1"),
        (replace(ORIGIN, task="other"), {}, "was fitted on sums, not other"),
        (replace(ORIGIN, checkpoint="b" * 64), {}, "no calibration ships for the weights of m"),
        (replace(ORIGIN, checkpoint="../calibration"), {}, "no calibration ships"),
        (replace(ORIGIN, checkpoint=None), {}, "no calibration ships"),
    ):
        match = find_calibration(origin, rule=Rule(**options))
        assert match.calibration is None
        assert reason in match.reason


def test_the_origin_of_a_pool_is_its_run_record(tmp_path: Path) -> None:
    made = list(planted.groups(Planted(problems=1, rollouts=3, tokens=20, shape=SHAPE)))
    sampled = {"temperature": 0.8, "top_p": 1, "seed": 0}
    for name, record in (("captured", sampled), ("replayed", {"sampled": sampled, "temperature": 3})):
        path = write_pool(
            tmp_path / name, made, style="low", task="sums", sampling=record, provenance={"checkpoint": "a" * 64}
        )
        origin = origin_of(open_pool(path))
        assert origin == Origin("planted", "a" * 64, "low", 0.8, 1.0)
        assert origin.task == "sums"
    strange = {"temperature": "hot", "top_p": [1], "sampled": "x"}
    path = write_pool(tmp_path / "strange", made, sampling=strange, provenance={"checkpoint": ["a"]})
    assert origin_of(open_pool(path)) == Origin("planted")
    bare = origin_of(open_pool(write_pool(tmp_path / "bare", made, sampling={"adaptive": {"min_n": 8}})))
    assert bare == Origin("planted", adaptive=True)


def test_a_calibration_that_was_written_reads_back_the_same(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(OURS.to_json()))
    assert load_calibration(file) == OURS


MATH = json.loads(json.dumps(OURS.to_json()))["kinds"]["math"]


def with_curve(**change: object) -> dict[str, object]:
    return {"kinds": {"math": MATH | {"curves": [MATH["curves"][0] | change]}}}


HOSTILE: dict[str, dict[str, object]] = {
    "a curve of 1e999 rollouts": with_curve(rollouts=math.inf),
    "a curve of 10^4000 rollouts": with_curve(rollouts=10**4000),
    "picks of 1e999": with_curve(dense={"density": 0.5, "picks": math.inf, "wrong": 1}),
    "picks of 10^400": with_curve(dense={"density": 0.5, "picks": 10**400, "wrong": 1}),
    "a density of 1e999": with_curve(dense={"density": math.inf, "picks": 3, "wrong": 1}),
    "a slope of 1e999": with_curve(slope=math.inf),
    "a slope of 1e308": with_curve(slope=1e308),
    "a mean of 10^400": with_curve(mean=10**400),
    "a temperature of 10^400": {"origin": OURS.to_json()["origin"] | {"temperature": 10**400}},
    "an endless readout": {"rule": {"readout": "trajectory:/(a|a)*$/@16"}},
    "an endless readout before the delimiter": {"rule": {"readout": "trajectory-before:/(?:.?){60}\\x00/@16"}},
    "a readout that is a list": {"rule": {"readout": ["delimiter@16"]}},
    "a readout of 5,000 digits": {"rule": {"readout": "delimiter@" + "9" * 5_000}},
    "an unknown preset": {"rule": {"preset": "os.system"}},
    "k of 1e999": {"rule": {"k": math.inf}},
    "k that is a text": {"rule": {"k": "10"}},
    "a window of 2^62": {"rule": {"confidence_window": 2**62}},
    "an unknown kernel": {"rule": {"kernel": "numpy.dot"}},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "is no calibration"),
        ({"version": 1}, "of version 1, 4 is read: fit it anew"),
        ({"kinds": {}}, "unknown kinds, or none"),
        ({"kinds": {"prose": MATH}}, "unknown kinds"),
        ({"kinds": {"math": {}}}, "cannot be read"),
        (with_curve(slope=-1), "a slope of 0 or more"),
        (with_curve(scale=0), "a scale above 0"),
        (with_curve(mean=float("nan")), "nan is not a finite number"),
        (with_curve(low=9), "low up to high"),
        ({"kinds": {"math": MATH | {"curves": MATH["curves"][::-1]}}}, r"rising numbers of rollouts.*got \[16, 8\]"),
        ({"kinds": {"math": MATH | {"curves": []}}}, "rising numbers of rollouts"),
        ({"kinds": {"math": MATH | {"evidence": ["all"]}}}, "is no readout"),
        (
            {"kinds": {"math": MATH | {"evidence": "trajectory:/(a|a)*$/@16"}}},
            "no file may choose the regular expression",
        ),
        ({"kinds": {"math": MATH | {"located": 3}}}, "located rollouts from 0 to 1"),
        ({"rule": {"window": 3}}, "a rule has the parts preset, readout"),
        ({"origin": OURS.to_json()["origin"] | {"checkpoint": 7}}, "must consist of texts or null"),
        ({"origin": {}}, "cannot be read"),
        *((change, ".") for change in HOSTILE.values()),
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
    with pytest.raises(InputError, match=r"cannot read .*none\.json \(No such file or directory\): pass a calibration"):
        load_calibration(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        load_calibration(tmp_path / "text.json")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero", tmp_path):
        with pytest.raises(InputError, match=r"cannot read .*: pass a calibration"):
            load_calibration(path)


SHIPPED = [load_calibration(file) for file in sorted(SHELF.glob("*.json"))]


def test_every_shipped_calibration_lies_where_it_is_looked_for() -> None:
    assert SHIPPED
    for file, own in zip(sorted(SHELF.glob("*.json")), SHIPPED, strict=True):
        assert file.name == shelf_name(own.origin)
        assert own in shipped(own.origin.checkpoint)
        assert find_calibration(own.origin).calibration == own


@pytest.mark.parametrize("calibration", SHIPPED, ids=lambda c: str(c.origin))
def test_shipped_calibrations_are_fitted_from_8_to_64_rollouts_and_say_nothing_absurd(calibration: Calibration) -> None:
    for fit in calibration.kinds.values():
        assert fit.rollouts == (8, 64)
        for n in range(8, 65):
            densities = np.linspace(0.5, 0.999, 40)
            inside = [float(d) for d in densities if not fit.outside(n, 1.0, float(d))]
            assert inside  # there is a number for every N between
            sure = [fit.probability(n, d) for d in inside]
            assert sure == sorted(sure)
            assert 0.001 < sure[0] <= sure[-1] < 0.999


def test_ranks_put_the_densest_pick_of_a_kind_first_and_leave_abstentions_out() -> None:
    selections = [*(select(group) for group in groups()), nothing()]
    ranks = density_ranks(selections)
    assert ranks[-1] is None
    densities = [selection.density[selection.index] for selection in selections[:-1]]
    assert sorted(range(4), key=lambda i: -densities[i]) == sorted(range(4), key=lambda i: ranks[i] or 0)
    assert sorted(rank for rank in ranks if rank is not None) == [1, 2, 3, 4]
    assert density_ranks([selections[0]] * 2) == [1, 1]


def test_the_share_of_dense_picks_that_were_wrong_comes_with_its_interval() -> None:
    # Wilson's interval for 3 of 10, by statsmodels 0.14 proportion_confint(3, 10, method="wilson"): 0.1078, 0.6032
    assert DENSE.interval == pytest.approx((0.1078, 0.6032), abs=1e-4)
    assert "of the 10 graded picks of mean similarity 0.500 or more, 3 were wrong (30% [11, 60])" in str(DENSE)
    assert Dense(0.5, 4, 0).interval[0] == 0
