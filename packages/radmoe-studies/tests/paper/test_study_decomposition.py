"""Study 10 on panels whose lift is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planted_panels import evidence, panel, without_half_of_the_wrong
from radmoe_studies.base import Options
from radmoe_studies.evidence import Request
from radmoe_studies.paper.decomposition import decomposition

OPTIONS = Options(resamples=200)
READ = (Request("delimiter@16"),)


def test_anchor_and_selection_add_up_to_what_was_planted() -> None:
    (table,) = decomposition(
        evidence(without_half_of_the_wrong(panel(problems=200, right=0.6, signal=0.4, requests=READ), READ[0])), OPTIONS
    ).tables
    row = next(row for row in table.rows if row.section == "math")
    full, cohort, _, dense, anchor, gain, lift, share = (float(cell.value) for cell in row.cells[3:])  # type: ignore[arg-type]
    assert full == pytest.approx(0.6, abs=0.02)
    assert cohort == pytest.approx(0.75, abs=0.02)
    assert dense == pytest.approx(1.0, abs=0.02)
    assert anchor + gain == pytest.approx(lift)
    assert share == pytest.approx(1.0, abs=0.05)
    assert row.cells[8].stars == "***"


def test_code_has_no_vote_and_pools_are_kept_apart() -> None:
    own = evidence(panel(requests=READ), panel(requests=READ, kind="code", dataset="code"))
    (table,) = decomposition(own, OPTIONS).tables
    here = [row for row in table.rows if "paper" not in row.section]
    assert [row.section for row in here] == ["math", "math", "well-posed", "well-posed", "code", "code"]
    assert all(row.cells[5].value is None for row in table.rows if row.section == "code")


def test_the_papers_rows_stand_beside_ours_and_add_up() -> None:
    (table,) = decomposition(evidence(panel(requests=READ)), OPTIONS).tables
    printed = [row for row in table.rows if row.section.startswith("paper, ")]
    assert len(printed) == 40
    for row in printed:
        assert len(row.cells) == len(table.columns)
        anchor, gain, full = (float(cell.value) for cell in row.cells[7:10])  # type: ignore[arg-type]
        assert anchor + gain == pytest.approx(full, abs=0.0021)
    counts = {
        p: sum(int(row.cells[1].value) for row in printed if row.section == f"paper, {p}")
        for p in ("well-posed", "code")
    }  # type: ignore[arg-type]
    assert counts == {"well-posed": 3153, "code": 1625}


def test_ineligible_problems_are_counted_beside_and_nothing_is_a_note() -> None:
    one = panel(requests=READ)
    start = one.reads[READ[0]].start.copy()
    start[:7] = -1
    some = replace(one, reads={READ[0]: one.reads[READ[0]]._replace(start=start)})
    (table,) = decomposition(evidence(some), OPTIONS).tables
    assert [cell.value for cell in table.rows[0].cells[1:3]] == [53, 60]
    nobody = decomposition(evidence(panel(requests=READ, located=0.0)), OPTIONS)
    assert not nobody.tables
    assert any("No eligible problem: lab-qwen thinking (math)" in note for note in nobody.notes)


def test_where_all_are_right_there_is_no_headroom() -> None:
    (table,) = decomposition(evidence(panel(requests=READ, right=1.0)), OPTIONS).tables
    assert table.rows[0].cells[-1].value is None
    assert table.rows[0].cells[8].stars == ""
