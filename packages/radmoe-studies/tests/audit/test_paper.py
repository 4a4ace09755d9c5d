"""The published figures as data: complete, and each one used."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from radmoe.errors import InputError
from radmoe_studies.audit import audit, load
from radmoe_studies.audit.check import Check
from radmoe_studies.audit.spans import read

ROWS = {  # rows per table of the paper; the two big tables in long form, without their "--"
    "main": 132,
    "swebench": 3,
    "moe-arch": 4,
    "frontier": 25,
    "window-grid": 75,
    "width-recency": 10,
    "domain": 15,
    "swe-length": 3,
    "diversity": 12,
    "effort-decomp": 3,
    "effort-trend": 24,
    "think-instruct": 4,
    "dc": 52,
    "dc-fusion": 52,
    "per-model": 40,
    "layer-deciles": 11,
    "rollout-scaling": 12,
    "rollout-composition": 18,
    "rollout-needle": 6,
    "rollout-domain": 18,
    "dc-density-corr": 2,
    "marker-only": 140,
    "wjja-main": 5,
    "wjja-cat": 12,
    "wjja-power": 5,
}
NAMES = {
    "family model group pool method column variant anchor quantity effort size contrast decile mode category scope",
    "kernel domain bold star total active",
}


def test_every_table_is_there_in_full() -> None:
    tables = load().tables
    assert {label: len(tables[label]) for label in ROWS} == ROWS
    assert set(load().about) == {*ROWS, "prose"}


@pytest.mark.parametrize("label", ROWS)
def test_every_figure_is_a_number_and_no_row_comes_twice(label: str) -> None:
    names = set(" ".join(NAMES).split())
    rows = load().tables[label]
    for row in rows:
        for column, text in row.items():
            if column not in names and text:
                read(text)
    assert len({tuple(row.values()) for row in rows}) == len(rows)


def test_groups_are_complete() -> None:
    tables = load().tables
    assert set(Counter(r["pool"] for r in tables["dc"]).values()) == {13}
    assert set(Counter((r["family"], r["method"]) for r in tables["main"]).values()) == {6, 7}
    assert Counter(r["method"] for r in tables["marker-only"]) == {"RAD": 70, "RAD+DC": 70}
    assert sum(int(r["rad_only"]) + int(r["dc_only"]) for r in tables["dc"]) == 594
    assert sum(int(r["c50_only"]) + int(r["rf_only"]) for r in tables["dc-fusion"]) == 621
    assert sum(r["bold"] == "1" for r in tables["main"]) == 38


def test_names_of_the_ten_configurations_meet_in_every_table() -> None:
    paper = load()
    assert len(paper.configs) == 10
    assert {c.model for c in paper.configs} == {r["model"] for r in paper.tables["per-model"]}
    groups = {r["group"] for r in paper.tables["dc"] if "pooled" not in r["group"]}
    assert (
        {c.group for c in paper.configs}
        == groups
        == {r["group"] for r in paper.tables["dc-fusion"]}
        - {f"OSS-pooled-{effort}" for effort in ("Low", "Medium", "High")}
    )
    assert {(c.family, c.variant) for c in paper.configs} == {
        (r["family"], r["variant"]) for r in paper.tables["marker-only"]
    }


def test_every_figure_of_the_text_is_used() -> None:
    seen: set[str] = set()

    class Watched(dict[str, str]):
        def __getitem__(self, key: str) -> str:
            if key == "value":
                seen.add(super().__getitem__("id"))
            return super().__getitem__(key)

    paper = load()
    prose = tuple(Watched(r) for r in paper.tables["prose"])
    audit(replace(paper, tables={**paper.tables, "prose": prose}))
    assert {r["id"] for r in paper.tables["prose"]} == seen


def test_a_missing_row_is_an_error_that_says_so() -> None:
    with pytest.raises(InputError, match="tab:dc has 0 rows with"):
        load().row("dc", pool="physics")


def test_changing_a_figure_leaves_the_paper_alone() -> None:
    paper = load()
    changed = paper.with_figure("wjja-main", "p", "0.999", mode="Pooled")
    assert changed.row("wjja-main", mode="Pooled")["p"] == "0.999"
    assert paper.row("wjja-main", mode="Pooled")["p"] == "0.248"


def test_a_check_names_its_figure() -> None:
    check = audit()[0]
    assert isinstance(check, Check)
    assert check.key == (check.table, check.row, check.figure)


@pytest.mark.parametrize("page", ["README.md", "docs/choosing.md"])
def test_what_a_page_quotes_of_confidence_and_rad_on_code_is_what_the_paper_prints(page: str) -> None:
    text = (Path(__file__).parents[4] / page).read_text(encoding="utf-8")
    confidence, rad = (
        "{lift} [{low}, {high}]".format_map(
            load().row("rollout-domain", anchor="delimiter", domain="code", method=method)
        )
        for method in ("DC", "RAD")
    )
    assert confidence in text
    assert rad in text or page != "README.md"
