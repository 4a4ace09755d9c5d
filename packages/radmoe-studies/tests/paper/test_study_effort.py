"""Study 18 on one model at three efforts, whose rates and signals were planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planted_panels import evidence, panel, without_half_of_the_wrong
from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.paper.effort import effort

OPTIONS = Options(resamples=200, quick=True)
READ = (Request("delimiter@16"),)


def at(style: str, right: float, seed: int, signal: float = 0.4, problems: int = 150, n: int = 16) -> Panel:
    return panel(
        model="lab-oss", style=style, right=right, signal=signal, seed=seed, problems=problems, n=n, requests=READ
    )


def verdicts(*panels: Panel) -> dict[str, ClaimVerdict]:
    found = effort(evidence(*panels), OPTIONS)
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_a_ceiling_is_found_where_it_was_planted() -> None:
    found = verdicts(at("low", 0.6, 0), at("medium", 0.75, 1), without_half_of_the_wrong(at("high", 0.93, 2), READ[0]))
    assert found["gain-shrinks"] == ClaimVerdict.SUPPORTS
    assert found["skill-stays"] == ClaimVerdict.SUPPORTS
    assert (
        found["anchor-takes-over"] == ClaimVerdict.REFUTES
    )  # the lift is .4 at low effort, .1 at high: it does not stay


def test_the_same_rollouts_at_every_effort_keep_their_lift() -> None:
    one = at("low", 0.7, 0)
    found = verdicts(one, replace(one, style="medium"), replace(one, style="high"))
    assert found["skill-stays"] == ClaimVerdict.SUPPORTS
    assert found["gain-shrinks"] == ClaimVerdict.REFUTES  # by +0.0 [0, 0], which is less than two points
    assert found["anchor-takes-over"] == ClaimVerdict.NOT_EXPRESSIBLE  # every rollout reaches the anchor


def test_a_selector_that_goes_blind_loses_its_skill_and_one_that_wakes_up_gains() -> None:
    assert (
        verdicts(at("low", 0.7, 0), at("medium", 0.7, 1), at("high", 0.7, 2, 0.0))["skill-stays"]
        == ClaimVerdict.REFUTES
    )
    waking = verdicts(
        without_half_of_the_wrong(at("low", 0.7, 0, 0.0), READ[0]), at("medium", 0.7, 1), at("high", 0.7, 2)
    )
    assert waking["gain-shrinks"] == ClaimVerdict.REFUTES
    assert waking["anchor-takes-over"] == ClaimVerdict.NOT_EXPRESSIBLE
    filtered = verdicts(
        without_half_of_the_wrong(at("low", 0.7, 0, problems=800), READ[0]),
        at("medium", 0.7, 1),
        without_half_of_the_wrong(at("high", 0.7, 2, problems=800), READ[0]),
    )
    assert filtered["anchor-takes-over"] == ClaimVerdict.REFUTES  # as many arrive at either effort


def test_a_lift_that_stays_because_the_anchor_makes_up_for_selection_is_found() -> None:
    """At low effort RAD adds three points; at high effort it adds none, and who arrives adds as much."""
    low, high = at("low", 0.97, 0, problems=2000), at("high", 0.93, 2, 0.0, problems=2000)
    found = verdicts(low, at("medium", 0.95, 1), without_half_of_the_wrong(high, READ[0]))
    assert found["anchor-takes-over"] == ClaimVerdict.SUPPORTS


def test_the_tables_hold_lifts_that_add_up_and_only_shared_problems() -> None:
    low, high = at("low", 0.6, 0), at("high", 0.9, 2, problems=100)
    decomposition, trend = effort(evidence(low, at("medium", 0.75, 1), high), OPTIONS).tables
    for row in decomposition.rows:
        anchor, gain, full = (cell.value for cell in row.cells[4:7])
        assert full == pytest.approx(anchor + gain, abs=0.0011)  # type: ignore[operator]
        if row.section == "math":
            assert len(row.cells) == len(decomposition.columns)
    counts = {row.cells[0].value: row.cells[1].value for row in trend.rows if row.section == "math"}
    assert counts["lab-oss: low - high, RAD"] == 100
    assert counts["lab-oss: low - medium, RAD"] == 150


def test_all_right_or_nobody_located_is_said_in_a_note() -> None:
    perfect = effort(evidence(at("low", 0.6, 0), at("medium", 0.7, 1), at("high", 1.0, 2)), OPTIONS)
    assert any("every located rollout is right" in note for note in perfect.notes)
    nobody = [panel(model="lab-oss", style=s, requests=READ, located=0.0) for s in ("low", "medium", "high")]
    empty = effort(evidence(*nobody), OPTIONS)
    assert not empty.decisions
    for table in (*perfect.tables, *empty.tables):
        assert all(np.isfinite(c.value) for row in table.rows for c in row.cells if isinstance(c.value, float))


def test_panels_without_confidence_have_empty_cells_for_fusion() -> None:
    bare = [replace(at(s, 0.7, i), scalars={}) for i, s in enumerate(("low", "medium", "high"))]
    decomposition, trend = effort(evidence(*bare), OPTIONS).tables
    assert all(row.cells[-1].value is None for row in decomposition.rows if row.section == "math")
    assert all(
        row.cells[2].value is None for row in trend.rows if row.section == "math" and "DC" in str(row.cells[0].value)
    )
