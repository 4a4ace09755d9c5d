"""Study 26: what studies 21 to 23 decide at the delimiter, measured at both anchors and beside the paper's numbers."""

from __future__ import annotations

import numpy as np
import pytest

from planted_panels import evidence, panel
from radmoe_studies.base import Options, study_named
from radmoe_studies.evidence import Panel
from radmoe_studies.paper.cross_anchor import PARTS, cross_anchor
from radmoe_studies.rates import ANCHORS, BOUNDARY, DELIMITER

SLOPE = "RAD, m=2 to the largest"
OPTIONS = Options(resamples=300, subcohorts=30)


def made(**options: object) -> Panel:
    defaults = {"problems": 40, "n": 64, "requests": ANCHORS, "right": 0.55, "wrong_answers": 2, "signal": 0.1}
    return panel(**(defaults | options))  # type: ignore[arg-type]


def test_it_reports_and_repeats_no_claim_of_the_studies_of_one_anchor() -> None:
    assert study_named("26").claims == ()
    assert cross_anchor(evidence(made()), OPTIONS).decisions == ()


def test_what_holds_at_one_anchor_alone_is_seen_in_the_table() -> None:
    """At the boundary, wrong rollouts are alike and right ones are not, so that more rollouts mislead."""
    one = made(signal={BOUNDARY: 0.0, DELIMITER: 0.1})
    wrong = ~one.correct
    one.read(BOUNDARY).values[...] += np.float32(0.3) * (wrong[:, :, None] & wrong[:, None, :])
    (table,) = cross_anchor(evidence(one), OPTIONS).tables
    slopes = {row.section: float(str(row.cells[2].value)) for row in table.rows if row.cells[0].value == SLOPE}
    assert slopes["boundary@16"] < -0.05
    assert slopes["delimiter@16"] > 0.05


def test_an_anchor_that_is_not_located_leaves_empty_cells() -> None:
    found = cross_anchor(evidence(made(located={BOUNDARY: 0.0, DELIMITER: 1.0})), OPTIONS)
    assert all(row.cells[2].value is None for row in found.tables[0].rows if row.section == "boundary@16")
    (chart,) = found.charts
    assert {one.name.partition(", ")[2] for plot in chart.plots for one in plot.series} == {"delimiter"}


def test_the_table_has_both_anchors_and_the_paper_beside_them() -> None:
    (table,) = cross_anchor(evidence(made()), OPTIONS).tables
    assert [(row.section, row.cells[0].value) for row in table.rows] == [
        (request.readout, part.name) for request in ANCHORS for part in PARTS
    ]
    slopes = [row for row in table.rows if row.cells[0].value == SLOPE]
    assert [row.cells[1].value for row in slopes] == [40, 40]
    assert [row.cells[3].value for row in slopes] == pytest.approx([0.029, 0.0326])
