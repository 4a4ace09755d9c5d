"""A table as data: what every format is rendered from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "count", "percent", "points", "p"]


@dataclass(frozen=True)
class Cell:
    """A value and what belongs to it. Fractions are fractions here; renderers turn them into percent.

    `value` is None where there is nothing to show: `note` then says why. `gain` is a difference to the floor of the same
    column, `low` and `high` the interval of `value`, `n` the problems it is over where no column says so.
    """

    value: float | int | str | None
    kind: Kind = "text"
    low: float | None = None
    high: float | None = None
    gain: float | None = None
    n: int | None = None
    stars: str = ""
    best: bool = False
    note: str = ""


@dataclass(frozen=True)
class Column:
    """`interval` heads a column of its own for the intervals of the cells; empty, they are not shown in tables.

    `n` is the number of problems behind each cell, where it is one number.
    """

    title: str
    interval: str = ""
    n: int | None = None


@dataclass(frozen=True)
class Row:
    """Cells under the columns, the first of them the row's name; rows of one `section` stand together."""

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
    sections: str = "model"  # what a section is

    @property
    def sectioned(self) -> bool:
        """Whether the sections tell anything apart."""
        return self.sections != "model" or len({row.section for row in self.rows}) > 1

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "title": self.title,
            "columns": [column.title for column in self.columns],
            "sections": self.sections,
            "rows": [{"section": row.section, "cells": [_plain(cell) for cell in row.cells]} for row in self.rows],
            "notes": list(self.notes),
        }


def _plain(cell: Cell) -> dict[str, Any]:
    """A cell without what it does not have; an absent value stays, as null."""
    body: dict[str, Any] = {"value": cell.value, "kind": cell.kind}
    for name in ("low", "high", "gain", "n", "stars", "best", "note"):
        if (value := getattr(cell, name)) not in (None, "", False):
            body[name] = value
    return body


def missing(note: str) -> Cell:
    """A cell that says why it is empty."""
    return Cell(None, note=note)
