"""Study 9 on panels whose random picks have a known law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planted_panels import evidence, panel, relabelled
from radmoe_studies.base import Options
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.paper.random_envelope import random_envelope

OPTIONS = Options(resamples=200)
READ = (Request("delimiter@16"),)


def halves(signal: float, **more: object) -> Panel:
    """100 problems with exactly half of the rollouts right."""
    one = panel(problems=100, n=16, requests=READ, signal=signal, **more)  # type: ignore[arg-type]
    return relabelled(one, correct=np.broadcast_to(np.arange(16) % 2 == 0, (100, 16)))


def test_the_envelope_is_that_of_fair_coins() -> None:
    (table,) = random_envelope(evidence(halves(0.0)), OPTIONS).tables
    row = table.rows[0].cells
    assert row[2].value == 0.5
    assert row[3].value == pytest.approx(0.5 + 1.96 * 0.05)
    assert row[4].value == 0.6  # the 97.5% quantile of 100 fair coins
    assert row[6].value == pytest.approx(float(row[5].value) - float(row[3].value))  # type: ignore[arg-type]


def test_a_selector_with_a_signal_is_above_and_a_blind_one_is_not() -> None:
    seeing = panel(problems=100, right=0.6, signal=0.4, requests=READ)
    blind = panel(problems=100, right=0.6, signal=0.0, requests=READ, style="instruct", seed=1)
    found = random_envelope(evidence(seeing, blind), OPTIONS)
    assert "1 of 2" in found.notes[0]
    rows = {row.cells[0].value: row.cells for row in found.tables[0].rows if row.section == "math-2"}
    assert float(rows["lab-qwen thinking"][6].value) > 0.2  # type: ignore[arg-type]
    assert float(rows["lab-qwen instruct"][6].value) < 0  # type: ignore[arg-type]


def test_abstentions_are_wrong_and_missing_confidence_is_an_empty_cell() -> None:
    one = replace(panel(requests=READ, located=0.0), scalars={})
    (table,) = random_envelope(evidence(one), OPTIONS).tables
    assert table.rows[0].cells[5].value == 0.0
    assert table.rows[0].cells[9].value is None
    assert not random_envelope(evidence(panel(kind="text")), OPTIONS).tables
