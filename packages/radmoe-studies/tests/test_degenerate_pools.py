"""Pools with nothing to compare: every study says so, and none fails or prints a number that is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from planted_pools import write_pool
from planted_trajectories import write_runs
from radmoe.grading.labels import Label, write_labels
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.base import Options, load
from radmoe_studies.evidence import gather
from radmoe_studies.run import run_studies

Mark = Callable[[str | None, str, int], tuple[str | None, bool]]


def graded(answer: str | None, truth: str, index: int) -> tuple[str | None, bool]:
    return answer, answer == truth


CASES: dict[str, tuple[Mark, dict[str, object]]] = {
    "all right": (lambda answer, truth, index: ("7", True), {}),
    "all wrong, each with its own answer": (lambda answer, truth, index: (str(index), False), {}),
    "no answer": (lambda answer, truth, index: (None, False), {}),
    "one problem": (graded, {"problems": 1}),
    "two rollouts": (graded, {"rollouts": 2}),
    "one rollout": (graded, {"rollouts": 1}),
    "programs alone": (graded, {"kind": "code"}),
    "no log-probabilities": (graded, {"logprobs": False}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_study_goes_on(case: str, tmp_path: Path) -> None:
    mark, changes = CASES[case]
    groups = list(planted.groups(Planted(**({"problems": 4, "rollouts": 10, "tokens": 80} | changes))))  # type: ignore[arg-type]
    pool = write_pool(tmp_path / "pool", groups, style="thinking", task="math-2")
    write_labels(
        pool,
        [
            Label(made.group.problem_id, i, *mark(answer, made.truth, i))
            for made in groups
            for i, answer in enumerate(made.answers)
        ],
    )
    check_every_study(pool)


def test_every_study_goes_on_with_trajectories_alone(tmp_path: Path) -> None:
    verdicts = write_runs(tmp_path, issues=4, n=6)
    pool = tmp_path / "pool"
    write_labels(pool, [Label(issue, run, "+1", right) for (issue, run), right in verdicts.items()])
    check_every_study(pool)


def check_every_study(pool: Path) -> None:
    """Run all studies: none fails, and none prints a number that is none."""
    rans = list(run_studies(list(load().values()), gather([pool], use_cache=False), Options(quick=True)))
    assert [ran.study.name for ran in rans] == list(load())
    assert not [ran.study.name for ran in rans if ran.failed]
    for ran in rans:
        assert (ran.findings is None) == bool(ran.lacking)
        cells = [
            cell for table in (ran.findings.tables if ran.findings else ()) for row in table.rows for cell in row.cells
        ]
        assert not [c for c in cells if isinstance(c.value, float) and not math.isfinite(c.value)], ran.study.name
