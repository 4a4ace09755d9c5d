"""The recipe in CONTRIBUTING.md, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planted_panels import evidence, panel
from radmoe_studies.base import STUDIES, Options, StudyRun
from radmoe_studies.decision import ClaimVerdict
from radmoe_studies.evidence import Request
from radmoe_studies.report.studies import ReportSource, write_study
from radmoe_studies.run import run_studies

CONTRIBUTING = Path(__file__).parents[3] / "CONTRIBUTING.md"


@pytest.fixture
def lift() -> object:
    section = CONTRIBUTING.read_text().partition("### Add a study")[2].partition("### ")[0]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert code is not None
    before = dict(STUDIES)
    exec(compile(code[1], "recipe", "exec"), {})
    yield STUDIES["lift"]
    STUDIES.clear()
    STUDIES.update(before)


@pytest.mark.parametrize(
    ("signal", "right", "verdict"), [(0.3, 0.6, ClaimVerdict.SUPPORTS), (0.3, 0.15, ClaimVerdict.REFUTES)]
)
def test_the_recipe_decides_as_planted_and_writes_its_figure(
    lift: object, signal: float, right: float, verdict: ClaimVerdict, tmp_path: Path
) -> None:
    planted = panel(problems=120, right=right, wrong_answers=1, signal=signal, requests=[Request("delimiter@16")])
    ran: StudyRun
    (ran,) = run_studies([lift], evidence(planted), Options(resamples=1000))  # type: ignore[list-item]
    assert ran.findings is not None
    assert [decision.verdict for decision in ran.findings.decisions] == [verdict]
    files = write_study(ran, tmp_path, ReportSource("radmoe study lift POOL...", {}))
    assert {file.suffix for file in files} == {".md", ".csv", ".json", ".svg", ".png"}
