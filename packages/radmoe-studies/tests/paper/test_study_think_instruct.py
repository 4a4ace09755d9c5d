"""Study 19 on one model in two styles, whose rates and signals were planted."""

from __future__ import annotations

import numpy as np
import pytest

from planted_panels import evidence, panel
from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.needs import PAIRS
from radmoe_studies.paper.think_instruct import think_instruct

OPTIONS = Options(resamples=300)
READ = (Request("delimiter@16"),)


def styled(style: str, right: float, seed: int = 0, signal: float = 0.4, **more: object) -> Panel:
    return panel(style=style, right=right, signal=signal, seed=seed, problems=200, n=16, requests=READ, **more)  # type: ignore[arg-type]


def verdicts(*panels: Panel) -> dict[str, ClaimVerdict]:
    found = think_instruct(evidence(*panels), OPTIONS)
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_diverse_instruct_rollouts_gain_more_than_converged_thinking_ones() -> None:
    found = verdicts(styled("thinking", 0.93), styled("instruct", 0.6, 1))
    assert set(found.values()) == {ClaimVerdict.SUPPORTS}


def test_the_other_way_round_every_claim_is_refuted() -> None:
    found = verdicts(styled("thinking", 0.6), styled("instruct", 0.93, 1))
    assert set(found.values()) == {ClaimVerdict.REFUTES}


def test_a_half_larger_gain_is_more_but_not_twice_as_much() -> None:
    found = verdicts(styled("thinking", 0.74), styled("instruct", 0.6, 1))
    assert found["instruct-gains-more"] == ClaimVerdict.SUPPORTS
    assert found["at-least-twice"] == ClaimVerdict.REFUTES


def test_the_tables_hold_both_styles_of_whole_pairs_and_the_papers() -> None:
    own = evidence(styled("thinking", 0.9), styled("instruct", 0.6, 1), styled("instruct", 0.6, 1, model="lab-next"))
    table, pairs = think_instruct(own, OPTIONS).tables
    assert [row.cells[0].value for row in table.rows if row.section == "here"] == [
        "lab-qwen instruct",
        "lab-qwen thinking",
    ]
    rows = {row.cells[0].value: row.cells for row in table.rows}
    assert rows["lab-qwen instruct"][4].value == pytest.approx(0.4, abs=0.03)  # all of the headroom
    assert rows["Qwen3-30B Instruct"][4].value == 0.123
    assert rows["lab-qwen instruct"][5].value is None  # no science
    assert [row.cells[0].value for row in pairs.rows] == ["all", "lab-qwen"]


def test_what_is_missing_is_said() -> None:
    assert PAIRS.lacking(evidence(styled("thinking", 0.9))) is not None
    nobody = [panel(style=style, requests=READ, located=0.0) for style in ("thinking", "instruct")]
    empty = think_instruct(evidence(*nobody), OPTIONS)
    assert not empty.decisions
    assert any("No claim can be tested" in note for note in empty.notes)
    perfect = think_instruct(evidence(styled("thinking", 1.0), styled("instruct", 1.0)), OPTIONS)
    for table in (*empty.tables, *perfect.tables):
        assert all(np.isfinite(c.value) for row in table.rows for c in row.cells if isinstance(c.value, float))
