"""Study 22 on panels whose S-curve is known: where basins are of one size, the larger side wins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planted_panels import evidence, panel, verdicts_by_key
from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel
from radmoe_studies.paper.composition import COMPLEMENT, COUNTS, CROSSES, CURVE, GROWS, composition, crossings
from radmoe_studies.rates import ANCHORS

OPTIONS = Options(resamples=300, subcohorts=30)


def made(**options: object) -> Panel:
    defaults = {"problems": 30, "n": 64, "requests": ANCHORS, "right": 0.5, "wrong_answers": 2, "signal": 0.06}
    return panel(**(defaults | options))  # type: ignore[arg-type]


def test_right_rollouts_against_two_wrong_basins_cross_above_a_third() -> None:
    """Two wrong basins share what is not right, so that right ones win from about a third on."""
    found = composition(evidence(made(confidence=0.8)), OPTIONS)
    assert set(verdicts_by_key(found).values()) == {ClaimVerdict.SUPPORTS}
    place = next(decision for decision in found.decisions if decision.claim is CROSSES)
    assert 0.3 < place.low < place.estimate < place.high < 0.5
    assert place.n == 30


def test_basins_that_do_not_show_in_routing_have_no_curve_and_confidence_may_mislead() -> None:
    found = composition(evidence(made(signal=0.0, confidence=-0.8)), OPTIONS)
    assert verdicts_by_key(found)[CURVE.key] != ClaimVerdict.SUPPORTS
    assert verdicts_by_key(found)[GROWS.key] != ClaimVerdict.SUPPORTS
    assert verdicts_by_key(found)[COMPLEMENT.key] == ClaimVerdict.REFUTES


def test_right_rollouts_that_stand_apart_refute_the_curve() -> None:
    """Wrong rollouts are one basin and right ones none at all: RAD is below chance however many they are."""
    one = made(problems=30, wrong_answers=1, signal=0.0)
    for request in ANCHORS:
        wrong = ~one.correct
        read = one.read(request)
        read.values[...] += 0.3 * (wrong[:, :, None] & wrong[:, None, :])
    found = composition(evidence(one), OPTIONS)
    assert verdicts_by_key(found)[CURVE.key] == ClaimVerdict.REFUTES
    assert verdicts_by_key(found)[CROSSES.key] == ClaimVerdict.REFUTES


def test_many_wrong_answers_let_few_right_ones_win_the_more_the_larger_the_cohort() -> None:
    found = composition(evidence(made(wrong_answers=12, signal=0.3)), OPTIONS)
    assert verdicts_by_key(found)[CROSSES.key] == ClaimVerdict.REFUTES
    assert verdicts_by_key(found)[GROWS.key] == ClaimVerdict.REFUTES


def test_the_table_has_every_count_and_the_papers_numbers_beside_it() -> None:
    found = composition(evidence(made()), OPTIONS)
    rows = [row for row in found.tables[0].rows if row.section.startswith("delimiter@16, all")]
    assert [str(row.cells[0].value).split()[0] for row in rows] == [str(c) for c in COUNTS]
    assert rows[-1].cells[4].value == pytest.approx(1 / 16)  # fifteen right votes never lose
    assert rows[0].cells[4].value == pytest.approx(-1 / 16)  # one right vote never wins
    paper = [row for row in found.tables[0].rows if "the paper's (n=664)" in row.section]
    assert [row.cells[1].value for row in paper][2] == pytest.approx(-0.0816)


@pytest.mark.parametrize("options", [{"right": 0.0}, {"right": 1.0}, {"n": 20}, {"located": 0.0}, {"problems": 5}])
def test_too_few_mixed_problems_decide_nothing(options: dict[str, object]) -> None:
    found = composition(evidence(made(**options)), OPTIONS)
    assert found.decisions == ()
    assert sum("was not tested" in note for note in found.notes) == 4


def test_without_confidences_the_other_claims_are_decided() -> None:
    found = composition(evidence(replace(made(), scalars={}, missing={"cbw": "none"})), OPTIONS)
    assert set(verdicts_by_key(found)) == {CURVE.key, CROSSES.key, GROWS.key}
    assert all(cell.value is None for row in found.tables[0].rows[:9] for cell in row.cells[2:4])


def test_a_crossing_lies_between_its_neighbours_and_at_the_ends_where_there_is_none() -> None:
    shares = np.array([0.2, 0.4, 0.6])
    lifts = np.array([[-0.1, 0.1, 0.2], [0.0, 0.1, 0.2], [-0.1, -0.2, -0.1], [0.05, -0.1, 0.1], [-0.1, 0.0, 0.1]])
    assert crossings(shares, lifts) == pytest.approx([0.3, 0.0, 1.0, 0.5, 0.4])
