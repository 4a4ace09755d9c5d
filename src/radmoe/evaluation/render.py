"""A report as Markdown, CSV, LaTeX and JSON, all from the same tables; `screen` has the terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from radmoe.evaluation.pools import GradedPool
from radmoe.evaluation.report import Report
from radmoe.evaluation.table import Cell, Row, Table, p_text
from radmoe.selection.confidence import WINDOW
from radmoe.system.printing import json_text, shortened, visible

ABSENT = "--"
PARTS = ("value", "low", "high", "gain", "gain_low", "gain_high", "n")
TESTS = ("first", "second", "p", "adjusted", "test")  # of a pair
FIELDS = ("table", "section", "row", "column", *PARTS, *TESTS, "stars", "note")


def visible_report(report: Report, longest: int | None = None) -> Report:
    """The report with every text visible, for the formats that people read. Names of models and data sets come from
    pools; those of more than `longest` characters are shortened."""
    tables = tuple(visible_table(table, longest) for table in report.tables)
    return replace(report, tables=tables, verdict=visible(report.verdict))


def visible_table(table: Table, longest: int | None = None) -> Table:
    """The table with every text visible; names of more than `longest` characters are shortened."""
    name = partial(_visible_name, longest=longest)

    def cell(one: Cell) -> Cell:
        value = name(one.value) if isinstance(one.value, str) else one.value
        return replace(one, value=value, note=visible(one.note))

    rows = tuple(Row(tuple(map(cell, row.cells)), name(row.section)) for row in table.rows)
    columns = tuple(replace(column, title=name(column.title)) for column in table.columns)
    return replace(table, columns=columns, rows=rows, notes=tuple(map(visible, table.notes)))


def _visible_name(text: str, longest: int | None) -> str:
    return visible(text) if longest is None else shortened(text, longest)


def value_text(cell: Cell) -> str:
    """The value alone, as people read it: percent and points with one decimal."""
    if cell.value is None:
        return ABSENT
    if isinstance(cell.value, str):
        return cell.value
    if cell.unit == "count":
        return f"{cell.value:,}"
    if cell.unit == "p":
        return "<0.001" if cell.value < 0.001 else f"{cell.value:.3f}"
    return str(cell.value) if cell.unit == "text" else _in_unit(cell.value, cell)


def interval_text(cell: Cell) -> str:
    if cell.low is None or cell.high is None:
        return "" if cell.value is None or not cell.note else ABSENT
    return f"[{_in_unit(cell.low, cell)}, {_in_unit(cell.high, cell)}]"


def _in_unit(value: float, cell: Cell) -> str:
    """A number of a cell: points with their sign, a plain number with two decimals, all else in percent."""
    if cell.unit == "number":
        return f"{value:.2f}"
    return _signed(100 * value) if cell.unit == "points" else f"{100 * value:.1f}"


def beside_text(cell: Cell) -> str:
    """The text beside a value: its gain, with the gain's interval where there is one, or the counts of a difference and,
    where it is part of a family of tests, the p that is corrected for it."""
    if cell.pair is not None:
        p = cell.pair.adjusted
        return f"{cell.pair.first}:{cell.pair.second}" + ("" if p is None else f", {p_text(p)}")
    if cell.gain is None:
        return ""
    gain = _signed(100 * cell.gain)
    if cell.gain_low is None or cell.gain_high is None:
        return gain
    return f"{gain} [{_signed(100 * cell.gain_low)}, {_signed(100 * cell.gain_high)}]"


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"


def head(report: Report, longest: int | None = None) -> str:
    """What was evaluated, in one visible line; names of more than `longest` characters are shortened."""
    pools = report.pools
    settings = list(dict.fromkeys(_setting(r) for r in pools))
    sizes = sorted({len(marks.correct) for r in pools for marks in r.marks.values()})
    rollouts = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]}-{sizes[-1]}"
    models = ", ".join(dict.fromkeys(_visible_name(r.configuration, longest) for r in pools))
    problems = len({(r.dataset, problem) for r in pools for problem in r.problem_ids})
    return f"{models}: {problems:,} problem{'s' * (problems != 1)} x {rollouts} rollouts; {'; '.join(settings)}"


def _setting(pool: GradedPool) -> str:
    """How rollouts were read and compared; the confidence window where it is not the usual one."""
    setting = pool.setting
    window = "" if setting.confidence_window == WINDOW else f", confidence window {setting.confidence_window}"
    return f"{setting.readout}, {setting.kernel}, k={setting.k}{window}"


def _grid(
    table: Table, cell: Callable[[Cell], str], interval: Callable[[Cell], str] = interval_text
) -> Iterator[tuple[str, list[str]]]:
    """Section and texts of every row, intervals in columns of their own."""
    for row in table.rows:
        texts = []
        for column, one in zip(table.columns, row.cells, strict=True):
            texts.append(cell(one))
            if column.interval:
                texts.append(interval(one))
        yield row.section, texts


def _titles(table: Table) -> Iterator[str]:
    for column in table.columns:
        yield column.title if column.n is None else f"{column.title} (n={column.n:,})"
        if column.interval:
            yield column.interval


def markdown(report: Report) -> str:
    report = visible_report(report)
    parts = [markdown_text(head(report)) + "."]
    for table in report.tables:
        parts += [f"### {table.title}", markdown_table(table)]
        if table.notes:
            parts.append("\n".join(f"{markdown_text(note)}  " for note in table.notes))
    return "\n\n".join([*parts, f"**{markdown_text(report.verdict)}**"]) + "\n"


def markdown_table(table: Table) -> str:
    """The rows of a visible table, without its title and notes."""
    titles = [*[table.sections] * table.sectioned, *map(markdown_text, _titles(table))]
    labels = table.sectioned + table.text_columns
    lines = [titles, ["---"] * labels + ["---:"] * (len(titles) - labels)]
    for section, texts in _grid(table, _markdown_cell):
        lines.append([*[markdown_text(section)] * table.sectioned, *texts])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _markdown_cell(cell: Cell) -> str:
    text = markdown_text(value_text(cell))
    if cell.best:
        text = f"**{text}**"
    beside = beside_text(cell)
    stars = cell.stars.replace("*", "\\*")
    return text + stars + (f" ({beside})" if beside else "")


def markdown_text(text: str) -> str:
    """Text with Markdown's special characters escaped, so that it is shown as it is, in a table too."""
    return re.sub(
        r"[\\`*|]|<(?=[A-Za-z/!?])|\](?=[(\[:])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])", lambda m: "\\" + m[0], text
    )


def comma_separated(report: Report) -> str:
    """One line per number: a fraction, or nothing and the reason beside it. Columns of text are left out."""
    report = visible_report(report)
    return csv_of(report.tables, [["verdict", *[""] * (len(FIELDS) - 2), report.verdict]])


def csv_of(tables: Iterable[Table], more: Iterable[Sequence[str]] = ()) -> str:
    """Tables as CSV, with a line for each number and the lines of `more` at the end."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns[1:], row.cells[1:], strict=True):
                if column.text:
                    continue
                parts = [getattr(cell, name) for name in PARTS] + [getattr(cell.pair, name, None) for name in TESTS]
                numbers = ["" if part is None else part for part in parts]
                names = map(_no_formula, (row.section, value_text(row.cells[0]), column.title))
                writer.writerow([table.key, *names, *numbers, cell.stars, _no_formula(cell.note)])
    writer.writerows(more)
    return out.getvalue()


def _no_formula(text: str) -> str:
    """Text with a leading quote where a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def latex(report: Report) -> str:
    """Tables for a paper; they need the package booktabs."""
    report = visible_report(report)
    parts = [f"% {head(report)}", *(_latex_table(table) for table in report.tables), f"% {report.verdict}"]
    return "\n\n".join(parts) + "\n"


def _latex_table(table: Table) -> str:
    titles = list(_titles(table))
    lines = [
        r"\begin{table}[t]",
        r"  \centering\footnotesize",
        rf"  \caption{{{_tex(table.title)}. {' '.join(map(_tex, table.notes))}}}",
        rf"  \label{{tab:{table.key}}}",
        rf"  \begin{{tabular}}{{@{{}}{'l' * table.text_columns}{'r' * (len(titles) - table.text_columns)}@{{}}}}",
        r"    \toprule",
        f"    {' & '.join(map(_tex, titles))} \\\\",
        r"    \midrule",
    ]
    section = None
    for name, texts in _grid(table, _latex_cell, _latex_interval):
        if name != section and table.sectioned:
            lines += [r"    \addlinespace"] * (section is not None)
            lines.append(rf"    \multicolumn{{{len(titles)}}}{{@{{}}l}}{{\textit{{{_tex(name)}}}}} \\")
        section = name
        lines.append(f"    {' & '.join(texts)} \\\\")
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"])


def _latex_cell(cell: Cell) -> str:
    text = value_text(cell)
    if cell.unit == "points" and cell.value is not None:
        text = f"${text}^{{{cell.stars}}}$" if cell.stars else f"${text}$"
    else:
        text = _tex(text)
    if cell.best:
        text = rf"\textbf{{{text}}}"
    beside = beside_text(cell)
    return text + (rf"\,{{\scriptsize$({beside})$}}" if beside else "")


def _latex_interval(cell: Cell) -> str:
    text = interval_text(cell)
    return f"${text}$" if text.startswith("[") else text


_SPECIAL = {"\\": r"\textbackslash{}", "Δ": r"$\Delta$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _tex(text: str) -> str:
    escaped = re.sub(r"[\\~^Δ]|[&%$#_{}]", lambda m: _SPECIAL.get(m[0], "\\" + m[0]), text)
    return escaped.replace("<", "$<$").replace(">", "$>$")


def as_json(report: Report) -> str:
    return json_text(report.to_json(), indent=1) + "\n"


FORMATS: dict[str, Callable[[Report], str]] = {
    "markdown": markdown,
    "csv": comma_separated,
    "latex": latex,
    "json": as_json,
}
