"""The newcomer's first command, on the shipped models."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from command_line import radmoe
from printed_commands import follow
from published_results import evaluation
from radmoe_lab.commands import demo
from radmoe_studies.report import results


@pytest.mark.slow
def test_demo_samples_real_models_compares_draws_and_can_be_repeated(tmp_path: Path) -> None:
    first, second = (radmoe("demo", "--out", tmp_path, "-n", 4, "--limit", 2).stdout for _ in range(2))
    for word in ("lab-qwen", "lab-oss", "majority of answers", "RAD+DC", "oracle", "together"):
        assert word in first
    pictures = sorted((tmp_path / "pictures").rglob("*.png"))
    assert len(pictures) == 2 * 2 * 2
    assert all(str(picture) in first for picture in pictures)
    tables = [[line for line in text.splitlines() if line.startswith("│")] for text in (first, second)]
    assert len(tables[0]) == 2 * 5
    assert tables[0] == tables[1]
    assert "8 of them from before" in second
    radmoe("verify", tmp_path / "lab-qwen-code-n4-s0")
    assert [call[1] for call in follow(first, tmp_path, "demo")] == ["select", "evaluate", "inspect"]
    committed, blank, last = first.strip().splitlines()[-3:]
    assert committed.endswith("(Holm).")
    assert (blank, str(tmp_path / "report.html") in last) == ("", True)
    assert (tmp_path / "report.html").stat().st_size < 3_000_000


@pytest.mark.slow
def test_the_committed_result_is_shown_as_one_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "full.json")
    whole = results.condense(evaluation(tmp_path / "all.json"), command="make reproduce SCALE=full", date="2026-01-02")
    results.write_results(whole, tmp_path / "full.json")
    demo._committed()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "At full size: a committed result of 2026-01-02, which make reproduce SCALE=full makes again"
    assert [word for word in lines[1].split() if word != "gain"] == ["method", "math", "choice", "all", "code", "text"]
    assert lines[2].split() == ["n", "12", "12", "24", "12"]
    assert any(line.startswith("3 configurations, 20 problems") for line in lines)


def test_without_the_studies_a_line_says_where_the_results_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "radmoe_studies.report.results", None)
    demo._committed()
    assert capsys.readouterr().out == "The results at full size are in radmoe-studies, which is not installed.\n"
