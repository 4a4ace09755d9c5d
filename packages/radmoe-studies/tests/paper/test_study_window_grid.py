"""Study 12 on panels whose windows gain what was planted, and on a real pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planted_panels import evidence
from planted_picks import with_picks
from radmoe.selection.readout import Readout
from radmoe_lab.planted import Planted
from radmoe_studies.base import Findings, Options
from radmoe_studies.budgets import LATE
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Request
from radmoe_studies.paper.window_grid import BUDGETS, CELLS, MIDDLE, WIDTHS, honest, leaking, wanted, window_grid
from studied_pools import studied

OPTIONS = Options(resamples=400)
ALL = {"small-windows-are-near-optimal", "only-a-large-budget-favours-width", "leaking-windows-gain"}


def width_of(wish: Request) -> int:
    return int(Readout.parse(wish.readout).width)


def as_in_the_paper(wish: Request) -> float:
    width = width_of(wish)
    if wish.budget == LATE:
        return 0.6 + 0.001 * width
    return 0.7 if width in (8, 16) or wish.at is not None else 0.6


def the_wider_the_better(wish: Request) -> float:
    """But not at the largest budget, and leaking is of no use."""
    width = width_of(wish)
    if wish.at is not None:
        return 0.3
    return 0.7 - 0.001 * width if wish.budget == LATE else 0.5 + 0.004 * width


def made(chance: Callable[[Request], float], located: Callable[[Request], float] = lambda wish: 1.0) -> Panel:
    return with_picks(wanted, chance, located=located, problems=800, n=8, right=0.5)


def verdicts(findings: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in findings.decisions}


def test_the_papers_grid_is_found_where_it_was_planted() -> None:
    found = window_grid(evidence(made(as_in_the_paper)), OPTIONS)
    assert verdicts(found) == dict.fromkeys(ALL, ClaimVerdict.SUPPORTS)
    late = next(row for row in found.tables[0].rows if row.cells[0].value == str(LATE))
    assert late.cells[8].value == pytest.approx(0.228, abs=0.05)  # W = 128: 0.728 against 0.5
    grid = found.charts[0].plots[0].grid
    assert grid is not None
    assert (BUDGETS.index(LATE), WIDTHS.index(128)) in grid.boxed
    assert {j for i, j in grid.boxed if BUDGETS[i] in MIDDLE} <= {WIDTHS.index(8), WIDTHS.index(16)}


def test_wide_windows_that_gain_at_middle_budgets_refute_it() -> None:
    found = window_grid(evidence(made(the_wider_the_better)), OPTIONS)
    assert verdicts(found) == dict.fromkeys(ALL, ClaimVerdict.REFUTES)


def test_cells_that_do_not_fit_are_hatched_and_empty() -> None:
    found = window_grid(evidence(made(as_in_the_paper)), OPTIONS)
    grid = found.charts[0].plots[0].grid
    assert grid is not None
    unfit = {(i, j) for i, b in enumerate(BUDGETS) for j, w in enumerate(WIDTHS) if (b, w) not in CELLS}
    assert set(grid.hatched) == unfit
    assert all(grid.values[i][j] is None for i, j in unfit)


def test_a_window_that_fits_in_few_problems_gains_nothing_elsewhere() -> None:
    def few(wish: Request) -> float:
        return 0.1 if width_of(wish) > 16 and wish.at is None else 1.0

    found = window_grid(evidence(made(lambda wish: 0.75, few)), OPTIONS)
    assert verdicts(found)["small-windows-are-near-optimal"] is ClaimVerdict.SUPPORTS
    assert verdicts(found)["leaking-windows-gain"] is ClaimVerdict.SUPPORTS  # it reads what does not fit


def test_without_any_window_there_is_no_verdict() -> None:
    found = window_grid(evidence(made(as_in_the_paper, lambda wish: 0.0)), OPTIONS)
    assert (found.decisions, found.tables) == ((), ())
    assert "No problem has two rollouts" in found.notes[0]


def test_claims_about_windows_that_fit_nowhere_are_left_out() -> None:
    found = window_grid(evidence(made(as_in_the_paper, lambda wish: float(width_of(wish) <= 16))), OPTIONS)
    assert "only-a-large-budget-favours-width" not in verdicts(found)
    assert any("only-a-large-budget-favours-width cannot be tested" in note for note in found.notes)


def test_a_real_pool_keeps_to_its_budget_unless_it_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, panel = studied("window-grid", OPTIONS, Planted(problems=4, rollouts=10, tokens=150), tmp_path, monkeypatch)
    assert set(verdicts(found)) == ALL
    for budget, width in CELLS:
        read = panel.read(honest(budget, width))
        assert (read.start[read.located] + width <= budget).all()
        assert (read.start[read.located] + width <= panel.lengths[read.located]).all()
    read = panel.read(leaking(64, 64))
    assert (read.start[read.located] + 64 > 64).any()
    assert (read.start[read.located] < 64).all()
