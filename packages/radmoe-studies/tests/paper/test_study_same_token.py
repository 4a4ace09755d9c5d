"""Study 1 on planted pools whose routing depends on problem and effort, or on nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planted_panels import evidence, panel
from planted_pools import graded_pool
from radmoe.types import Rollout
from radmoe_lab import planted
from radmoe_lab.planted import Planted, PlantedGroup
from radmoe_studies.base import Findings, Options
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import gather
from radmoe_studies.paper.same_token import A, B, Leaks, chosen, judge_length, same_token

pytestmark = pytest.mark.slow

OPTIONS = Options(resamples=300)
EFFORTS = ("low", "medium", "high")
SIZE = 10


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))


def pools(directory: Path, agreement: float, *, own: bool) -> list[Path]:
    """Ten problems at three efforts. Routing depends on the token and on the problem as far as tokens agree; where
    every effort has routing of its `own`, its problems are those of another recipe under the same names."""
    recipe = Planted(problems=3 * SIZE, rollouts=14, tokens=30, basins=1, agreement=agreement)
    groups = list(planted.groups(recipe))
    paths = []
    for i, effort in enumerate(EFFORTS):
        mine = (
            groups[i * SIZE : (i + 1) * SIZE] if own else list(planted.groups(replace(recipe, problems=SIZE, seed=i)))
        )
        named = [_named(made, f"problem-{j}") for j, made in enumerate(mine)]
        paths.append(graded_pool(directory / effort, named, model="lab-oss", style=effort, task="math-2"))
    return paths


def _named(made: PlantedGroup, name: str) -> PlantedGroup:
    """The group under another name. Every third token of a planted rollout routes by its identity alone; here it routes as
    its neighbour does."""
    rollouts = []
    for rollout in made.group.rollouts:
        assert isinstance(rollout, Rollout)
        assert rollout.weights is not None
        row = np.arange(len(rollout))
        row = np.where(row % 3 == 0, np.maximum(row - 1, 1), row)
        rollouts.append(replace(rollout, expert_ids=rollout.expert_ids[row], weights=rollout.weights[row]))
    return replace(made, group=replace(made.group, problem_id=name, rollouts=rollouts))


def verdicts(found: Findings) -> dict[str, ClaimVerdict]:
    return {decision.claim.key.partition(".")[2]: decision.verdict for decision in found.decisions}


def test_routing_that_depends_on_problem_and_effort_tells_them_apart_at_the_same_token(tmp_path: Path) -> None:
    found = same_token(gather(pools(tmp_path, 1.0, own=True)), OPTIONS)
    assert verdicts(found) == {
        "problems": ClaimVerdict.SUPPORTS,
        "efforts": ClaimVerdict.SUPPORTS,
        "beyond-length": ClaimVerdict.SUPPORTS,
    }
    rows = {(row.section, row.cells[0].value): row.cells for row in found.tables[0].rows}
    assert rows[A, "all"][1].value == SIZE
    assert rows[A, "paper: below"][2].value == 0.05
    assert rows[B, "paper: below"][2].value == 0.01
    assert [chart.key for chart in found.charts] == ["same-token-problems", "same-token-efforts"]
    assert [series.name for series in found.charts[1].plots[0].series] == list(EFFORTS)
    assert len(found.charts[0].plots[0].series) == SIZE


def test_routing_that_depends_on_nothing_leaks_as_much_as_chance(tmp_path: Path) -> None:
    found = same_token(gather(pools(tmp_path, 0.0, own=False)), OPTIONS)
    assert verdicts(found)["problems"] == ClaimVerdict.REFUTES
    assert verdicts(found)["efforts"] == ClaimVerdict.REFUTES
    assert verdicts(found)["beyond-length"] != ClaimVerdict.SUPPORTS
    row = next(row for row in found.tables[0].rows if row.section == A and row.cells[0].value == "all")
    assert abs(float(row.cells[2].value or 0) - float(row.cells[4].value or 0)) < 0.1


def test_one_pool_alone_says_nothing_about_efforts(tmp_path: Path) -> None:
    found = same_token(gather(pools(tmp_path, 1.0, own=True)[:1]), OPTIONS)
    assert set(verdicts(found)) == {"problems", "beyond-length"}
    assert any("same-token.efforts was not decided" in note for note in found.notes)
    assert [chart.key for chart in found.charts] == ["same-token-problems"]


def test_panels_without_their_pools_decide_nothing() -> None:
    assert same_token(evidence(panel()), OPTIONS).decisions == ()


def test_ten_problems_are_drawn_that_every_panel_has() -> None:
    one, other = panel(problems=40), panel(problems=15, style="low")
    names = chosen([one, other], 0)
    assert len(names) == 10
    assert set(names) <= set(other.problem_ids)
    assert names == chosen([one, other], 0)
    assert names != chosen([one, other], 1)


def test_neighbours_that_are_strangers_more_often_than_chance_refute_that_routing_tells_more_than_length() -> None:
    one = panel(problems=12)
    for leaked, verdict in ((0.9, ClaimVerdict.REFUTES), (0.1, ClaimVerdict.SUPPORTS)):
        table = np.column_stack([np.full((12, 3), 0.5), np.full(12, leaked), np.full(12, 0.5)])
        (decision,) = judge_length([Leaks({one: table}, [])], OPTIONS, [])
        assert decision.verdict == verdict
        assert abs(decision.estimate - (leaked - 0.5)) < 1e-9
