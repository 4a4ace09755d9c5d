"""RAD+DC on panels picks what `select` picks, on a real planted pool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_pools import graded_pool
from radmoe.errors import InputError, MethodUnavailable
from radmoe.evaluation.pools import open_graded
from radmoe.selection.rule import Rule
from radmoe.selection.selector import select
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.evidence import WINDOW, Evidence, gather
from radmoe_studies.fusions import fused, fused_picks
from radmoe_studies.picks import standard


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))


def opened(path: Path, **recipe: object) -> Evidence:
    groups = list(planted.groups(Planted(problems=12, rollouts=13, tokens=120, **recipe)))  # type: ignore[arg-type]
    evidence = gather([graded_pool(path, groups)])
    evidence.read(lambda panel: [standard(panel)])
    return evidence


@pytest.mark.parametrize("rule", ["conf50", "ranksum"])
def test_picks_are_those_of_select(tmp_path: Path, rule: str) -> None:
    (panel,) = opened(tmp_path / "pool").panels
    expected = [
        select(problem.group, kind="math", fusion=rule, rule=Rule(confidence_window=WINDOW)).index
        for problem in open_graded(tmp_path / "pool")[0]
    ]
    chosen = fused_picks(panel, rule)
    assert chosen.tolist() == expected
    assert fused(panel, rule).tolist() == [panel.correct[row, pick] for row, pick in enumerate(chosen)]


def test_the_rules_differ_somewhere_so_that_the_comparison_can_fail(tmp_path: Path) -> None:
    (panel,) = opened(tmp_path / "pool").panels
    assert (fused_picks(panel, "conf50") != fused_picks(panel, "ranksum")).any()


def test_a_pool_without_logprobs_has_no_fusion(tmp_path: Path) -> None:
    (panel,) = opened(tmp_path / "pool", logprobs=False).panels
    with pytest.raises(MethodUnavailable):
        fused_picks(panel)
    assert np.isnan(fused(panel)).all()


def test_an_unknown_rule_is_refused(tmp_path: Path) -> None:
    (panel,) = opened(tmp_path / "pool").panels
    with pytest.raises(InputError, match="conf50, ranksum"):
        fused_picks(panel, "sum")
