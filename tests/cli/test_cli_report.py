"""`radmoe report`, as it is typed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from command_line import error, radmoe
from planted_pools import RECIPE, graded_pool
from radmoe.errors import InputError
from radmoe.pool import PoolWriter
from radmoe.report.explorer import PageOptions, write_report
from radmoe_lab import planted
from radmoe_lab.planted import PlantedGroup


@pytest.mark.slow
def test_a_report_is_written_and_named(made: list[PlantedGroup], tmp_path: Path) -> None:
    pool = graded_pool(tmp_path / "pool", made)
    out = tmp_path / "new" / "page.html"
    done = radmoe("report", pool, "--out", out, "--readout", "delimiter@16", "--limit", 2)
    assert done.stdout.startswith(f"{out}: ")
    assert done.stderr == "radmoe: the tables and the verdict are of all problems of the pools, not of these alone\n"
    html = out.read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert html.count('id="problem-') == 2
    radmoe("report", pool, "--out", tmp_path / "again.html", "--readout", "delimiter@16", "--limit", 2)
    assert (tmp_path / "again.html").read_bytes() == out.read_bytes()


@pytest.mark.slow
def test_the_pool_of_an_agents_runs_is_found_in_their_directory(made: list[PlantedGroup], tmp_path: Path) -> None:
    pool = graded_pool(tmp_path / "runs" / "pool", made[:1])
    for place in (pool, tmp_path / "runs"):
        radmoe("report", place, "--out", tmp_path / f"{place.name}.html")
    assert (tmp_path / "pool.html").read_bytes() == (tmp_path / "runs.html").read_bytes()
    assert f"{tmp_path} is not a pool" in error(radmoe("report", tmp_path, "--out", tmp_path / "x.html", expect=2))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"readouts": ("rand@16",)}, "a page cannot show rand@16"),
        ({"readouts": ("nonsense",)}, "unknown readout 'nonsense'"),
        ({"limit": 0}, "--limit must be at least 1, got 0"),
        ({"kind": "code"}, "--kind code contradicts it"),
    ],
)
def test_options_that_cannot_be_are_refused_and_nothing_is_written(
    shared_pool: Path, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        write_report([shared_pool], tmp_path / "page.html", PageOptions(**options))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_directory_and_rollouts_that_would_count_twice_are_refused(made: list[PlantedGroup], tmp_path: Path) -> None:
    pool, out = graded_pool(tmp_path / "pool", made), tmp_path / "page.html"
    assert f"--out {tmp_path} is a directory: name a file" in error(radmoe("report", pool, "--out", tmp_path, expect=2))
    assert "is given twice" in error(radmoe("report", pool, pool, "--out", out, expect=2))
    assert not out.exists()


def test_what_is_missing_is_noted_and_a_pool_of_nothing_is_refused(shared_pool: Path, tmp_path: Path) -> None:
    notes = write_report([shared_pool], tmp_path / "page.html")
    assert notes == ["planted: no labels, so nothing says which rollouts are right (radmoe grade writes them)"]
    with PoolWriter(tmp_path / "empty", shape=RECIPE.shape, vocab=planted.vocab(), model="none"):
        pass
    with pytest.raises(InputError, match="no problem to show"):
        write_report([tmp_path / "empty"], tmp_path / "page.html")
