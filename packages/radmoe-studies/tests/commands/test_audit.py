"""`radmoe audit` as typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from radmoe.errors import InputError
from radmoe_studies.commands import audit

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    app = typer.Typer()
    app.command("audit", epilog=audit.EXAMPLES)(audit.command)
    return lambda *words: CliRunner().invoke(app, list(map(str, words)))


def test_the_summary_counts_every_table_and_shows_what_differs(run: Run) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert any(line.split()[:3] == ["dc", "310", "471"] for line in lines)
    assert "(120 x 69.2 + 120 x 73.3) / 240 = 71.25" in result.stdout
    assert "agrees" not in result.stdout  # single checks only with --all


def test_json_holds_every_check(run: Run) -> None:
    shown = json.loads(run("--json").stdout)
    assert shown["total"]["checks"] == len(shown["checks"]) == sum(t["checks"] for t in shown["tables"])
    assert {"table", "row", "figure", "published", "recomputed", "low", "high", "verdict", "arithmetic"} == set(
        shown["checks"][0]
    )


@pytest.mark.parametrize("name", ["wjja-power", "tab:wjja-power"])
def test_one_table_can_be_asked_for(run: Run, name: str) -> None:
    checks = json.loads(run("--table", name, "--json").stdout)["checks"]
    assert len(checks) == 32
    assert {c["table"] for c in checks} == {"wjja-power"}


def test_all_prints_one_line_per_check(run: Run) -> None:
    result = run("--table", "wjja-main", "--all")
    assert "agrees  wjja-main, Pooled, p: 0.248; min(1, 2 P(X <= 391)) = 0.24798, X ~ Bin(816, 1/2)" in result.stdout
    assert sum(line.startswith("agrees") for line in result.stdout.splitlines()) == 57
    assert "no figure differs" in result.stdout


def test_out_writes_the_whole_report_whatever_is_shown(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "audit.md"
    result = run("--table", "prose", "--out", file)
    assert result.exit_code == 0, result.output
    page = file.read_text(encoding="utf-8")
    assert page.startswith("# Audit")
    assert "tab:marker-only" in page
    assert "report written to" in result.stdout


def test_an_unknown_table_is_named_with_the_known_ones(run: Run) -> None:
    error = run("--table", "nope").exception
    assert isinstance(error, InputError)
    assert "'nope'" in str(error)
    assert "wjja-power" in str(error)


def test_a_report_that_cannot_be_written_is_one_line(run: Run, tmp_path: Path) -> None:
    error = run("--out", tmp_path / "missing" / "audit.md").exception
    assert isinstance(error, InputError)
    assert "cannot be written" in str(error)
