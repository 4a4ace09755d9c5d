"""Study 8: how many rollouts have the anchor that RAD reads? (App. "fallback", cases a to c.) It only reports.

In case a all rollouts of a problem are located, in case b some are not and RAD chooses among the others, in case c fewer
than two are and RAD abstains.
"""

from __future__ import annotations

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.evidence import Evidence, Floats, Panel, Request
from radmoe_studies.picks import standard
from radmoe_studies.quantities import ALL, by_configuration, mean_cell, pooled, series
from radmoe_studies.report.figures import Chart, Plot
from radmoe_studies.resample import Resampled

COLUMNS = ("a: all located", "b: some located", "c: fewer than two", "rollouts located", "rollouts with an answer")
PAPER = (0.75, 0.24, 0.008, 0.93)  # of well-posed problems
WELL_POSED = ("math", "science")


def requests(panel: Panel) -> tuple[Request, ...]:
    return (standard(panel),)


def cases(panel: Panel) -> Floats:
    """For each problem, which case it is (1 in one of three columns), and the shares of located and answered rollouts."""
    located = panel.read(standard(panel)).located & panel.here
    count, total = located.sum(1), panel.here.sum(1)
    few = count < 2
    whole = (count == total) & ~few
    shares = [values / np.maximum(total, 1) for values in (count, (panel.answered & panel.here).sum(1))]
    return np.column_stack([whole, ~whole & ~few, few, *shares]).astype(np.float64)


@study(8, "How many rollouts have the anchor that RAD reads?", where="App. fallback", requests=requests)
def coverage(evidence: Evidence, options: Options) -> Findings:
    made = {panel: cases(panel) for panel in evidence.panels}
    sections = {
        "well-posed": [panel for panel in evidence.panels if panel.domain in WELL_POSED],
        **{
            domain: [panel for panel in evidence.panels if panel.domain == domain]
            for domain in dict.fromkeys(panel.domain for panel in evidence.panels)
        },
    }
    rows, charted = [], {}
    for section, panels in sections.items():
        if not panels or (section in WELL_POSED and len(panels) == len(sections["well-posed"])):
            continue  # one domain alone is the well-posed section itself
        results = {name: pooled(own, made, options) for name, own in by_configuration(panels).items()}
        rows += [_row(section, name, result) for name, result in results.items()]
        charted[section] = results
        if section == "well-posed":
            paper = (*(Cell(value, "percent") for value in PAPER), missing("not given"))
            rows.append(Row((Cell("paper"), missing("about 3,880"), *paper), section))
    columns = (
        Column("configuration"),
        Column("problems"),
        *(Column(c, "95% CI") for c in COLUMNS),
    )
    table = Table(
        "coverage", "Problems by how many of their rollouts are located", columns, tuple(rows), sections="domain"
    )
    lowest = [result.estimate[3] for name, result in charted.get("well-posed", {}).items() if name != ALL and result]
    notes = ["Case c is scored as wrong wherever RAD is compared with other methods, as in the paper."]
    if lowest:
        notes.append(
            f"Coverage of well-posed problems by configuration: {min(lowest):.2f} to {max(lowest):.2f} "
            "(paper: .73 to 1.00 by model)."
        )
    return Findings((table,), (_chart(charted),), notes=tuple(notes))


def _row(section: str, name: str, result: Resampled | None) -> Row:
    count = 0 if result is None else result.n
    cells = (mean_cell(result, i, "percent") for i in range(len(COLUMNS)))
    return Row((Cell(name), Cell(count, "count"), *cells), section)


def _chart(charted: dict[str, dict[str, Resampled | None]]) -> Chart:
    plots = []
    for section, results in charted.items():
        bars = [
            series(case, list(results), [mean_cell(result, i) for result in results.values()], 100.0)
            for i, case in enumerate(COLUMNS[:3])
        ]
        plots.append(Plot("bars", section, y="problems (%)", series=bars))
    return Chart("coverage", "How many rollouts have the anchor that RAD reads?", tuple(plots[:3]))
