"""Lifts taken apart: what is a lift, which problems count, and how two styles are paired."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planted_panels import panel, relabelled
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.lifts import COHORT, DENSE, FULL, FUSED, MAJORITY, Contrast, Lift, lifts, paired

READ = (Request("delimiter@16"),)


def lost(one: Panel, rows: slice) -> Panel:
    """The panel with nobody located on some problems."""
    start = one.reads[READ[0]].start.copy()
    start[rows] = -1
    return replace(one, reads={READ[0]: one.reads[READ[0]]._replace(start=start)})


def test_problems_without_two_located_rollouts_are_left_out_of_every_column() -> None:
    table = lifts(lost(panel(requests=READ), slice(0, 9)))
    assert np.isnan(table[:9]).all()
    assert np.isfinite(table[9:]).all()


def test_parts_add_up_and_a_vote_without_voters_is_wrong() -> None:
    one = panel(requests=READ)
    mute = relabelled(one, np.full_like(one.answer, -1))
    lift = Lift.over([mute], {mute: lifts(mute)}, 200, 0)
    assert lift.mean(MAJORITY) == 0.0
    assert lift.anchor.estimate + lift.selection.estimate == pytest.approx(lift.full.estimate)
    assert lift.mean(FULL) == lift.mean(COHORT)  # everybody is located
    assert lift.p < 0.001


def test_headroom_is_undefined_where_all_are_right() -> None:
    one = panel(requests=READ, right=1.0)
    lift = Lift.over([one], {one: lifts(one)}, 200, 0)
    assert not lift.headroom.finite
    assert lift.selection.finite


def test_styles_are_paired_by_model_set_and_problem_where_both_are_eligible() -> None:
    low, high = panel(requests=READ, style="low"), lost(panel(requests=READ, style="high", seed=1), slice(0, 4))
    part = panel(requests=READ, style="high", model="lab-oss", seed=2)  # another model: no partner
    elsewhere = panel(requests=READ, style="high", dataset="math-3", seed=3)
    tables = {one: lifts(one) for one in (low, high, part, elsewhere)}
    rows = paired(list(tables), "low", "high", tables)
    assert rows.table.shape == (56, 10)
    assert np.array_equal(rows.table[:, :5], tables[low][4:])
    assert np.array_equal(rows.table[:, 5:], tables[high][4:])
    assert rows.problems[0] == ("math-2", "math-2-004")
    contrast = Contrast(rows, 200, 0)
    gap = contrast.difference()
    assert gap.estimate == pytest.approx(
        np.mean(rows.table[:, DENSE] - rows.table[:, COHORT] - rows.table[:, 5 + DENSE] + rows.table[:, 5 + COHORT])
    )
    assert contrast.share(0).estimate == pytest.approx(contrast.lift(0).estimate / (1 - rows.table[:, COHORT].mean()))
    assert paired([low], "low", "high", tables).table.shape == (0, 10)


def test_fusion_is_no_number_without_confidences_and_the_rest_stays() -> None:
    table = lifts(replace(panel(requests=READ), scalars={}))
    assert np.isnan(table[:, FUSED]).all()
    assert np.isfinite(table[:, DENSE]).all()
