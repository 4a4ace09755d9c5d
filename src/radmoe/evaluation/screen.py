"""A report on a terminal: aligned columns that fit its width."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from radmoe.evaluation.render import beside_text, head, interval_text, value_text, visible_report
from radmoe.evaluation.report import Report
from radmoe.evaluation.table import Cell, Row, Table
from radmoe.printing import console, styled

if TYPE_CHECKING:
    from radmoe.printing.screen import Screen

GAP = 2
NAME = 80  # characters of a name at most

Piece = tuple[str, str]  # text and style
Line = list[Piece]  # one piece per column


def terminal(report: Report, screen: Screen) -> None:
    """Print every table, and the verdict last."""
    report = visible_report(report, longest=NAME)
    screen.print(head(report), style="bold")
    for table in report.tables:
        screen.print()
        show_table(table, screen)
    screen.print()
    screen.print(report.verdict)


def show_table(table: Table, screen: Screen) -> None:
    """Print a visible table: its title, the rows as wide as the screen allows, the notes."""
    screen.print(table.title, style="bold")
    for part in _fit(table, screen.width):
        for line in part:
            screen.print(styled(*line), soft_wrap=True)
    for note in table.notes:
        screen.print(note, style="dim")


def plain(report: Report, width: int = 120) -> str:
    """What a terminal of this width shows, without colours."""
    out = io.StringIO()
    terminal(report, console(file=out, width=width))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def _fit(table: Table, width: int) -> Iterator[list[Line]]:
    """The table whole, with gains beside the values or else below them; else in parts of as many columns as fit."""
    for stacked in (False, True):
        lines = list(_lines(table, stacked=stacked))
        if _width(lines) <= width or (stacked and len(table.columns) <= 2):
            yield lines
            return
    fitting = max(
        n
        for n in range(2, len(table.columns))
        if n == 2 or _width(list(_lines(_part(table, 1, n), stacked=True))) <= width
    )
    yield from _fit(_part(table, 1, fitting), width)
    yield [[("", "")]]
    yield from _fit(_part(table, fitting, len(table.columns)), width)


def _part(table: Table, first: int, stop: int) -> Table:
    """The row names and columns [first, stop)."""
    rows = tuple(Row((row.cells[0], *row.cells[first:stop]), row.section) for row in table.rows)
    return replace(table, columns=(table.columns[0], *table.columns[first:stop]), rows=rows)


def _width(lines: Sequence[Line]) -> int:
    return max((sum(len(text) for text, _ in line) for line in lines if len(line) > 1), default=0)


def _lines(table: Table, *, stacked: bool) -> Iterator[Line]:
    """Header and rows, padded; a section's name stands on a line of its own."""
    headings = [_beside_heading([row.cells[at] for row in table.rows]) for at in range(len(table.columns))]
    upper: Line = []
    lower: Line = []
    for column, heading in zip(table.columns, headings, strict=True):
        stacks = column.n is not None
        upper.append((column.title if stacks else "", "dim"))
        lower.append((f"n={column.n:,}" if stacks else column.title, "dim"))
        beside = [*[heading] * bool(heading and not stacked), *[column.interval] * bool(column.interval)]
        upper += [("", "")] * len(beside)
        lower += [(title, "dim") for title in beside]
    header = [upper, lower] if any(text for text, _ in upper) else [lower]
    body = [(row.section, list(_pieces(table, row, headings, stacked))) for row in table.rows]
    every = [*header, *(line for _, lines in body for line in lines)]
    widths = [max(len(line[at][0]) for line in every) for at in range(len(lower))]
    yield from (_pad(line, widths, table.text_columns) for line in header)
    for number, (section, rows) in enumerate(groupby(body, key=lambda pair: pair[0])):
        if table.sectioned:
            yield from [[("", "")]] * (number > 0)
            yield [(section, "italic")]
        for _, lines in rows:
            yield from (_pad(line, widths, table.text_columns) for line in lines)


def _beside_heading(cells: Sequence[Cell]) -> str:
    """The heading of what stands beside a column's values; empty where nothing does."""
    if any(cell.pair is not None for cell in cells):
        return "only one right"
    return "gain" if any(cell.gain is not None for cell in cells) else ""


def _pieces(table: Table, row: Row, headings: list[str], stacked: bool) -> Iterator[Line]:
    first: Line = []
    second: Line = []
    for column, cell, heading in zip(table.columns, row.cells, headings, strict=True):
        first.append((value_text(cell) + cell.stars, "bold" if cell.best else ""))
        second.append((beside_text(cell), _colour(cell)))
        if heading and not stacked:
            first.append(second.pop())
            second += [("", "")] * 2
        if column.interval:
            first.append((interval_text(cell), "dim"))
            second.append(("", ""))
    yield first
    if stacked and any(text for text, _ in second):
        yield second


def _colour(cell: Cell) -> str:
    gain = cell.gain or 0.0
    return "green" if gain > 0 else "red" if gain < 0 else "dim"


def _pad(line: Line, widths: list[int], text_columns: int) -> Line:
    """Words to the left, numbers to the right."""
    pieces: Line = []
    for at, ((text, style), width) in enumerate(zip(line, widths, strict=True)):
        padded = text.ljust(width) if at < text_columns else text.rjust(width)
        pieces.append((" " * GAP * (at > 0) + padded, style))
    while len(pieces) > 1 and not pieces[-1][0].strip():
        pieces.pop()
    return pieces
