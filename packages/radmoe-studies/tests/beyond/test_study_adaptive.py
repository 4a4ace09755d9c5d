"""Study 30 on panels where stopping pays, because it was planted so, and on panels where it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planted_panels import evidence, panel
from planted_pools import graded_pool
from radmoe.types import Kind, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.base import Findings, Options
from radmoe_studies.beyond.adaptive import ARMS, BETTER, CHEAPER, adaptive, most_rollouts
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Read, Request, gather
from radmoe_studies.report.charts import draw
from radmoe_studies.run import chosen, run_studies

REQUEST = Request("delimiter@16")
OPTIONS = Options(resamples=300, subcohorts=20)


def hard(kind: Kind, **options: object) -> Panel:
    """Problems whose pick changes often, and gets better with more rollouts."""
    recipe = {"problems": 24, "n": 64, "right": 0.65, "signal": 0.03, "requests": [REQUEST], "kind": kind}
    return replace(panel(**(recipe | {"dataset": "hard"} | options)), scalars={})  # type: ignore[arg-type]


def easy(kind: Kind) -> Panel:
    """Problems all of whose rollouts are right and equally alike, so that the first one stays the pick."""
    made = panel(problems=24, n=64, right=1.0, requests=[REQUEST], kind=kind, dataset="easy", seed=1)
    S = np.full((24, 64, 64), 0.7, np.float32)
    S[:, np.arange(64), np.arange(64)] = 1.0
    return replace(made, reads={REQUEST: Read(S, made.reads[REQUEST].start)}, scalars={})


def verdicts(found: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key: decision.verdict for decision in found.decisions}


@pytest.mark.slow
def test_tokens_saved_on_problems_that_are_settled_are_found_to_pay() -> None:
    found = adaptive(evidence(*(made(kind) for kind in ("math", "code") for made in (hard, easy))), OPTIONS)
    assert verdicts(found)[BETTER.key] is ClaimVerdict.SUPPORTS


@pytest.mark.slow
def test_where_every_problem_is_settled_at_once_half_of_the_tokens_do() -> None:
    found = adaptive(evidence(easy("math"), easy("code")), OPTIONS)
    assert verdicts(found) == {BETTER.key: ClaimVerdict.REFUTES, CHEAPER.key: ClaimVerdict.SUPPORTS}


def test_where_more_rollouts_are_better_stopping_costs_accuracy() -> None:
    improving = [hard(kind, problems=40, right=0.55, signal=0.06) for kind in ("math", "code")]
    found = adaptive(evidence(*improving), OPTIONS)
    assert verdicts(found)[BETTER.key] is not ClaimVerdict.SUPPORTS
    assert verdicts(found)[CHEAPER.key] is ClaimVerdict.REFUTES


def test_the_table_has_every_way_to_stop_and_says_why_one_is_missing() -> None:
    found = adaptive(evidence(hard("code")), OPTIONS)
    (table,) = found.tables
    rows = {str(row.cells[0].value): row.cells for row in table.rows}
    assert list(rows)[2:] == [arm.name for arm in ARMS]
    assert rows["adaptive consistency, 0.95"][5].note == "no answers to count"
    assert rows["DeepConf online, keeps 90%"][5].note == "no top-k log-probabilities"
    longest = rows["fixed N = 64"]
    assert longest[3].value == 1.0
    patience = [rows[f"online, patience {p}"][2].value for p in (2, 4, 8, 16, 32)]
    assert patience == sorted(patience)  # type: ignore[type-var]
    assert found.decisions == ()
    assert "No claim was tested: fewer than 10 problems with enough rollouts on math" in found.notes[0]


def test_a_preset_that_adds_likelihood_picks_by_it() -> None:
    """Likelihood tells right from wrong, routing nothing: the preset best is right where the paper's pick is not."""
    best = Request("delimiter@span")
    made = panel(problems=20, n=16, right=0.5, signal=0.0, likelihood=6.0, requests=[REQUEST, best])
    (table,) = adaptive(evidence(made), OPTIONS).tables
    right = {(row.section, str(row.cells[0].value)): row.cells[5].value for row in table.rows}
    for name in ("fixed N = 16", "online, patience 8"):
        assert right["math, preset best", name] > 0.9  # type: ignore[operator]
        assert right["math", name] < 0.8  # type: ignore[operator]


def test_fewer_problems_than_decide_anything_measure_nothing() -> None:
    few = hard("math", problems=5)
    assert most_rollouts([few]) == 0
    found = adaptive(evidence(few), OPTIONS)
    assert found.tables == ()
    assert "nothing was measured" in found.notes[0]


@pytest.mark.slow
def test_a_pool_on_disk_is_measured_with_every_rival(tmp_path: Path) -> None:
    recipe = Planted(problems=10, rollouts=18, tokens=40, shape=RouterShape(4, 16, 2))
    path = graded_pool(tmp_path / "pool", list(planted.groups(recipe)), task="math-2")
    (ran,) = run_studies(chosen(["adaptive"]), gather([path], confidence_window=8, use_cache=False), OPTIONS)
    assert ran.findings is not None
    (table,) = ran.findings.tables
    values = [row.cells[5].value for row in table.rows]
    assert all(isinstance(value, float) and 0 <= value <= 1 for value in values)
    assert list(dict.fromkeys(row.section for row in table.rows)) == ["math", "math, preset best"]
    for chart in ran.findings.charts:
        assert [one.name for one in chart.plots[0].series][-1] == "DeepConf online"
        assert len(draw(chart, tmp_path / "drawn")) == 2


def test_more_resamples_do_not_change_the_estimates() -> None:
    one, other = (adaptive(evidence(hard("math", problems=12)), replace(OPTIONS, resamples=r)) for r in (300, 600))
    assert [row.cells[5].value for row in one.tables[0].rows] == pytest.approx(
        [row.cells[5].value for row in other.tables[0].rows]
    )
