"""Study 21 on panels whose selectors sharpen, or do not, because their basins and confidences were planted so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planted_panels import evidence, panel
from planted_pools import graded_pool
from radmoe.evaluation.table import Row
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.base import Findings, Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, gather
from radmoe_studies.paper.scaling import FLATTENS, SHARPENS, SIZES, TIES, scaling
from radmoe_studies.rates import ANCHORS, DELIMITER
from radmoe_studies.report.charts import draw
from radmoe_studies.run import chosen, run_studies

pytestmark = pytest.mark.slow

OPTIONS = Options(resamples=300, subcohorts=30)


def made(**options: object) -> Panel:
    return panel(**({"problems": 40, "n": 64, "requests": ANCHORS} | options))  # type: ignore[arg-type]


def verdicts(found: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key: decision.verdict for decision in found.decisions}


def test_the_papers_picture_is_found_where_it_was_planted() -> None:
    """Right answers are one large basin, wrong ones small: RAD climbs to the vote, and confidence misleads a little."""
    found = scaling(evidence(made(right=0.7, signal=0.3, confidence=-0.4, problems=100)), OPTIONS)
    assert set(verdicts(found).values()) == {ClaimVerdict.SUPPORTS}
    slope = next(decision for decision in found.decisions if decision.claim is SHARPENS)
    assert slope.estimate == pytest.approx(0.3, abs=0.06)  # from chance, .7, to certainty
    assert slope.n == 100


def test_a_consensus_on_the_wrong_answer_and_a_confidence_that_knows_refute_it() -> None:
    found = scaling(evidence(made(right=0.3, wrong_answers=1, signal=0.3, confidence=1.0)), OPTIONS)
    assert verdicts(found)[SHARPENS.key] == ClaimVerdict.REFUTES
    assert verdicts(found)[FLATTENS.key] == ClaimVerdict.REFUTES


def test_routing_without_signal_does_not_reach_the_vote() -> None:
    found = scaling(evidence(made(right=0.6, signal=0.0)), OPTIONS)
    assert verdicts(found)[TIES.key] == ClaimVerdict.REFUTES
    assert verdicts(found)[SHARPENS.key] != ClaimVerdict.SUPPORTS


def test_the_tables_have_every_size_domain_and_the_papers_numbers() -> None:
    math, science = made(), made(kind="choice", dataset="choice", seed=1)
    code = made(kind="code", dataset="code", seed=2)
    found = scaling(evidence(math, science, code), OPTIONS)
    sections: dict[str, list[Row]] = {}
    assert [table.key for table in found.tables] == ["scaling", "scaling-domains", "scaling-slopes"]
    for row in (*found.tables[0].rows, *found.tables[1].rows):
        sections.setdefault(row.section.partition(" (")[0], []).append(row)
    groups = [("all", "well-posed", "the paper's"), ("math", "science", "code")]
    assert list(sections) == [f"{r.readout}, {name}" for names in groups for r in ANCHORS for name in names]
    everything, posed = sections["delimiter@16, all"], sections["delimiter@16, well-posed"]
    assert [row.cells[0].value for row in everything] == [str(m) for m in SIZES]
    chance = np.mean([panel.correct.mean() for panel in (math, science, code)])
    assert [row.cells[1].value for row in everything] == pytest.approx([chance] * len(SIZES))
    assert all(row.cells[5].value is None for row in everything)  # programs are among them
    assert posed[0].cells[5].value == pytest.approx(posed[0].cells[1].value, abs=0.03)  # a vote of two is chance
    assert sections["delimiter@16, the paper's"][-1].cells[2].value == pytest.approx(0.7762)
    assert all(row.cells[5].value is None for row in sections["delimiter@16, code"])
    assert [len(chart.plots) for chart in found.charts] == [3, 3, 3, 3]


def test_a_problem_of_several_configurations_is_one_cluster_and_instruct_is_left_out() -> None:
    low, high = made(model="lab-oss", style="low"), made(model="lab-oss", style="high", seed=1)
    found = scaling(evidence(low, high, made(style="instruct", seed=2)), OPTIONS)
    assert {decision.n for decision in found.decisions} == {40}
    assert "(n=80, 40 problems)" in found.tables[0].rows[0].section
    assert [table.key for table in found.tables if table.key.endswith("-instruct")] == [
        "scaling-instruct", "scaling-slopes-instruct",
    ]  # fmt: skip
    alone = scaling(evidence(made(style="instruct")), OPTIONS)
    assert alone.decisions == ()
    assert "they are about thinking-class configurations" in alone.notes[0]


def test_what_is_missing_leaves_its_claims_out_with_a_note() -> None:
    blind = replace(made(), scalars={}, missing={"cbw": "no top-k logprobs"})
    found = scaling(evidence(blind), OPTIONS)
    assert set(verdicts(found)) == {SHARPENS.key}
    assert sum("was not tested" in note for note in found.notes) == 2
    nowhere = scaling(evidence(made(located=0.0)), OPTIONS)
    assert nowhere.decisions == ()
    assert nowhere.charts == ()
    text = scaling(evidence(made(kind="text")), OPTIONS)
    assert text.decisions == ()


def test_shorter_pools_and_partly_located_problems_go_as_far_as_they_can() -> None:
    found = scaling(evidence(made(n=40), made(n=16, dataset="other", seed=3)), OPTIONS)
    ours = [row for row in found.tables[0].rows if row.section.startswith("delimiter@16, all")]
    assert [row.cells[0].value for row in ours] == ["2", "4", "8", "16", "32"]
    assert "(n=40," in ours[0].section
    partly = made(located={ANCHORS[0]: 1.0, DELIMITER: 0.9})
    shorter = [
        row for row in scaling(evidence(partly), OPTIONS).tables[0].rows if row.section.startswith("delimiter@16, all")
    ]
    assert shorter[-1].cells[0].value == "32"
    blank = made(located={ANCHORS[0]: 1.0, DELIMITER: 1.0})
    blank.read(DELIMITER).start[:10, 0] = -1
    notes = scaling(evidence(blank), OPTIONS).notes
    assert any(note.startswith("delimiter@16: 30 of 40 problems") and "have 64 located" in note for note in notes)


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_where_nothing_differs_nothing_is_supported_but_the_tie(right: float) -> None:
    found = scaling(evidence(made(right=right)), OPTIONS)
    assert verdicts(found)[SHARPENS.key] == ClaimVerdict.REFUTES  # +0.0 [0, 0] is no effect
    assert verdicts(found)[TIES.key] == ClaimVerdict.SUPPORTS


def test_it_runs_on_a_pool_and_its_figures_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    recipe = Planted(problems=12, rollouts=18, tokens=90)
    pool = graded_pool(tmp_path / "pool", list(planted.groups(recipe)))
    names = ["scaling", "composition", "needle", "domain-lift", "cross-anchor"]
    decisions = []
    for ran in run_studies(chosen(names), gather([pool]), OPTIONS):
        assert ran.findings is not None, ran.lacking
        assert ran.findings.tables
        decisions += [decision.claim.key for decision in ran.findings.decisions]
        for chart in ran.findings.charts:
            assert all(file.stat().st_size for file in draw(chart, tmp_path / "figures"))
    # Sixteen rollouts have no balanced sub-cohorts of 16, and one domain cannot be compared with others.
    assert decisions == [SHARPENS.key, FLATTENS.key, TIES.key]


def test_problems_of_two_data_sets_are_different_though_their_names_are_the_same() -> None:
    other = replace(made(seed=1), dataset="math-3")
    found = scaling(evidence(made(), other), OPTIONS)
    assert {decision.n for decision in found.decisions} == {80}
