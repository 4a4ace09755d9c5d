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
from radmoe.system.printing import console, styled

if TYPE_CHECKING:
    from radmoe.system.screen import Screen

GAP = 2
GAIN = 7  # characters of a gain that stands behind a value, with the blanks before it
NAME = 80  # characters of a name at most

Piece = tuple[str, str]  # text and style
Line = list[Piece]  # what stands on one line, or in one column of it


def summary(report: Report, screen: Screen) -> None:
    """Print what fits one screen: the verdict, and how right every usual method is by kind of answer."""
    report = visible_report(report, longest=NAME)
    screen.print(head(report, NAME), style="bold")
    screen.print(report.verdict)
    kinds = next((table for table in report.tables if table.key == "kinds"), None)
    if kinds is not None:
        *_, whole = kinds.by_section().values()
        screen.print()
        shown = replace(whole, title="Percent right, and points over a random rollout [95% CI]")
        show_table(shown, screen, stacked=False)


def terminal(report: Report, screen: Screen) -> None:
    """Print every table, and the verdict last."""
    report = visible_report(report, longest=NAME)
    screen.print(head(report, NAME), style="bold")
    for table in report.tables:
        screen.print()
        show_table(table, screen)
    screen.print()
    screen.print(report.verdict)


def show_table(table: Table, screen: Screen, *, stacked: bool = True) -> None:
    """Print a visible table: its title, the rows as wide as the screen allows, the notes. `stacked` is for a table that is too wide (`_fit`)."""
    screen.print(table.title, style="bold")
    for part in _fit(table, screen.width, stacked):
        for line in part:
            screen.print(styled(*line), soft_wrap=True)
    for note in table.notes:
        screen.print(note, style="dim")


def plain(report: Report, width: int = 120) -> str:
    """What a terminal of this width shows, without colours."""
    out = io.StringIO()
    terminal(report, console(file=out, width=width))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def _fit(table: Table, width: int, stacked: bool) -> Iterator[list[Line]]:
    """The table whole, with all that belongs to a value beside it; where that is too wide, in parts of as many columns as
    fit, `stacked` with words below the names and intervals below the values. Every part repeats the names, and has numbers."""
    lines = list(_lines(table, stacked=False))
    if _width(lines) <= width:
        yield lines
        return
    first, last = table.text_columns, len(table.columns)
    alone = (list(_lines(_part(table, at, at + 1), stacked=False)) for at in range(first, last))
    stacked = stacked or max(map(_width, alone), default=0) > width
    while first < last:
        stop = first + 1
        lines = list(_lines(_part(table, first, stop), stacked=stacked))
        while stop < last and _width(wider := list(_lines(_part(table, first, stop + 1), stacked=stacked))) <= width:
            lines, stop = wider, stop + 1
        yield lines
        if stop < last:
            yield [[("", "")]]
        first = stop


def _part(table: Table, first: int, stop: int) -> Table:
    """The table with its columns of words, and of the others only those from number `first` up to `stop`."""
    words = table.text_columns
    rows = tuple(Row((*row.cells[:words], *row.cells[first:stop]), row.section) for row in table.rows)
    return replace(table, columns=(*table.columns[:words], *table.columns[first:stop]), rows=rows)


def _width(lines: Sequence[Line]) -> int:
    return max((_length(line) for line in lines if len(line) > 1), default=0)


def _length(line: Line) -> int:
    return sum(len(text) for text, _ in line)


def _lines(table: Table, *, stacked: bool) -> Iterator[Line]:
    """Header and rows, padded; a section's name stands on a line of its own."""
    headings = [_beside_heading([row.cells[at] for row in table.rows]) for at in range(len(table.columns))]
    header = list(_header(table, headings, stacked))
    body = [(row.section, list(_row(table, row, headings, stacked))) for row in table.rows]
    every = [*header, *(line for _, lines in body for line in lines)]
    widths = [max(_length(line[at]) for line in every) for at in range(len(every[0]))]
    words = 1 if stacked else table.text_columns
    yield from (_pad(line, widths, words) for line in header)
    for number, (section, rows) in enumerate(groupby(body, key=lambda pair: pair[0])):
        if table.sectioned:
            yield from [[("", "")]] * (number > 0)
            yield [(section, "italic")]
        for _, lines in rows:
            yield from (_pad(line, widths, words) for line in lines)


def _beside_heading(cells: Sequence[Cell]) -> str:
    """The heading of what stands beside a column's values; empty where nothing does."""
    if any(cell.pair is not None for cell in cells):
        return "only one right"
    return "gain" if any(cell.gain is not None for cell in cells) else ""


def _header(table: Table, headings: list[str], stacked: bool) -> Iterator[list[Line]]:
    """The lines of the header, each with what stands in every column."""
    if stacked:
        columns = []
        for column in table.columns:
            size = "" if column.n is None else f"n={column.n:,}"
            columns.append(
                [[(text, "dim")] for text in (column.title, size, column.interval and f"[{column.interval}]")]
            )
        yield from _below_names(table, columns)
        return
    upper: list[Line] = []
    lower: list[Line] = []
    for column, heading in zip(table.columns, headings, strict=True):
        upper.append([(column.title if column.n is not None else "", "dim")])
        lower.append([(column.title if column.n is None else f"n={column.n:,}", "dim")])
        beside = [*[heading] * bool(heading), *[column.interval] * bool(column.interval)]
        upper += [[("", "")]] * len(beside)
        lower += [[(title, "dim")] for title in beside]
    yield from [upper, lower] if any(map(_length, upper)) else [lower]


def _row(table: Table, row: Row, headings: list[str], stacked: bool) -> Iterator[list[Line]]:
    """The lines of a row, with the parts of each cell (value, gain, interval) side by side, or stacked."""
    columns = []
    for column, cell, heading in zip(table.columns, row.cells, headings, strict=True):
        parts: list[Line] = [[(value_text(cell) + cell.stars, "bold" if cell.best else "")]]
        beside = [(beside_text(cell), _colour(cell))]
        if stacked and column.interval and heading == "gain":
            parts[0].append((f"{beside[0][0]:>{GAIN}}", beside[0][1]))
        elif heading:
            parts.append(beside)
        if column.interval:
            parts.append([(interval_text(cell), "dim")])
        columns.append(parts)
    if stacked:
        yield from _below_names(table, columns)
    else:
        yield [line for parts in columns for line in parts]


def _below_names(table: Table, columns: list[list[Line]]) -> Iterator[list[Line]]:
    """Stacked columns as lines: what is in a column of words stands below the name, and lines without a text are left out."""
    words = table.text_columns
    names = [columns[0][0], *([("  " + text, "dim") for text, _ in column[0]] for column in columns[1:words])]
    numbers = columns[words:]
    for at in range(max(map(len, [names, *numbers]))):
        line = [column[at] if at < len(column) else [("", "")] for column in (names, *numbers)]
        if any(text.strip() for column in line for text, _ in column):
            yield line


def _colour(cell: Cell) -> str:
    gain = cell.gain or 0.0
    return "green" if gain > 0 else "red" if gain < 0 else "dim"


def _pad(line: list[Line], widths: list[int], words: int) -> Line:
    """Words to the left, numbers to the right."""
    pieces: Line = []
    for at, (column, width) in enumerate(zip(line, widths, strict=True)):
        blank = (" " * (width - _length(column)), "")
        pieces += [(" " * GAP * (at > 0), ""), *([*column, blank] if at < words else [blank, *column])]
    while len(pieces) > 1 and not pieces[-1][0].strip():
        pieces.pop()
    return pieces
