"""`radmoe evaluate --rivals` as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pools import graded_pool
from radmoe.cli import app
from radmoe.errors import InputError
from radmoe_lab import planted
from radmoe_lab.planted import Planted


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    groups = list(planted.groups(Planted(problems=4, rollouts=8, tokens=60, kind="code", seed=5)))
    return graded_pool(tmp_path / "pool", groups, task="code")


@pytest.mark.slow
def test_tables_by_kind_and_number_of_rollouts(pool: Path) -> None:
    result = CliRunner().invoke(
        app, ["evaluate", str(pool), "--rivals", "--fewer", "4", "--fewer", "6", "--resamples", "200", "--json"]
    )
    assert result.exit_code == 0, result.exception
    report = json.loads(result.stdout)
    assert [table["key"] for table in report["tables"]] == ["presets", "instead", "added", "strict"]
    regimes = [row["cells"][0]["value"] for row in report["tables"][0]["rows"]]
    assert (regimes[0], regimes[-2:]) == ("all code", ["N = 4", "N = 6"])


def test_more_rollouts_than_there_are_is_one_line(pool: Path) -> None:
    result = CliRunner().invoke(app, ["evaluate", str(pool), "--rivals", "--fewer", "64"])
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == f"no problem of {pool} has 64 rollouts, the most are 8: ask for fewer"
