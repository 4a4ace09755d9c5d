"""Study 26: is it the same mechanism at both anchors? (App. "Composition control", cross-anchor robustness.)

What studies 21 to 23 find at the delimiter is measured at the boundary too, beside the paper's numbers. It decides nothing: the
claims are those of 21 to 23, and count once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from radmoe.evaluation.table import Cell as TableCell
from radmoe.evaluation.table import Column, Row, Table, missing
from radmoe_studies.base import Findings, Options
from radmoe_studies.evidence import Evidence, Request
from radmoe_studies.paper.composition import COUNTS, FEW, MOST, M, balanced_rates, lift
from radmoe_studies.paper.needle import lifts_of, needle_rates
from radmoe_studies.paper.scaling import gap, scaling_rates, slope
from radmoe_studies.rates import (
    ALL,
    ANCHORS,
    BOUNDARY,
    DELIMITER,
    Rates,
    curves,
    paper_cell,
    remarks,
    subcohort_study,
)
from radmoe_studies.report.figures import Chart, Line, Plot, Series
from radmoe_studies.resample import Quantity
from radmoe_studies.subcohorts import DC, FUSED, METHODS, RAD


class AtAnchor(NamedTuple):
    """The hit rates of studies 21, 22 and 23 at one anchor."""

    scaling: Rates
    balanced: Rates
    needle: Rates


class AnchorPart(NamedTuple):
    """A quantity that studies 21 to 23 decide about, and the paper's numbers at boundary and delimiter."""

    name: str
    compute: Callable[[AtAnchor, Options], Quantity | None]
    paper: tuple[float, float]


PARTS = (
    AnchorPart("RAD, m=2 to the largest", lambda at, o: slope(at.scaling, RAD, o), (2.90, 3.26)),
    AnchorPart("DC, m=2 to the largest", lambda at, o: slope(at.scaling, DC, o), (0.37, -0.36)),
    AnchorPart("RAD, 4 right of 16", lambda at, o: lift(at.balanced, FEW, RAD, o), (-8.16, -8.16)),
    AnchorPart("RAD, 10 right of 16", lambda at, o: lift(at.balanced, MOST, RAD, o), (20.11, 23.77)),
    AnchorPart("RAD, 1 right of 16", lambda at, o: lifts_of(at.needle, RAD, o)["m=16"], (-3.93, -3.96)),
    AnchorPart("DC, 1 right of 16", lambda at, o: lifts_of(at.needle, DC, o)["m=16"], (5.23, 3.27)),
    AnchorPart("RAD+DC - majority at the largest m", lambda at, o: gap(at.scaling, o), (-0.39, 0.11)),
)


@subcohort_study(
    26,
    "Is it the same mechanism at both anchors?",
    where="fig:rollout-anchor",
)
def cross_anchor(evidence: Evidence, options: Options) -> Findings:
    rates = {
        request: AtAnchor(*(f(evidence, request, options) for f in (scaling_rates, balanced_rates, needle_rates)))
        for request in ANCHORS
    }
    means = {request: [part.compute(own, options) for part in PARTS] for request, own in rates.items()}
    return Findings((_table(means),), _charts(rates, options), notes=remarks(evidence))


def _table(means: dict[Request, list[Quantity | None]]) -> Table:
    rows = []
    for side, request in enumerate(ANCHORS):
        for part, one in zip(PARTS, means[request], strict=True):
            ours = (missing("too few problems"), missing("too few problems"))
            if one is not None:
                ours = (TableCell(one.n, "count"), TableCell(one.estimate, "points", *one.interval))
            rows.append(Row((TableCell(part.name), *ours, paper_cell(part.paper[side], "points")), request.readout))
    columns = (Column("quantity"), Column("problems"), Column("points", "95% CI"), Column("paper"))
    return Table("cross-anchor", "The same quantities at both anchors", columns, tuple(rows), (), "comparison")


def _charts(rates: dict[Request, AtAnchor], options: Options) -> tuple[Chart, ...]:
    """An overlay: one colour per method, both anchors in it."""
    by_size = {request: curves(own.scaling, options).get(ALL) for request, own in rates.items()}
    by_share = {request: curves(own.balanced, options, lifts=True).get(ALL) for request, own in rates.items()}
    sizes, shares = [], []
    for method in (RAD, DC, FUSED):
        for request, mark in ((BOUNDARY, "boundary"), (DELIMITER, "delimiter")):
            name = f"{METHODS[method]}, {mark}"
            if (group := by_size[request]) is not None:
                at = [float(cell.m) for cell in rates[request].scaling.cells]
                sizes.append(group.series(name, at, method, band=False, group=METHODS[method]))
            if (group := by_share[request]) is not None:
                at = [c / M for c in COUNTS]
                shares.append(group.series(name, at, method, band=False, group=METHODS[method]))
    plots = []
    if any(one.y for one in sizes):
        plots.append(_plot("accuracy by m", "rollouts m", "right (%)", sizes, logarithmic=True))
    if any(one.y for one in shares):
        lines = (Line(0.0, "chance"),)
        plots.append(_plot(f"lift by f, m={M}", "share of right rollouts f", "lift (points)", shares, lines=lines))
    return (Chart("cross-anchor", "Both anchors: accuracy by m, lift by composition", plots),) if plots else ()


def _plot(
    title: str, x: str, y: str, series: list[Series], *, lines: tuple[Line, ...] = (), logarithmic: bool = False
) -> Plot:
    return Plot("lines", title, x, y, series=[one for one in series if one.y], lines=lines, logarithmic=logarithmic)
