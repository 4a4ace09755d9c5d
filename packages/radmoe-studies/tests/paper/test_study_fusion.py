"""Study 20 on panels whose confidence says as much as was planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planted_panels import evidence, panel
from radmoe_studies.base import Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.paper.fusion import fusion

OPTIONS = Options(resamples=400)
READ = (Request("delimiter@16"),)


def verdicts(*panels: Panel) -> dict[str, ClaimVerdict]:
    found = fusion(evidence(*panels), OPTIONS)
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_where_density_finds_every_answer_confidence_adds_nothing_by_either_rule() -> None:
    easy = panel(problems=150, n=32, right=0.93, signal=0.5, requests=READ)
    assert verdicts(easy) == {
        "confidence-adds-nothing": ClaimVerdict.SUPPORTS,
        "rule-does-not-matter": ClaimVerdict.SUPPORTS,
    }


def test_where_density_is_blind_and_confidence_knows_it_adds_and_the_rank_sum_adds_more() -> None:
    blind = panel(problems=300, n=32, right=0.3, signal=0.0, confidence=2.0, requests=READ)
    assert set(verdicts(blind).values()) == {ClaimVerdict.REFUTES}
    gaps = {d.claim.key: d.estimate for d in fusion(evidence(blind), OPTIONS).decisions}
    assert all(gap > 0.05 for gap in gaps.values())


def test_groups_are_configurations_shared_efforts_and_all_with_both_numbers_of_problems() -> None:
    one = panel(model="lab-oss", style="low", requests=READ)
    other = panel(model="oss-20b", style="low", requests=READ, seed=1)
    start = other.reads[READ[0]].start.copy()
    start[:5] = -1
    other = replace(other, reads={READ[0]: other.reads[READ[0]]._replace(start=start)})
    (dc, _) = fusion(evidence(one, other), OPTIONS).tables
    rows = {row.cells[0].value: row.cells for row in dc.rows if row.section == "math"}
    assert list(rows) == ["lab-oss low", "oss-20b low", "low, all models", "all"]
    assert [cell.value for cell in rows["all"][1:3]] == [115, 120]
    assert all(np.isfinite(c.value) for row in dc.rows for c in row.cells if isinstance(c.value, float))


def test_panels_without_confidence_are_named_and_nothing_located_decides_nothing() -> None:
    whole, bare = panel(requests=READ), panel(requests=READ, style="instruct", seed=1)
    bare = replace(bare, scalars={}, missing={"cbw": "no top-k logprobs"})
    found = fusion(evidence(whole, bare), OPTIONS)
    assert any("lab-qwen instruct" in note for note in found.notes)
    nobody = fusion(evidence(panel(requests=READ, located=0.0)), OPTIONS)
    assert not nobody.decisions
    assert not nobody.tables
    assert sum("cannot be tested" in note for note in nobody.notes) == 2
