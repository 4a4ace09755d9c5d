"""A calibration as files: a page with its tables, CSV, JSON, and a figure of reliability and of risk by coverage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from radmoe import __version__
from radmoe.evaluation.render import csv_of, markdown_table, markdown_text, visible_table
from radmoe.evaluation.table import Cell, Table
from radmoe.pool.files import write_atomic
from radmoe.pool.schema import disk_errors
from radmoe.system.printing import json_text, visible
from radmoe_studies.calibration.fit import Calibrated, bins
from radmoe_studies.calibration.tables import ALL, measured_on, pooled
from radmoe_studies.report.charts import draw
from radmoe_studies.report.figures import Chart, Plot, Series


def write_calibration(calibrated: Calibrated, tables: Sequence[Table], directory: Path, command: str) -> list[Path]:
    """Write the page, its tables as CSV and JSON, and the figure; returns the files."""
    made_by = f"{visible(command)}, radmoe {__version__}"
    figures = draw(chart(calibrated, tables), directory, made_by=made_by)
    shown = [visible_table(table) for table in tables]
    parts = [f"# How sure is a pick of {markdown_text(visible(str(calibrated.calibration.origin)))}"]
    for table in shown:
        parts += [f"## {markdown_text(table.title)}", markdown_table(table), *map(markdown_text, table.notes)]
    parts += ["![Reliability, and risk by coverage](calibration.png)"]
    parts += [markdown_text(visible(note)) for note in calibrated.notes] + [f"Made by `{visible(command)}`."]
    body = {"command": command, "radmoe": __version__, "tables": [table.to_json() for table in tables]}
    texts = {
        "calibration.md": "\n\n".join(parts) + "\n",
        "calibration.csv": csv_of(shown),
        "calibration.json": json_text(body | {"chart": chart(calibrated, tables).to_json()}) + "\n",
    }
    for name, text in texts.items():
        with disk_errors(directory / name):
            write_atomic(directory / name, text.encode())
    return [directory / name for name in texts] + figures


def chart(calibrated: Calibrated, tables: Sequence[Table]) -> Chart:
    """Two plots: the share of right picks by probability, and the share of wrong ones among the surest picks."""
    reliability = [
        Series(
            name,
            [float(f.sure[own].mean()) for own in bins(f.sure)],
            [float(f.right[own].mean()) for own in bins(f.sure)],
        )
        for name, f in pooled(calibrated, calibrated.sizes[-1])
        if name != ALL
    ]
    diagonal = Series("calibrated", [0.0, 1.0], [0.0, 1.0])
    risks = next(table for table in tables if table.key == "risk-coverage")
    name = risks.rows[-1].section
    rows = [row.cells for row in reversed(risks.rows) if row.section == name]
    coverage = [float(str(row[0].value).removesuffix("%")) for row in rows]
    sure = [_interval(row[3]) for row in rows]
    value, low, high = ([100 * one[place] for one in sure] for place in range(3))
    curves = (
        Series("by probability", coverage, value, low, high),
        Series("by base rate", coverage, [100 * _interval(row[4])[0] for row in rows]),
    )
    return Chart(
        "calibration",
        f"How sure is a pick of {calibrated.calibration.origin}",
        (
            Plot("lines", "reliability", "probability", "share right", series=(diagonal, *reliability)),
            Plot("lines", f"risk by coverage ({name})", "coverage: the surest picks (%)", "wrong (%)", series=curves),
        ),
        note=f"{measured_on(calibrated)}, {calibrated.sizes[-1]} rollouts each. Left: bins with as many picks each. Right: lower is better.",
    )


def _interval(cell: Cell) -> tuple[float, float, float]:
    """A value with its interval; where there is none, it is the value itself."""
    assert isinstance(cell.value, float)
    return cell.value, cell.value if cell.low is None else cell.low, cell.value if cell.high is None else cell.high
