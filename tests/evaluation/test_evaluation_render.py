"""One report in every format."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hostile_text import unseen
from pools import evaluated
from radmoe.evaluation import Report, build_report
from radmoe.evaluation.render import as_json, comma_separated, latex, markdown, value_text
from radmoe.evaluation.scores import Draws
from radmoe.evaluation.screen import plain, summary
from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe.system.printing import console, visible


@pytest.fixture(scope="module")
def shown() -> Report:
    hits = {"rad": [1, 1, 0, 1], "majority": [1, 0, 0, 1], "rad+dc": [1, 1, 1, 1]}
    pools = [
        evaluated(hits, right=[8, 4, 2, 6], dataset=dataset, kind=kind, model=model)
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
    interval = r"\[\d+\.\d, \d+\.\d\]"
    assert re.search(rf"RAD +routing +75\.0 +\+12\.5 +{interval} +75\.0 +\+12\.5 +{interval}", plain(shown, 240))
    narrow = plain(shown, 60).splitlines()
    at = next(i for i, line in enumerate(narrow) if line.startswith("RAD "))
    assert re.fullmatch(r"RAD( +75\.0 +\+12\.5)+", narrow[at])
    assert re.fullmatch(rf"  routing( +{interval})+", narrow[at + 1])


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("key", ["accuracy", "strict", "baselines"])
def test_every_block_of_a_table_has_names_with_numbers(shown: Report, key: str, width: int) -> None:
    """A table that is too wide is cut into blocks: each repeats every name, and every name has a number or a dash."""
    table = next(table for table in shown.tables if table.key == key)
    text = plain(replace(shown, tables=(table,)), width)
    blocks = re.split(r"\n(?=method)", text)[1:]
    assert blocks
    titles = [column.title for column in table.columns[2:]]
    for block in blocks:
        assert any(title in block.split("\n")[0] for title in titles)
        for row in table.rows:
            name = re.escape(str(row.cells[0].value))
            assert re.search(rf"^{name}( +[a-z, ]+)? +(\d+\.\d|--)", block, re.MULTILINE), (name, block)
    shown_titles = " ".join(line for block in blocks for line in block.split("\n")[:1])
    assert all(title in shown_titles for title in titles)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_one_screen_shows_the_interval_of_every_gain_whatever_its_width(shown: Report, width: int) -> None:
    """At 80 columns, from two kinds on, it left the intervals out."""
    out = io.StringIO()
    summary(shown, console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "interval" not in out.getvalue().partition("Percent right")[2]
    found = [
        re.findall(r"75\.0 +\+12\.5 \[[+-]\d+\.\d, [+-]\d+\.\d\]", line) for line in lines if line.startswith("RAD  ")
    ]
    assert sum(map(len, found)) == len(("all math", "math-1", "math_2", "choice", "code"))


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


def test_a_table_is_cut_into_its_sections() -> None:
    cells = (Cell("RAD"), Cell(0.0, "percent", low=0.0, high=0.5))
    table = Table("k", "t", (Column("method"), Column("a")), (Row(cells, "m"), Row(cells, "n")), ("note",))
    assert [part.rows for part in table.by_section().values()] == [table.rows[:1], table.rows[1:]]


FOREIGN = (
    "<img src=http://x>",
    "<script>alert(1)</script>",
    "[a](javascript:1)",
    "![b](http://x)",
    "[c]: http://x",
    "d\\|e|f\\",
    "`g`",
    "*h* _i_ __j__",
    "k\n\n# l\n| m |",
    "&lt;n&#27;",
    "\x1b]0;o\x07\u202e",
    "\\input{/etc/passwd}%\n\\write18{p}^^M$x$~{",
    "=q|' /C calc'!A0",
    "+r",
    "@s",
    "-t",
)


@pytest.fixture(scope="module")
def foreign() -> Report:
    """A report on pools whose models and data sets are named as a stranger pleases."""
    hits = {"rad": [1, 1, 0, 1], "majority": [1, 0, 0, 1], "rad+dc": [1, 1, 1, 1]}
    pools = [
        evaluated(hits, right=[8, 4, 2, 6], dataset=name, kind="math", model=name, notes=(name,)) for name in FOREIGN
    ]
    return build_report(pools, Draws(resamples=20))


def _inline(text: str) -> list[Token]:
    """The pieces of a Markdown text, as a reader's program sees them."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    return [piece for token in tokens if token.type == "inline" for piece in token.children or []]


@pytest.mark.slow
def test_foreign_names_are_text_in_markdown(foreign: Report) -> None:
    text = markdown(foreign)
    kinds = {token.type for token in MarkdownIt("commonmark").enable("table").parse(text)}
    assert not kinds & {"html_block", "fence", "code_block"}
    assert {piece.type for piece in _inline(text)} <= {
        *("text", "text_special", "strong_open", "strong_close", "softbreak", "hardbreak")
    }
    tables = "\n".join(line if line.startswith("|") else "" for line in text.splitlines()).split("\n\n")
    blocks = [block.strip("\n").split("\n") for block in tables if block.strip()]
    assert len(blocks) == len(foreign.tables)
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in block}) == 1


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.text(st.characters(codec="utf-8") | st.sampled_from("\\`*_[]()<>!&|#;a "), min_size=1))
def test_any_name_is_read_back_from_a_markdown_cell(name: str) -> None:
    report = build_report([evaluated({"rad": [1, 0]}, right=[4, 2], dataset=name, model="m")], Draws(resamples=2))
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown(report))
    cells = ["".join(piece.content for piece in token.children or []) for token in tokens if token.type == "inline"]
    assert f"{visible(name)} (n=2)".strip() in [cell.strip() for cell in cells]


def test_foreign_names_are_text_in_latex(foreign: Report) -> None:
    text = latex(foreign)
    body = "\n".join(line for line in text.splitlines() if not line.startswith("% "))
    assert "\\input" not in body
    assert "\\write" not in body
    assert "^^" not in body
    assert not re.search(r"(?<!\\)[%#]", body)
    for block in re.findall(r"\\begin\{tabular\}\{@\{\}(l+r+)@\{\}\}(.*?)\\end\{tabular\}", body, re.DOTALL):
        rows = [line for line in block[1].splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {len(block[0]) - 1}


def test_no_cell_of_a_spreadsheet_is_a_formula(foreign: Report) -> None:
    lines = list(csv.DictReader(io.StringIO(comma_separated(foreign))))
    texts = {line[field] for line in lines for field in ("section", "row", "column", "note")}
    assert "'=q|' /C calc'!A0" in texts
    assert not [text for text in texts if text.startswith(("=", "+", "-", "@"))]
    assert not [text for text in texts if "\n" in text]


@pytest.mark.slow
def test_foreign_names_forge_no_line_on_a_terminal(foreign: Report) -> None:
    text = plain(foreign, 120)
    assert unseen(text) == []
    assert "# l" not in [line.strip() for line in text.splitlines()]
    assert r"k\n\n# l\n| m |" in text
