"""Study 14 on panels whose domains gain what was planted, and on real pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planted_panels import evidence
from planted_picks import with_picks
from planted_pools import graded_pool
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.base import Findings, Options, study_named
from radmoe_studies.budgets import LATE, request
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Read, gather
from radmoe_studies.paper.domains import domains, wanted
from radmoe_studies.run import run_studies

OPTIONS = Options(resamples=400)
ALL = {
    "so-selects-best-in-math", "boundary-selects-best-in-math", "so-is-null-on-code", "a-large-share-is-mechanical",
}  # fmt: skip
KINDS = {"math": ("math", "math-1"), "science": ("choice", "choice"), "code": ("code", "code")}


def made(
    chances: Mapping[str, float], *, lost: float = 0.0, style: str = "thinking", problems: int = 2500
) -> list[Panel]:
    """One panel per domain; `lost` is the share of wrong rollouts that never reach the boundary."""
    panels = []
    for seed, (domain, chance) in enumerate(chances.items()):
        kind, dataset = KINDS[domain]
        panel = with_picks(
            wanted, lambda wish, chance=chance: chance,  # type: ignore[misc]
            problems=problems, n=16, right=0.5, kind=kind, dataset=dataset, style=style, seed=seed,
        )  # fmt: skip
        values, start = panel.reads[request("boundary", LATE)]
        gone = (np.random.default_rng(3).random(start.shape) < lost) & ~panel.correct & (values < 9)
        panel.reads[request("boundary", LATE)] = Read(np.where(gone, np.nan, values), np.where(gone, -1, start))
        panels.append(panel)
    return panels


def verdicts(findings: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in findings.decisions}


@pytest.mark.slow
def test_the_papers_order_is_found_where_it_was_planted() -> None:
    found = domains(evidence(*made({"math": 0.8, "science": 0.65, "code": 0.5}, lost=0.6, problems=8000)), OPTIONS)
    assert verdicts(found) == dict.fromkeys(ALL, ClaimVerdict.SUPPORTS)
    rows = {str(row.cells[0].value): row for row in found.tables[0].rows if row.section == "these pools"}
    assert [rows[name].cells[2].value for name in KINDS] == pytest.approx([0.3, 0.15, 0.0], abs=0.03)
    math = [
        float(str(rows["math"].cells[i].value)) for i in (6, 8, 10)
    ]  # boundary: delta-sel, delta-full, delta-anchor
    assert math[0] + math[2] == pytest.approx(math[1])
    assert rows["math"].cells[2].stars == "*"


def test_the_opposite_order_refutes_it() -> None:
    found = domains(evidence(*made({"math": 0.55, "science": 0.7, "code": 0.85}, lost=0.03)), OPTIONS)
    assert verdicts(found) == dict.fromkeys(ALL, ClaimVerdict.REFUTES)


def test_where_every_rollout_arrives_the_share_of_who_arrives_cannot_be_asked_for() -> None:
    found = domains(evidence(*made({"math": 0.55, "science": 0.7, "code": 0.85}, problems=100)), OPTIONS)
    (decision,) = (one for one in found.decisions if one.claim.key == "domains.a-large-share-is-mechanical")
    assert decision.verdict is ClaimVerdict.NOT_EXPRESSIBLE
    assert "only 0.0% of the rollouts do not reach the anchor" in decision.inexpressible


def test_n_counts_problems_and_not_the_configurations_that_answered_them() -> None:
    panels = [
        panel
        for style in ("low", "medium", "high")
        for panel in made({"math": 0.8, "code": 0.6}, style=style, problems=50)
    ]
    found = domains(evidence(*panels), OPTIONS)
    assert {decision.claim.key.partition(".")[2]: decision.n for decision in found.decisions} == {
        "so-is-null-on-code": 50,
        "a-large-share-is-mechanical": 50,
    }


def test_few_problems_tell_nothing_about_the_order() -> None:
    found = domains(evidence(*made(dict.fromkeys(KINDS, 0.6), problems=30)), OPTIONS)
    assert verdicts(found)["so-selects-best-in-math"] is ClaimVerdict.UNDECIDED


def test_claims_about_domains_that_are_not_there_are_left_out() -> None:
    found = domains(evidence(*made({"math": 0.8, "science": 0.6}, problems=100)), OPTIONS)
    assert set(verdicts(found)) == {"a-large-share-is-mechanical"}
    assert sum("cannot be tested" in note for note in found.notes) == 3
    code = next(row for row in found.tables[0].rows if row.cells[0].value == "code")
    assert [cell.value for cell in code.cells[1:]] == [0, *[None] * 9]


def test_configurations_with_different_numbers_of_rollouts_stand_in_one_table() -> None:
    one = made(dict.fromkeys(KINDS, 0.6), problems=50)
    other = made(dict.fromkeys(KINDS, 0.6), problems=50, style="high")
    other = [
        replace(
            panel,
            marks={problem: m._replace(correct=m.correct[:8], answers=m.answers[:8]) for problem, m in panel.marks.items()},
            lengths=panel.lengths[:, :8],
            reads={wish: Read(read.values[:, :8], read.start[:, :8]) for wish, read in panel.reads.items()},
        )
        for panel in other
    ]  # fmt: skip
    found = domains(evidence(*one, *other), OPTIONS)
    assert [row.cells[0].value for row in found.tables[1].rows] == ["lab-qwen thinking", "lab-qwen high"]
    assert [row.cells[1].value for row in found.tables[0].rows[:3]] == [50] * 3


def test_real_pools_of_two_domains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    paths = []
    for kind in ("math", "code"):
        groups = list(planted.groups(Planted(problems=5, rollouts=10, tokens=80, kind=kind, seed=len(paths))))  # type: ignore[arg-type]
        paths.append(graded_pool(tmp_path / kind, groups))
    (ran,) = run_studies([study_named("domains")], gather(paths), OPTIONS)
    assert ran.findings is not None
    assert set(verdicts(ran.findings)) == {"so-is-null-on-code", "a-large-share-is-mechanical"}
    assert [row.cells[1].value for row in ran.findings.tables[0].rows[:3]] == [5, 0, 5]
