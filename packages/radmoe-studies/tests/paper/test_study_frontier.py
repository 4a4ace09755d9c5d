"""Study 11 on panels whose anchors gain and cover what was planted, and on a real pool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_panels import evidence, relabelled
from planted_picks import with_picks
from radmoe_lab.planted import Planted
from radmoe_studies.base import Findings, Options
from radmoe_studies.budgets import ANCHORS, BUDGETS, EARLY, LATE, request, wanted
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Panel, Read, Request
from radmoe_studies.paper.frontier import frontier
from studied_pools import studied

OPTIONS = Options(resamples=400)
ALL = {
    "early-is-cheap", "late-is-certain", "early-and-late-cross", "late-cohorts-are-better", "every-model-gains-early",
}  # fmt: skip


def is_late(wish: Request) -> bool:
    return not wish.readout.startswith("trajectory")


def as_in_the_paper(wish: Request) -> float:
    return 0.9 if is_late(wish) else 0.7


def covered_late(wish: Request) -> float:
    return 0.05 if is_late(wish) and (wish.budget or 0) <= EARLY else 1.0


def favour_right(panel: Panel, share: float) -> Panel:
    """At the largest budget, some of the wrong rollouts do not reach the late anchors."""
    rng = np.random.default_rng(3)
    for anchor in ("boundary", "delimiter"):
        values, start = panel.reads[request(anchor, LATE)]
        gone = (rng.random(start.shape) < share) & ~panel.correct & (values < 9)
        panel.reads[request(anchor, LATE)] = Read(np.where(gone, np.nan, values), np.where(gone, -1, start))
    return panel


def planted_panels(chance: object, cover: object, share: float) -> list[Panel]:
    return [
        favour_right(
            with_picks(
                wanted, chance, located=cover, problems=400, n=16, right=0.5, style=style, seed=seed  # type: ignore[arg-type]
            ),
            share,
        )
        for seed, style in enumerate(("thinking", "high"))
    ]  # fmt: skip


def verdicts(findings: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in findings.decisions}


def test_the_papers_frontier_is_found_where_it_was_planted() -> None:
    found = frontier(evidence(*planted_panels(as_in_the_paper, covered_late, 0.5)), OPTIONS)
    assert verdicts(found) == dict.fromkeys(ALL, ClaimVerdict.SUPPORTS)
    gains = {str(row.cells[0].value): row for row in found.tables[0].rows if row.section == "these pools"}
    assert gains[str(LATE)].cells[9].value == pytest.approx(0.4, abs=0.03)  # the delimiter: 0.9 against 0.5
    assert gains[str(LATE)].cells[3].value == pytest.approx(0.2, abs=0.03)  # So*


def test_late_anchors_that_are_everywhere_and_worse_refute_it() -> None:
    def worse(wish: Request) -> float:
        return 0.2 if is_late(wish) else 0.3

    def cover(wish: Request) -> float:
        return 1.0 if is_late(wish) else 0.05 if (wish.budget or 0) <= EARLY else 1.0

    panels = planted_panels(worse, cover, 0.0)
    for panel in panels:  # right rollouts do not reach the delimiter
        values, start = panel.reads[request("delimiter", LATE)]
        gone = panel.correct & (values < 9) & (np.arange(panel.n) > 4)
        panel.reads[request("delimiter", LATE)] = Read(np.where(gone, np.nan, values), np.where(gone, -1, start))
    found = frontier(evidence(*panels), OPTIONS)
    assert verdicts(found) == dict.fromkeys(ALL, ClaimVerdict.REFUTES)


def test_the_wrong_baseline_inflates_the_gain_where_few_rollouts_are_located() -> None:
    found = frontier(evidence(*planted_panels(as_in_the_paper, lambda wish: 0.5, 0.0)), OPTIONS)
    row = found.tables[4].rows[0]
    located, honest, wrong, ratio = (float(str(cell.value)) for cell in row.cells[1:])
    assert located == pytest.approx(0.5, abs=0.06)
    assert wrong - honest == pytest.approx(0.5 * (1 - located), abs=0.05)  # half of all rollouts are right
    assert ratio == pytest.approx(wrong / honest, abs=0.01)


def test_one_configuration_cannot_speak_for_every_model() -> None:
    found = frontier(evidence(planted_panels(as_in_the_paper, covered_late, 0.5)[0]), OPTIONS)
    assert set(verdicts(found)) == ALL - {"every-model-gains-early"}
    assert any("every-model-gains-early" in note for note in found.notes)


def test_anchors_that_nobody_reaches_leave_empty_cells() -> None:
    panels = planted_panels(as_in_the_paper, lambda wish: float(not is_late(wish)), 0.0)
    found = frontier(evidence(*panels), OPTIONS)
    assert set(verdicts(found)) == {"early-is-cheap", "every-model-gains-early"}
    assert all(row.cells[9].value is None for row in found.tables[0].rows if row.section == "these pools")
    assert all(np.isfinite(series.y).all() for plot in found.charts[0].plots for series in plot.series)


@pytest.mark.parametrize("right", [True, False])
def test_problems_that_are_all_right_or_all_wrong_gain_nothing(right: bool) -> None:
    panel = planted_panels(as_in_the_paper, covered_late, 0.0)[0]
    panel = relabelled(panel, correct=np.full_like(panel.correct, right))
    found = frontier(evidence(panel), OPTIONS)
    cells = [cell.value for row in found.tables[0].rows if row.section == "these pools" for cell in row.cells[1:]]
    assert set(cells) <= {0.0, None}


def test_a_real_pool_moves_on_with_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, panel = studied("frontier", OPTIONS, Planted(problems=6, rollouts=12, tokens=150), tmp_path, monkeypatch)
    assert len(found.tables[0].rows) == len(BUDGETS) + 5
    start = {(a, b): panel.read(request(a, b)).start for a in ANCHORS for b in (128, 512)}
    located = (start["So", 128] >= 0) & (start["So", 512] >= 0)
    assert (start["first So", 512] == start["first So", 128])[located].all()
    assert (start["So", 512] >= start["So", 128])[located].all()
    assert (start["So", 512] > start["So", 128])[located].any()
    assert (start["So*", 512] >= start["So", 512])[located].all()
    delimiter = start["delimiter", 512]
    assert (start["So* before the delimiter", 512] < delimiter)[delimiter >= 0].all()
    assert (start["So*", 512] > delimiter)[delimiter >= 0].any()  # "and so the problem is solved"
