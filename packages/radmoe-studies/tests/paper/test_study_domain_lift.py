"""Study 24 on panels of three domains whose routing says as much about the answer as was planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planted_panels import evidence, panel, verdicts_by_key
from radmoe.types import Kind
from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel
from radmoe_studies.paper.domain_lift import EVERYWHERE, ORDER, domain_lift
from radmoe_studies.rates import ANCHORS

OPTIONS = Options(resamples=300, subcohorts=10)
RIGHT = np.tile([0.6, 0.9], 30)
KINDS: dict[str, Kind] = {"math": "math", "science": "choice", "code": "code"}


def domain(name: str, signal: float, right: object = RIGHT, **options: object) -> Panel:
    made = {"problems": 60, "n": 64, "requests": ANCHORS, "right": right, "signal": signal, "dataset": name}
    return panel(**(made | {"kind": KINDS[name], "seed": len(name)} | options))  # type: ignore[arg-type]


def test_the_papers_order_is_found_where_it_was_planted() -> None:
    """Math is mixed and coherent; the others are mostly right already, so that there is less to gain."""
    found = domain_lift(
        evidence(domain("math", 0.3, 0.6), domain("science", 0.3, 0.9), domain("code", 0.3, 0.9)), OPTIONS
    )
    assert verdicts_by_key(found) == {ORDER.key: ClaimVerdict.SUPPORTS, EVERYWHERE.key: ClaimVerdict.SUPPORTS}
    rows = {row.cells[0].value: row for row in found.tables[0].rows if row.section == "delimiter@16, m=64"}
    assert rows["math"].cells[2].value == pytest.approx(0.4, abs=0.03)  # from .6 to certainty
    assert rows["code"].cells[2].value == pytest.approx(0.1, abs=0.03)
    assert rows["math"].cells[1].value == 60
    assert rows["math"].cells[5].value == pytest.approx(
        6 * 2 / 301
    )  # the least p of 300 resamples, times three domains at two anchors


def test_math_without_signal_and_a_domain_with_a_wrong_consensus_refute_it() -> None:
    found = domain_lift(
        evidence(domain("math", 0.3, 0.3, wrong_answers=1), domain("science", 0.3), domain("code", 0.3)), OPTIONS
    )
    assert verdicts_by_key(found) == {ORDER.key: ClaimVerdict.REFUTES, EVERYWHERE.key: ClaimVerdict.REFUTES}


def test_a_domain_that_is_not_there_leaves_the_claims_out_with_a_note() -> None:
    found = domain_lift(evidence(domain("math", 0.3), domain("code", 0.3)), OPTIONS)
    assert found.decisions == ()
    assert any("math and science" in note for note in found.notes)
    assert [row.cells[2].value is None for row in found.tables[0].rows[:3]] == [False, True, False]
    nothing = domain_lift(evidence(domain("math", 0.3, located=0.0)), OPTIONS)
    assert nothing.decisions == ()
    assert nothing.charts == ()


def test_without_confidences_rad_is_still_judged_and_the_papers_numbers_stand_beside() -> None:
    panels = [replace(domain(name, 0.3), scalars={}, missing={"cbw": "none"}) for name in KINDS]
    found = domain_lift(evidence(*panels), OPTIONS)
    assert len(found.decisions) == 2
    ours = next(row for row in found.tables[0].rows if row.section == "boundary@16, m=64")
    assert [cell.value is None for cell in ours.cells] == [False, False, False, True, True, False]
    paper = next(row for row in found.tables[0].rows if row.section == "delimiter@16, the paper's")
    assert [cell.value for cell in paper.cells[:3]] == ["math", 592, pytest.approx(0.0619)]


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_a_lift_that_is_exactly_zero_is_less_than_the_smallest_effect(right: float) -> None:
    found = domain_lift(evidence(*(domain(name, 0.3, right) for name in KINDS)), OPTIONS)
    assert verdicts_by_key(found)[EVERYWHERE.key] == ClaimVerdict.REFUTES
    assert verdicts_by_key(found)[ORDER.key] != ClaimVerdict.SUPPORTS
