"""Study 4 on panels whose purity takes the course over rounds that was planted, and on a pool on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_panels import evidence, panel
from planted_pools import graded_pool
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.base import Findings, Options, study_named
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Read, Request, gather
from radmoe_studies.paper.anchor_rounds import ANCHORS, ROUNDS, WINDOW, anchor_rounds, reached, request, trace
from radmoe_studies.run import run_studies

OPTIONS = Options(resamples=400)
PAPERS = (0.0, 0.01, 0.03, 0.04, 0.04, 0.04)


def planted_panel(
    course: tuple[float, ...], delimiter: float, *, last: int = 8, at: int = 400, step: int = 20, right: float = 0.5
) -> Panel:
    """A panel whose rounds carry this signal and begin `step` tokens apart; rounds behind the last are not there."""
    signal: dict[Request, float] = {WINDOW: delimiter}
    for anchor in ANCHORS:
        signal |= {request(anchor, r): strength for r, strength in zip(ROUNDS, course, strict=True)}
    one = panel(requests=list(signal), signal=signal, right=right, wrong_answers=1)
    for wanted, read in list(one.reads.items()):
        r = 0 if wanted == WINDOW else int(wanted.readout.partition("#")[2].partition("@")[0])
        start = at if wanted == WINDOW else step * r if r <= last else -1
        one.reads[wanted] = Read(read.values, np.full_like(read.start, start))
    return one


def verdicts(found: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_a_steep_rise_a_plateau_and_a_jump_are_found_where_they_were_planted() -> None:
    found = anchor_rounds(evidence(planted_panel(PAPERS, 0.3)), OPTIONS)
    assert verdicts(found) == {"steep-then-plateau": ClaimVerdict.SUPPORTS, "delimiter-jump": ClaimVerdict.SUPPORTS}
    table = found.tables[0]
    assert [row.cells[0].value for row in table.rows] == [*map(str, ROUNDS)] * 2
    assert abs(float(table.rows[0].cells[2].value or 0)) < 0.05
    assert float(table.rows[0].cells[6].value or 0) > 0.9  # the delimiter's window over the same rollouts


def test_a_late_rise_without_a_jump_refutes_both() -> None:
    found = anchor_rounds(evidence(planted_panel((0.0, 0.0, 0.0, 0.0, 0.1, 0.3), 0.3)), OPTIONS)
    assert verdicts(found) == {"steep-then-plateau": ClaimVerdict.REFUTES, "delimiter-jump": ClaimVerdict.REFUTES}


def test_rounds_that_most_problems_do_not_reach_do_not_count() -> None:
    few = anchor_rounds(evidence(planted_panel(PAPERS, 0.3, last=2)), OPTIONS)
    assert set(verdicts(few)) == {"delimiter-jump"}
    assert sum("its rise was not judged" in note for note in few.notes) == 2
    assert few.tables[0].rows[4].cells[2].value is None
    assert len(few.charts[0].plots[0].series[0].x) == 2


def test_anchors_behind_the_delimiter_are_left_out_and_windows_that_reach_into_it_are_told_apart() -> None:
    one = planted_panel(PAPERS, 0.3, at=65)  # rounds begin at 20, 40, 60, 80: the third window holds the delimiter
    own = trace(one, "so")
    assert reached([own]) == 3
    assert np.isfinite(own.rounds["majority"][:, 2]).all()
    assert np.isfinite(own.before[:, 1]).all()
    assert np.isnan(own.before[:, 2]).all()
    assert np.isnan(own.rounds["majority"][:, 3:]).all()


def test_a_round_that_few_rollouts_reach_has_no_purity() -> None:
    one = planted_panel(PAPERS, 0.3)
    one.read(request("so", 4)).start[:, 10:] = -1
    assert np.isnan(trace(one, "so").rounds["majority"][:, 3]).all()
    assert np.isfinite(trace(one, "so").rounds["majority"][:, 2]).all()


def test_where_everyone_is_right_nothing_is_decided() -> None:
    none = anchor_rounds(evidence(planted_panel(PAPERS, 0.3, right=1.0)), OPTIONS)
    assert none.decisions == ()
    assert all(cell.value is None for row in none.tables[0].rows for cell in row.cells[2:])


def test_without_math_the_study_says_what_it_lacks() -> None:
    (ran,) = run_studies([study_named("4")], evidence(panel(kind="choice", dataset="choice")), OPTIONS)
    assert ran.findings is None
    assert "needs math problems" in ran.lacking[0]


def test_on_a_pool_the_rounds_are_those_of_the_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    pool = graded_pool(tmp_path / "pool", list(planted.groups(Planted(problems=12, rollouts=48, basins=2, tokens=160))))
    seen = gather([pool])
    (ran,) = run_studies([study_named("anchor-rounds")], seen, OPTIONS)
    assert ran.findings is not None
    (own,) = seen.panels
    first, second = (own.read(request("so", r)).start for r in (1, 2))
    assert (second[second >= 0] > first[second >= 0]).all()
    assert verdicts(ran.findings)["delimiter-jump"] == ClaimVerdict.SUPPORTS  # basins are planted from the answer on
