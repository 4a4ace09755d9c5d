"""Findings as files: every number that was decided stands on the page, in the JSON and in the ledger."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

from PIL import Image

from planted_panels import evidence, panel
from radmoe.evaluation.render import markdown_text
from radmoe.report.readings import read_readings
from radmoe.report.studies import Source, ledger, rules, write_study
from radmoe.studies.base import Options, Ran, load, study_named
from radmoe.studies.paper.readouts import READOUTS
from radmoe.studies.run import run_studies

ROOT = Path(__file__).parents[2]
SOURCE = Source("radmoe study readouts POOL...", {"pool": "0" * 64})


def readouts(**options: object) -> Ran:
    planted = evidence(panel(requests=READOUTS, **options))  # type: ignore[arg-type]
    (ran,) = run_studies([study_named("readouts")], planted, Options(quick=True))
    return ran


def test_a_study_is_a_page_csv_json_and_figures(tmp_path: Path) -> None:
    files = write_study(readouts(), tmp_path, SOURCE)
    assert {file.name for file in files} == {f"readouts.{end}" for end in ("md", "csv", "json", "svg", "png")}
    body = json.loads((tmp_path / "readouts.json").read_text())
    assert SOURCE.digest in (tmp_path / "readouts.svg").read_text()
    with Image.open(tmp_path / "readouts.png") as image:
        assert image.info["Description"] == str(SOURCE)
    assert body["pools"] == {"pool": "0" * 64}
    page = (tmp_path / "readouts.md").read_text()
    for decision in body["decisions"]:
        assert decision["rule"] in page
        assert f"{decision['verdict'].capitalize()}: {decision['estimate']:.2f}" in page
    with (tmp_path / "readouts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 6  # one configuration and all; problems and five readouts


def test_a_hostile_model_name_breaks_neither_page_nor_table(tmp_path: Path) -> None:
    write_study(readouts(model="a|b\x1b[31m<script>\n# x"), tmp_path, SOURCE)
    page = (tmp_path / "readouts.md").read_text()
    assert "\x1b" not in page
    assert "\n# x" not in page
    assert "a\\|b" in page
    assert "\\<script>" in page


def test_the_ledger_has_every_decision_and_what_was_left_out() -> None:
    lacking = Ran(study_named("readouts"), lacking=("needs programs: radmoe capture --task code",))
    text = ledger([readouts(), lacking], SOURCE, cited="abc1234")
    assert text.count("| 2 readouts |") == 2
    assert "docs/rules.md at abc1234" in text
    assert "Left out:\n\n- 2 readouts: needs programs: radmoe capture" in text


def test_the_ledger_shows_readings_beside_verdicts() -> None:
    key = "readouts.marker-then-window"
    text = ledger([readouts()], SOURCE, readings={key: "As | expected."})
    (line,) = (line for line in text.splitlines() if line.startswith(f"- **{key}: "))
    assert "cannot tell.** As \\| expected. *Rule:* Two differences" in line


def test_the_committed_ledger_has_a_reading_for_every_claim() -> None:
    """Where the lab refutes a claim or cannot tell, somebody looked into why."""
    text = (ROOT / "docs" / "claims.md").read_text()
    keys = re.findall(r"^- \*\*([\w.-]+): ", text, re.MULTILINE)
    readings = read_readings(ROOT / "docs" / "readings.toml", keys)
    assert len(keys) == text.count("\n| ") - 2 > 60
    assert set(readings) == set(keys)
    assert all(markdown_text(reading) in text for reading in readings.values())


def test_the_page_of_rules_is_that_of_the_code() -> None:
    page = ROOT / "docs" / "rules.md"
    assert page.read_text() == rules(load().values()), "radmoe study --rules > docs/rules.md"
