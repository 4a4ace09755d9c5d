"""Study 21: does a selector get better as it has more rollouts to choose from? (App. "Composition control".)

From the problems of which all 64 rollouts are located, sub-cohorts of m rollouts are drawn, and each selector picks in
them. Accuracies are conditional on those problems and stand above those of all problems.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from radmoe.evaluation.families import WELL_POSED
from radmoe.evaluation.table import Cell as TableCell
from radmoe.evaluation.table import Column, Row, Table, missing
from radmoe_studies.base import Findings, Options
from radmoe_studies.decision import EFFECT, FEWEST, POINT, Claim, Decided, changed, is_above, is_below, is_near
from radmoe_studies.evidence import Evidence, Request
from radmoe_studies.gains import DOMAINS
from radmoe_studies.pooling import THINKING, clusters
from radmoe_studies.rates import (
    ALL,
    ANCHORS,
    BOUNDARY,
    DELIMITER,
    Curves,
    Rates,
    by_group,
    located_counts,
    mean,
    paper_cell,
    pooled_rates,
    readable,
    remarks,
    subcohort_study,
)
from radmoe_studies.report.figures import Chart, Line, Plot, Series
from radmoe_studies.resample import Quantity
from radmoe_studies.subcohorts import CHANCE, DC, FUSED, MAJORITY, METHODS, ORACLE, RAD, SubcohortCell

SIZES = (2, 4, 8, 16, 32, 64)
FLAT = 0.015  # a slope below this is none: half of RAD's in the paper
TIE = 0.02  # accuracies that differ by less than this are a tie

_CASES = (
    f"over problems with as many located rollouts as the largest m (64, or the largest of 2..64 that {FEWEST} problems "
    f"have), delimiter@16, {THINKING.name} pooled; bootstrap over problems."
)
SHARPENS = Claim(
    "scaling.rad-sharpens",
    "RAD picks better as the cohort grows.",
    "+3.26 points from m=2 to 64 (boundary +2.90)",
    "tab:rollout-scaling",
    f"RAD's accuracy at the largest m minus that at m=2 is above {100 * POINT:g} point, one-sided, {_CASES}",
    changed(EFFECT),
)
FLATTENS = Claim(
    "scaling.deepconf-does-not",
    "The most confident rollout is no better in a larger cohort.",
    "-0.36 points from m=2 to 64 (boundary +0.37)",
    "tab:rollout-scaling",
    f"The DeepConf pick's accuracy at the largest m minus that at m=2 is below {100 * FLAT:g} points, one-sided, {_CASES}",
)
TIES = Claim(
    "scaling.fused-ties-majority",
    "RAD+DC reaches the majority vote without reading an answer.",
    "+0.11 points at m=64 (boundary -0.39)",
    "tab:rollout-scaling",
    f"RAD+DC's accuracy minus the majority's at the largest m lies within {100 * TIE:g} points of 0, two one-sided tests, "
    f"math and science only (programs cannot be counted), {_CASES}",
)

# Percent as the paper prints them: chance, RAD, DC, RAD+DC, majority, oracle at each m.
PAPER = {
    BOUNDARY: (
        (71.78, 71.75, 72.73, 72.73, 73.51, 78.99),
        (71.79, 72.85, 73.20, 73.20, 74.61, 84.21),
        (71.81, 73.56, 73.48, 73.94, 75.67, 87.92),
        (71.78, 74.00, 73.48, 74.53, 76.29, 90.52),
        (71.79, 74.23, 73.37, 75.09, 76.47, 92.36),
        (71.79, 74.65, 73.09, 76.02, 76.41, 93.61),
    ),
    DELIMITER: (
        (74.38, 74.36, 74.98, 74.98, 75.57, 81.10),
        (74.38, 75.83, 75.25, 75.25, 76.42, 85.90),
        (74.40, 76.48, 75.41, 76.45, 77.32, 89.32),
        (74.37, 76.79, 75.30, 76.99, 77.82, 91.68),
        (74.38, 77.05, 75.06, 77.31, 77.93, 93.38),
        (74.39, 77.62, 74.62, 77.96, 77.85, 94.50),
    ),
}
PAPER_SLOPES = {BOUNDARY: (2.90, 0.37, 3.30, -0.39), DELIMITER: (3.26, -0.36, 2.98, 0.11)}
PAPER_ROWS = {BOUNDARY: 2832, DELIMITER: 2636}


def largest(evidence: Evidence, request: Request) -> int:
    """The largest m for which FEWEST problems have as many located rollouts; 0 where there is none."""
    problems: dict[Hashable, int] = {}
    for panel in readable(evidence):
        for problem, count in zip(clusters(panel), np.add(*located_counts(panel, request)).tolist(), strict=True):
            problems[problem] = max(problems.get(problem, 0), count)
    return max((m for m in SIZES if sum(count >= m for count in problems.values()) >= FEWEST), default=0)


def scaling_rates(evidence: Evidence, request: Request, options: Options) -> Rates:
    """Hit rates at every m up to the largest, over the problems that have all of them."""
    full = largest(evidence, request)
    cells = [SubcohortCell(m) for m in SIZES if m <= full]
    return pooled_rates(evidence, request, cells, options, lambda right, wrong: (full > 0) & (right + wrong >= full))


def slope(rates: Rates, method: int, options: Options) -> Quantity | None:
    """A method's accuracy at the largest m minus that at m=2, problem by problem."""
    if len(rates.cells) < 2:
        return None
    return mean(rates.values[:, -1, method] - rates.values[:, 0, method], rates.clusters, options)


def gap(rates: Rates, options: Options) -> Quantity | None:
    """RAD+DC's accuracy minus the majority's at the largest m, where there are votes."""
    if len(rates.cells) < 2:
        return None
    return mean(rates.values[:, -1, FUSED] - rates.values[:, -1, MAJORITY], rates.clusters, options)


@subcohort_study(
    21,
    "Does a selector get better with more rollouts?",
    where="tab:rollout-scaling, fig:rollout-scaling",
    claims=(SHARPENS, FLATTENS, TIES),
)
def scaling(evidence: Evidence, options: Options) -> Findings:
    rates = {request: scaling_rates(evidence, request, options) for request in ANCHORS}
    groups = by_group(rates, options)
    deployed = rates[DELIMITER]
    sharper, flat, tied = slope(deployed, RAD, options), slope(deployed, DC, options), gap(deployed, options)
    made = (
        Decided()
        .with_claim(SHARPENS, [("delimiter@16", sharper, is_above(POINT))])
        .with_claim(FLATTENS, [("delimiter@16 with confidences", flat, is_below(FLAT))])
        .with_claim(TIES, [("delimiter@16 with confidences and votes", tied, is_near(0.0, TIE))])
    )
    notes = [
        *remarks(evidence),
        "The majority is scored by expectation over tied answers, so at m=2 it equals chance where every rollout has an "
        "answer; the paper's beats chance there, which no fair way to break ties can do.",
    ]
    total = sum(map(len, readable(evidence)))
    for request, own in rates.items():
        size = own.cells[-1].m if own.cells else SIZES[0]
        notes.append(
            f"{request.readout}: {len(own.clusters)} of {total} problems (once for each configuration) have {size} located "
            "rollouts; accuracies are those of these problems, not of all."
        )
    return Findings(
        (*(table for table in _tables(rates, groups) if table.rows), _slopes(rates, options)),
        _charts(rates, groups),
        made.decisions,
        (*notes, *made.notes),
    )


def _tables(rates: dict[Request, Rates], groups: dict[Request, dict[str, Curves]]) -> tuple[Table, Table]:
    """Accuracy at each m over all problems, beside the paper's, and by domain."""
    rows: list[Row] = []
    by_domain: list[Row] = []
    for request, own in groups.items():
        for name, group in own.items():
            section = f"{request.readout}, {name} (n={group.rows}, {group.problems} problems)"
            for i, cell in enumerate(rates[request].cells):
                numbers = (group.cell(i, method, "percent") for method in range(len(METHODS)))
                (by_domain if name in DOMAINS else rows).append(Row((TableCell(str(cell.m)), *numbers), section))
        for m, printed in zip(SIZES, PAPER[request], strict=True):
            section = f"{request.readout}, the paper's (n={PAPER_ROWS[request]})"
            rows.append(Row((TableCell(str(m)), *(paper_cell(number, "percent") for number in printed)), section))
    columns = (Column("m"), *(Column(name, "95% CI") for name in METHODS))
    notes = (
        "n counts a problem once for each configuration, as the paper does; intervals are over problems. Chance and the "
        "oracle are exact; the others are means over sub-cohorts. Programs cast no votes.",
    )
    title = "Pick accuracy by the size of the cohort"
    return (
        Table("scaling", title, columns, tuple(rows), notes, "comparison"),
        Table("scaling-domains", f"{title} and domain", columns, tuple(by_domain), notes, "comparison"),
    )


def _slopes(rates: dict[Request, Rates], options: Options) -> Table:
    rows = []
    for request, own in rates.items():
        found = [slope(own, method, options) for method in (RAD, DC, FUSED)] + [gap(own, options)]
        names = [f"{METHODS[method]}, m=2 to the largest" for method in (RAD, DC, FUSED)]
        names.append("RAD+DC - majority at the largest m")
        for name, value, paper in zip(names, found, PAPER_SLOPES[request], strict=True):
            cell, n = missing("too few problems"), missing("too few problems")
            if value is not None:
                cell, n = TableCell(value.estimate, "points", *value.interval), TableCell(value.n, "count")
            rows.append(Row((TableCell(name), n, cell, paper_cell(paper, "points")), request.readout))
    columns = (Column("difference"), Column("problems"), Column("points", "95% CI"), Column("paper"))
    return Table("scaling-slopes", "Slopes, paired by problem", columns, tuple(rows), (), "comparison")


def _charts(rates: dict[Request, Rates], groups: dict[Request, dict[str, Curves]]) -> tuple[Chart, ...]:
    charts = []
    for request, own in groups.items():
        if not own:
            continue
        sizes = [float(cell.m) for cell in rates[request].cells]
        plots = {name: _selectors(group, sizes, name) for name, group in own.items()}
        ceiling = _lines([own[ALL].series("oracle", sizes, ORACLE)], "the ceiling")
        name = request.readout.partition("@")[0]
        title = f"Accuracy by the number of rollouts, {request.readout}"
        charts.append(
            Chart(f"scaling-{name}", title, (*(plots[name] for name in (ALL, WELL_POSED) if name in plots), ceiling))
        )
        if by_domain := [plots[domain] for domain in DOMAINS if domain in plots]:
            charts.append(Chart(f"scaling-{name}-domains", f"{title}, by domain", by_domain))
    return tuple(charts)


def _selectors(group: Curves, sizes: list[float], title: str) -> Plot:
    shown = [i for i in (RAD, DC, FUSED, MAJORITY) if np.isfinite(group.estimate[:, i]).any()]
    series = [group.series(METHODS[i], sizes, i, band=i in (RAD, FUSED, MAJORITY)) for i in shown]
    return _lines(series, title, (Line(100 * float(group.estimate[0, CHANCE]), "chance"),))


def _lines(series: list[Series], title: str, lines: tuple[Line, ...] = ()) -> Plot:
    return Plot("lines", title, "rollouts m", "right (%)", series=series, lines=lines, logarithmic=True)
