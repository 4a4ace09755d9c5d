"""The committed result as a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import radmoe_studies
from published_results import evaluation
from radmoe.errors import InputError
from radmoe.evaluation.render import markdown_table
from radmoe.evaluation.table import Cell, Column, Pair, Row, Table
from radmoe_studies.report import results
from radmoe_studies.report.results import COMMITTED, TABLES, condense, read_results, write_results


@pytest.fixture
def condensed(tmp_path: Path) -> results.Results:
    return condense(evaluation(tmp_path / "all.json"), command="make reproduce", date="2026-01-02")


def test_what_is_written_reads_back_the_same(condensed: results.Results, tmp_path: Path) -> None:
    path = tmp_path / "package" / COMMITTED.name
    write_results(condensed, path)
    assert read_results(path) == condensed
    body = json.loads(path.read_text())
    assert (body["command"], body["date"], body["scale"]) == ("make reproduce", "2026-01-02", condensed.scale)
    assert set(body["versions"]) == {"radmoe", "python", "numpy"}


def test_a_table_reads_back_from_json_with_its_zeros() -> None:
    cells = (
        Cell("RAD"),
        Cell(0.0, "percent", low=0.0, high=0.5, gain=0.0, gain_low=0.0, gain_high=0.25, n=0, best=True),
        Cell(0.0, "points", pair=Pair(0, 3, 0.25, None), stars="*"),
        Cell(None, note="why"),
    )
    table = Table("k", "t", (Column("method"), *map(Column, "abc")), (Row(cells, "m"), Row(cells, "n")), ("note",))
    assert results.table_of(json.loads(json.dumps(table.to_json()))) == table


def test_the_tables_read_as_those_of_the_evaluation(condensed: results.Results, tmp_path: Path) -> None:
    whole = json.loads((tmp_path / "all.json").read_text())
    originals = {table["key"]: results.table_of(table) for table in whole["tables"]}
    assert list(condensed.tables) == list(TABLES)
    for key, table in condensed.tables.items():
        assert markdown_table(table) == markdown_table(originals[key])
        assert table.notes == originals[key].notes


def test_the_scale_is_counted_from_the_pools(condensed: results.Results) -> None:
    assert condensed.scale == (
        "3 configurations, 20 problems (math-1 4, choice 4, code 4, code-wide 4, explain 4), 8 rollouts of a problem by "
        "a configuration: 480 rollouts in all"
    )


def test_the_file_is_small_has_a_line_for_each_row_and_no_path(condensed: results.Results, tmp_path: Path) -> None:
    path = tmp_path / "full.json"
    write_results(condensed, path)
    lines = path.read_text().splitlines()
    assert len(lines) > sum(len(table.rows) for table in condensed.tables.values())
    assert max(map(len, lines)) < 3000
    assert path.stat().st_size < (tmp_path / "all.json").stat().st_size
    assert str(tmp_path) not in path.read_text()
    assert {pool["pool"] for pool in condensed.pools} == {"made"}


def test_a_file_that_is_too_large_to_publish_is_refused(
    condensed: results.Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "LARGEST", 1000)
    with pytest.raises(InputError, match=r"full.json would have [\d,]+ bytes, and at most 1,000 are published"):
        write_results(condensed, tmp_path / "full.json")
    assert not (tmp_path / "full.json").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "it holds a list"),
        ("{}", "KeyError"),
        ('{"pools": [], "tables": []}', "KeyError"),
        ('{"pools": [{"pool": "a"}], "tables": []}', "KeyError"),
        ("\ud800", "UnicodeDecodeError"),
    ],
)
def test_what_is_no_result_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for read in (lambda: condense(path, command="", date=""), lambda: read_results(path)):
        with pytest.raises(
            InputError, match=rf"results.json holds no results \(.*{why}.*make it again with radmoe evaluate"
        ):
            read()


def test_an_absent_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no .*none.json: make it with radmoe evaluate"):
        read_results(tmp_path / "none.json")


def test_the_committed_result_is_part_of_the_package() -> None:
    assert COMMITTED.parent.parent == Path(radmoe_studies.__file__).parent
    assert list(read_results(COMMITTED).tables) == list(TABLES)
