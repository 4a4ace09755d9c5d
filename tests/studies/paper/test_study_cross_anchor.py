"""Study 26: what was planted at both anchors is found at both, and what was planted at one alone does not replicate."""

from __future__ import annotations

import numpy as np
import pytest

from planted_panels import evidence, panel
from radmoe.studies.base import Findings, Options
from radmoe.studies.decision import Verdict
from radmoe.studies.evidence import Panel
from radmoe.studies.paper.cross_anchor import CURVE, FLATTENS, NEEDLE, PARTS, SCALES, TIES, cross_anchor
from radmoe.studies.rates import ANCHORS, BOUNDARY, DELIMITER

SCALES_PART = "RAD, m=2 to the largest"
OPTIONS = Options(resamples=300, subcohorts=30)


def made(**options: object) -> Panel:
    defaults = {"problems": 40, "n": 64, "requests": ANCHORS, "right": 0.55, "wrong_answers": 2, "signal": 0.1}
    return panel(**(defaults | options))  # type: ignore[arg-type]


def verdicts(found: Findings) -> dict[str, Verdict]:
    return {decision.claim.key: decision.verdict for decision in found.decisions}


def test_what_holds_at_both_anchors_is_supported() -> None:
    found = cross_anchor(evidence(made(right=0.7, signal=0.3, confidence=-0.4)), OPTIONS)
    assert verdicts(found) == {
        SCALES.key: Verdict.SUPPORTS,
        FLATTENS.key: Verdict.SUPPORTS,
        CURVE.key: Verdict.SUPPORTS,
        NEEDLE.key: Verdict.REFUTES,  # a confidence that misleads does not find the needle
        TIES.key: Verdict.SUPPORTS,
    }
    knows = cross_anchor(evidence(made(confidence=1.0)), OPTIONS)
    assert verdicts(knows)[NEEDLE.key] == Verdict.SUPPORTS
    assert verdicts(knows)[FLATTENS.key] == Verdict.REFUTES


def test_what_holds_at_one_anchor_alone_is_refuted() -> None:
    """At the boundary, wrong rollouts are alike and right ones are not, so that more rollouts mislead."""
    one = made(signal={BOUNDARY: 0.0, DELIMITER: 0.1})
    wrong = ~one.correct
    one.read(BOUNDARY).values[...] += np.float32(0.3) * (wrong[:, :, None] & wrong[:, None, :])
    found = cross_anchor(evidence(one), OPTIONS)
    assert {verdicts(found)[claim.key] for claim in (SCALES, CURVE, TIES)} == {Verdict.REFUTES}


def test_an_anchor_that_is_not_located_leaves_every_claim_out_with_a_note() -> None:
    found = cross_anchor(evidence(made(located={BOUNDARY: 0.0, DELIMITER: 1.0})), OPTIONS)
    assert found.decisions == ()
    assert sum("boundary@16" in note and "was not tested" in note for note in found.notes) == 5
    (chart,) = found.charts
    assert {one.name.partition(", ")[2] for plot in chart.plots for one in plot.series} == {"delimiter"}


def test_the_table_has_both_anchors_and_the_paper_beside_them() -> None:
    (table,) = cross_anchor(evidence(made()), OPTIONS).tables
    assert [(row.section, row.cells[0].value) for row in table.rows] == [
        (request.readout, part.name) for request in ANCHORS for part in PARTS
    ]
    slopes = [row for row in table.rows if row.cells[0].value == SCALES_PART]
    assert [row.cells[1].value for row in slopes] == [40, 40]
    assert [row.cells[3].value for row in slopes] == pytest.approx([0.029, 0.0326])
