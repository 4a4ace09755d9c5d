"""A table as data: what every format is rendered from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from radmoe.evaluation.stats import Test

SURE = 0.05  # a p below this shows a difference

Unit = Literal["text", "count", "percent", "points", "p", "number"]


@dataclass(frozen=True)
class Pair:
    """Two methods on the same problems: how many only the first and only the second gets right, and the exact p.

    `adjusted` is that p after Holm's correction, where the cell is part of a family of tests. `test` is "mcnemar" where each
    problem occurs once, and "sign-flip" where configurations share problems (`stats.paired_test`).
    """

    first: int
    second: int
    p: float
    adjusted: float | None = None
    test: Test = "mcnemar"


@dataclass(frozen=True)
class Cell:
    """A value and what belongs to it. Fractions are fractions here; renderers turn them into percent.

    `value` is None where there is nothing to show, and `note` then says why. `gain` is the difference to the average
    rollout in the same column, `low` and `high` are the interval of `value`, `gain_low` and `gain_high` that of the gain,
    and `n` is the number of problems it is over where no column says so. `pair` is the test behind a difference of two
    methods.
    """

    value: float | int | str | None
    unit: Unit = "text"
    low: float | None = None
    high: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    n: int | None = None
    stars: str = ""
    best: bool = False
    note: str = ""
    pair: Pair | None = None


@dataclass(frozen=True)
class Column:
    """A column of cells.

    `interval` heads a column of its own for the intervals of the cells; where it is empty, tables do not show them.
    `n` is the number of problems behind each cell, where it is one number. A column of `text` stands to the left.
    """

    title: str
    interval: str = ""
    n: int | None = None
    text: bool = False


@dataclass(frozen=True)
class Row:
    """Cells under the columns, the first of which is the row's name. Rows of one `section` stand together."""

    cells: tuple[Cell, ...]
    section: str = ""


@dataclass(frozen=True)
class Table:
    """`key` names the table for a program, `title` for a reader; `notes` stand below it."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    sections: str = "model"  # what a section is: a model, a family or a comparison

    @property
    def sectioned(self) -> bool:
        """Whether the sections are shown: a single model or family needs no heading."""
        return self.sections == "comparison" or len({row.section for row in self.rows}) > 1

    @property
    def text_columns(self) -> int:
        """How many columns hold words; they come first, beginning with the rows' names."""
        return 1 + sum(column.text for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "title": self.title,
            "columns": [column.title for column in self.columns],
            "sections": self.sections,
            "rows": [{"section": row.section, "cells": [_plain(cell) for cell in row.cells]} for row in self.rows],
            "notes": list(self.notes),
        }

    def by_section(self) -> dict[str, Table]:
        """One table for each section, without the notes, which are about all of them."""
        names = dict.fromkeys(row.section for row in self.rows)
        return {name: replace(self, rows=tuple(r for r in self.rows if r.section == name), notes=()) for name in names}


def _plain(cell: Cell) -> dict[str, Any]:
    """A cell without what it does not have; an absent value stays, as null."""
    body: dict[str, Any] = {"value": cell.value, "unit": cell.unit}
    for name in ("low", "high", "gain", "gain_low", "gain_high", "n", "stars", "best", "note"):
        value = getattr(cell, name)
        if value is not None and value is not False and value != "":  # 0 is a number to keep
            body[name] = value
    return body if cell.pair is None else body | {"pair": asdict(cell.pair)}


def missing(note: str) -> Cell:
    """A cell that says why it is empty."""
    return Cell(None, note=note)


def p_text(p: float) -> str:
    """A p-value for a sentence, with as many places as show on which side of 0.05 it is."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2f}" if p >= 0.1 else f"p = {p:.3f}"
