"""One report in every format."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from evaluation.pools import records
from radmoe.evaluation import Report, build_report
from radmoe.evaluation.render import as_json, comma_separated, latex, markdown, value_text
from radmoe.evaluation.scores import Draws
from radmoe.evaluation.screen import plain
from radmoe.evaluation.table import Cell


@pytest.fixture(scope="module")
def shown() -> Report:
    hits = {"rad": [1, 1, 0, 1], "majority": [1, 0, 0, 1], "rad+dc": [1, 1, 1, 1]}
    pools = [
        records(hits, right=[8, 4, 2, 6], dataset=dataset, kind=kind, model=model)
        for model in ("lab_one|50%", "lab-two")
        for dataset, kind in (("math-1", "math"), ("math_2", "math"), ("choice", "choice"), ("code", "code"))
    ]
    return build_report(pools, Draws(resamples=100))


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(None, note="why"), "--"),
        (Cell("RAD"), "RAD"),
        (Cell(1234, "count"), "1,234"),
        (Cell(0.7394, "percent"), "73.9"),
        (Cell(0.0028, "points"), "+0.3"),
        (Cell(-0.0001, "points"), "+0.0"),
        (Cell(0.0004, "p"), "<0.001"),
        (Cell(0.523, "p"), "0.523"),
    ],
)
def test_values_read_as_people_write_them(cell: Cell, text: str) -> None:
    assert value_text(cell) == text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_table_is_wider_than_the_screen(shown: Report, width: int) -> None:
    text = plain(shown, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.rstrip().replace("\n", " ").endswith(" ".join(shown.verdict.split()))


def test_gains_stand_beside_the_values_where_there_is_room(shown: Report) -> None:
    assert re.search(r"RAD +routing +75\.0 +\+12\.5 +75\.0 +\+12\.5", plain(shown, 140))
    narrow = plain(shown, 60).splitlines()
    at = next(i for i, line in enumerate(narrow) if line.startswith("RAD "))
    assert narrow[at + 1].split() == ["+12.5"] * len(narrow[at + 1].split())


def test_markdown_rows_have_as_many_cells_as_their_heads(shown: Report) -> None:
    lines = markdown(shown).splitlines()
    tables = "\n".join(line if line.startswith("|") else "" for line in lines).split("\n\n")
    found = [block.strip("\n").split("\n") for block in tables if block.strip()]
    assert len(found) == len(shown.tables)
    for block in found:
        bars = {len(re.findall(r"(?<!\\)\|", line)) for line in block}
        assert len(bars) == 1
    assert "lab_one\\|50%" in markdown(shown)


def test_csv_has_a_line_for_every_number(shown: Report) -> None:
    lines = list(csv.DictReader(io.StringIO(comma_separated(shown))))
    cells = sum(len(row.cells) - table.text_columns for table in shown.tables for row in table.rows)
    assert len(lines) == cells + 1
    assert lines[-1]["note"] == shown.verdict
    rad = next(x for x in lines if (x["table"], x["row"], x["column"]) == ("accuracy", "RAD", "math-1"))
    assert (float(rad["value"]), float(rad["gain"]), rad["n"]) == (0.75, 0.125, "4")
    vote = next(x for x in lines if (x["table"], x["row"], x["column"]) == ("accuracy", "Cons@8", "code"))
    assert vote["value"] == ""
    assert "near-unique" in vote["note"]


def test_latex_is_balanced_and_escaped(shown: Report) -> None:
    text = latex(shown)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == len(shown.tables)
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    bare = re.sub(r"\\[{}]", "", body)
    assert bare.count("{") == bare.count("}")
    assert r"lab\_one|50\%" in body
    assert not re.search(r"(?<!\\)[%#]", body)
    assert re.sub(r"\\\$", "", body).count("$") % 2 == 0
    for block in re.findall(r"\\begin\{tabular\}\{@\{\}(l+r+)@\{\}\}(.*?)\\end\{tabular\}", body, re.DOTALL):
        rows = [line for line in block[1].splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert rows
        assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {len(block[0]) - 1}


def test_json_says_all_that_the_tables_hold(shown: Report) -> None:
    body = json.loads(as_json(shown))
    assert body["verdict"] == shown.verdict
    assert [table["key"] for table in body["tables"]] == [table.key for table in shown.tables]
    assert body["pools"][0]["strict"] == "delimiter@marker"
    assert [pool["domain"] for pool in body["pools"][:4]] == ["math", "math", "science", "code"]
    first = body["tables"][0]
    rad = next(row for row in first["rows"] if row["cells"][0]["value"] == "RAD")
    cell = rad["cells"][first["columns"].index("math-1")]
    assert {"value", "low", "high", "gain", "n"} <= cell.keys()
    assert 0 <= cell["low"] <= cell["value"] <= cell["high"] <= 1
    vote = next(row for row in first["rows"] if row["cells"][0]["value"] == "Cons@8")
    assert vote["cells"][first["columns"].index("code")]["value"] is None
