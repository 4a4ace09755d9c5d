"""Study 13 on panels whose widths and anchors gain what was planted, and on a real pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from planted_panels import evidence
from planted_picks import with_picks
from radmoe.selection.readout import Readout
from radmoe_lab.planted import Planted
from radmoe_studies.base import Findings, Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.paper.width_recency import WIDEST, WIDTHS, fixed, recency, wanted, width_recency
from studied_pools import studied

OPTIONS = Options(resamples=400)
ALL = {"width-alone-gains", "small-windows-ride-recency", "the-bonus-shrinks-with-width"}


def width_of(wish: Request) -> int:
    return int(Readout.parse(wish.readout).width)


def as_in_the_paper(wish: Request) -> float:
    """Width gains up to 20 points, and recency 15 at W = 1, less and less above."""
    bonus = 0.15 / width_of(wish) if wish.among is not None else 0.0
    return 0.6 + 0.2 * (width_of(wish) - 1) / (WIDEST - 1) + bonus


def the_other_way_round(wish: Request) -> float:
    bonus = 0.15 * (width_of(wish) / 32) - 0.1 if wish.among is not None else 0.0
    return 0.7 - 0.2 * (width_of(wish) - 1) / (WIDEST - 1) + bonus


def made(chance: Callable[[Request], float], located: float = 1.0) -> Panel:
    return with_picks(
        wanted,
        chance,
        located=lambda wish: located,
        start=lambda wish: 100 - width_of(wish),
        problems=800,
        n=8,
        right=0.5,
    )


def verdicts(findings: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in findings.decisions}


def test_width_and_recency_are_found_where_they_were_planted() -> None:
    found = width_recency(evidence(made(as_in_the_paper)), OPTIONS)
    assert verdicts(found) == dict.fromkeys(ALL, ClaimVerdict.SUPPORTS)
    rows = [row.cells for row in found.tables[0].rows if row.section == "these pools"]
    assert [rows[0][1].value, rows[-1][1].value] == pytest.approx([0.1, 0.3], abs=0.04)
    assert [cells[5].value for cells in rows] == pytest.approx([0.15 / width for width in WIDTHS[:-1]] + [0], abs=0.03)
    assert rows[-1][5].value == 0  # the two strategies are one at the widest
    assert [cells[7].value for cells in rows] == [100 - width for width in WIDTHS]


def test_width_and_recency_that_cost_refute_it() -> None:
    assert verdicts(width_recency(evidence(made(the_other_way_round)), OPTIONS)) == dict.fromkeys(
        ALL, ClaimVerdict.REFUTES
    )


def test_strategies_that_are_alike_are_told_apart_no_more_often_than_by_chance() -> None:
    """Each rule supports by mistake in a twentieth of all panels: 3 of 60 are expected here, and over 9 are hardly possible."""
    supported = 0
    for seed in range(20):
        panel = with_picks(wanted, lambda wish: 0.7, problems=300, n=4, right=0.5, seed=seed)
        found = width_recency(evidence(panel), Options(resamples=200))
        supported += list(verdicts(found).values()).count(ClaimVerdict.SUPPORTS)
    assert supported <= 9


def test_without_a_rollout_that_holds_the_widest_window_there_is_no_verdict() -> None:
    for nothing, why in (
        (evidence(made(as_in_the_paper, 0.0)), "Too few problems"),
        (evidence(), "these pools have none"),
    ):
        found = width_recency(nothing, OPTIONS)
        assert (found.tables, found.charts, found.decisions) == ((), (), ())
        assert why in found.notes[0]


def test_a_real_pool_is_read_on_one_subset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, panel = studied(
        "width-recency", OPTIONS, Planted(problems=5, rollouts=10, tokens=100), tmp_path, monkeypatch
    )
    assert set(verdicts(found)) == ALL
    widest = panel.read(fixed(WIDEST)).start
    assert (widest >= 0).any()
    for width in WIDTHS:
        assert np.array_equal(panel.read(fixed(width)).start, widest)
        start = panel.read(recency(width)).start
        assert np.array_equal(start >= 0, widest >= 0)
        assert (start >= widest).all()
    assert (panel.read(recency(1)).start > widest).any()
