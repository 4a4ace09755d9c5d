"""Study 8 on panels in which it is known which rollouts are located."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_panels import evidence, panel
from planted_pools import graded_pool
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.base import Options, study_named
from radmoe_studies.evidence import Read, Request, gather
from radmoe_studies.paper.coverage import coverage
from radmoe_studies.run import run_studies

OPTIONS = Options(resamples=300)
REQUEST = Request("delimiter@16")


def test_cases_are_counted_and_the_papers_stand_beside_them() -> None:
    one = panel(problems=10, n=8, requests=[REQUEST])
    start = np.full((10, 8), 40, np.int32)
    start[6:9, 2:] = -1  # case b: two of eight
    start[9, 1:] = -1  # case c: one of eight
    one.answer[0, 0] = -1
    one.reads[REQUEST] = Read(one.read(REQUEST).values, start)
    found = coverage(evidence(one), OPTIONS)
    assert found.decisions == ()
    rows = {row.cells[0].value: [cell.value for cell in row.cells[1:]] for row in found.tables[0].rows}
    assert rows["all"] == [10, 0.6, 0.3, 0.1, (48 + 6 + 1) / 80, 79 / 80]
    assert rows["paper"][1:5] == [0.75, 0.24, 0.008, 0.93]
    assert rows["paper"][5] is None


def test_rollouts_that_are_not_there_do_not_count_as_missing() -> None:
    one = panel(problems=6, n=8, requests=[REQUEST])
    one.here[:, 6:] = False
    one.reads[REQUEST].start[:, 6:] = -1
    one.answer[:, 6:] = -1
    (row,) = [row for row in coverage(evidence(one), OPTIONS).tables[0].rows if row.cells[0].value == "all"]
    assert [cell.value for cell in row.cells[2:]] == [1.0, 0.0, 0.0, 1.0, 1.0]


def test_code_has_its_own_section_and_no_paper_row() -> None:
    found = coverage(
        evidence(panel(requests=[REQUEST]), panel(requests=[REQUEST], kind="code", dataset="code", located=0.5)),
        OPTIONS,
    )
    sections = [(row.section, row.cells[0].value) for row in found.tables[0].rows]
    assert sections == [
        ("well-posed", "lab-qwen thinking"),
        ("well-posed", "all"),
        ("well-posed", "paper"),
        ("code", "lab-qwen thinking"),
        ("code", "all"),
    ]
    assert abs(float(found.tables[0].rows[-1].cells[5].value or 0) - 0.5) < 0.05
    assert [plot.title for plot in found.charts[0].plots] == ["well-posed", "code"]


def test_a_planted_pool_misses_the_share_of_delimiters_that_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RADMOE_CACHE", str(tmp_path / "cache"))
    groups = list(planted.groups(Planted(problems=6, rollouts=12, tokens=40)))
    seen = gather([graded_pool(tmp_path / "pool", groups)])
    (ran,) = run_studies([study_named("8")], seen, OPTIONS)
    assert ran.findings is not None
    answered = np.mean([[answer is not None for answer in made.answers] for made in groups])
    row = next(row for row in ran.findings.tables[0].rows if row.cells[0].value == "all")
    assert row.cells[5].value == pytest.approx(answered)
    assert row.cells[6].value == pytest.approx(answered)
