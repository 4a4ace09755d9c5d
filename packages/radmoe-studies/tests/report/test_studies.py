"""Findings as files: every number that was decided stands on the page, in the JSON and in the ledger."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from planted_panels import evidence, panel
from radmoe.evaluation.render import markdown_text
from radmoe_studies.base import Options, StudyRun, load, study_named
from radmoe_studies.decision import Claim, above, corrected
from radmoe_studies.paper.readouts import READOUTS
from radmoe_studies.report.readings import Readings, read_readings
from radmoe_studies.report.studies import (
    ReportSource,
    by_name,
    decisions_of,
    ledger,
    rules,
    verdict_counts,
    verdict_text,
    write_study,
)
from radmoe_studies.resample import Quantity
from radmoe_studies.run import run_studies

ROOT = Path(__file__).parents[4]
SOURCE = ReportSource("radmoe study readouts POOL...", {"pool": "0" * 64})


def readouts(**options: object) -> StudyRun:
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
        assert re.search(f"{decision['verdict'].capitalize()}[^:]*: {decision['estimate']:.2f}", page)
    with (tmp_path / "readouts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 6  # one configuration and all; problems and five readouts


def test_pools_of_one_name_in_several_directories_all_count() -> None:
    pools = [Path("fresh/31/a"), Path("fresh/32/a"), Path("fresh/31/b")]
    assert by_name(pools) == dict(zip(("31/a", "32/a", "b"), pools, strict=True))


def test_a_hostile_model_name_breaks_neither_page_nor_table(tmp_path: Path) -> None:
    write_study(readouts(model="a|b\x1b[31m<script>\n# x"), tmp_path, SOURCE)
    page = (tmp_path / "readouts.md").read_text()
    assert "\x1b" not in page
    assert "\n# x" not in page
    assert "a\\|b" in page
    assert "\\<script>" in page


def test_the_ledger_has_every_decision_and_what_was_left_out() -> None:
    lacking = StudyRun(study_named("readouts"), lacking=("needs programs: radmoe capture --task code",))
    text = ledger([readouts(), lacking], SOURCE, cited="abc1234")
    assert text.count("| 2 readouts |") == 3
    assert "packages/radmoe-studies/docs/rules.md at abc1234" in text
    assert "Left out:\n\n- 2 readouts: needs programs: radmoe capture" in text


def test_the_ledger_shows_readings_beside_verdicts_and_those_of_before() -> None:
    key = "readouts.marker-knows"
    readings = Readings({key: "As | expected."}, {key: "cannot tell", "gone.claim": "supports"})
    text = ledger([readouts()], SOURCE, readings=readings)
    (line,) = (line for line in text.splitlines() if line.startswith(f"- **{key}: "))
    assert "refutes.** As \\| expected. *Rule:* The mean purity" in line
    assert "Changed on 2026-11-18, because instruct configurations were pooled" in line
    row = next(line for line in text.splitlines() if "The delimiter's own tokens already" in line)
    assert "| cannot tell | **refutes** |" in row
    assert "| new |" in next(line for line in text.splitlines() if "than any other of the five" in line)
    assert (
        "No longer claims, with their earlier verdicts (packages/radmoe-studies/docs/rules.md says why): gone.claim (supports)."
        in text
    )


def test_the_ledger_says_how_pools_were_sampled_and_counts_verdicts_with_corrections_beside_them() -> None:
    ran = readouts()
    assert ran.findings is not None
    made = corrected(ran.findings.decisions)
    ran = replace(
        ran, findings=replace(ran.findings, decisions=(made[0], made[1], replace(made[2], inexpressible="so")))
    )
    ways = {"temperature 0.7, top-p 0.9, seed 41": 1}
    text = ledger([ran], replace(SOURCE, sampling=ways))
    assert "sampled at temperature 0.7, top-p 0.9, seed 41: 1" in text
    assert "| p for / against | Holm | Benjamini-Hochberg |" in text
    counts = verdict_counts(decisions_of([ran]))
    assert counts.startswith("3 claims: ")
    assert "1 not expressible here" in counts
    assert "2 refutes (2 after Holm, 2 after Benjamini-Hochberg)" in counts
    assert f"**{counts}**" in text
    assert "Not expressible here: so." in text


def test_an_undecided_claim_names_the_problems_that_would_decide_it() -> None:
    claim = Claim("a.b", "A sentence.", "+1", "Sec. 1", "A rule.")
    spread = np.random.default_rng(0).normal(0.0, 0.01, 2000)
    wide = above(claim, Quantity(0.015, 0.015 + spread, frozenset(range(300))), unit="points", threshold=0.01)
    assert re.fullmatch(r"undecided \(about \d,\d00 problems would decide it\)", verdict_text(wide))
    at = above(claim, Quantity(0.01, 0.01 + spread, frozenset(range(300))), unit="points", threshold=0.01)
    assert "no number of problems" in verdict_text(at)


def test_the_committed_ledger_has_a_reading_for_every_claim() -> None:
    """Where the lab refutes a claim or leaves it open, somebody looked into why."""
    text = (ROOT / "packages/radmoe-studies/docs" / "claims.md").read_text()
    claims = {claim.key for study in load().values() for claim in study.claims}
    keys = [key for key in re.findall(r"^- \*\*([\w.-]+): ", text, re.MULTILINE) if key in claims]
    readings = read_readings(ROOT / "packages/radmoe-studies/docs" / "readings.toml", claims).texts
    assert len(keys) > 60
    assert set(keys) <= set(readings)
    assert all(markdown_text(readings[key]) in text for key in keys)


def test_earlier_verdicts_are_kept_for_every_claim_of_the_ledger_before() -> None:
    before = read_readings(
        ROOT / "packages/radmoe-studies/docs" / "readings.toml", {c.key for s in load().values() for c in s.claims}
    ).before
    assert len(before) >= 77
    assert set(before.values()) == {"supports", "refutes", "cannot tell"}


def test_the_page_of_rules_is_that_of_the_code() -> None:
    page = ROOT / "packages/radmoe-studies/docs" / "rules.md"
    assert page.read_text() == rules(load().values()), "radmoe study --rules > packages/radmoe-studies/docs/rules.md"
