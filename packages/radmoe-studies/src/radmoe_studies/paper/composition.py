"""Study 22: what does RAD pick as the share of right rollouts rises? (App. "Composition control".)

Sub-cohorts of 16 rollouts hold exactly c right ones, from problems that have at least 15 of either sort, so that every
c is drawn from the same problems. A lift is a method's accuracy minus chance, c/16.
"""

from __future__ import annotations

import numpy as np

from radmoe.evaluation.table import Cell as TableCell
from radmoe.evaluation.table import Column, Row, Table
from radmoe_studies.base import Findings, Options
from radmoe_studies.decision import EFFECT, POINT, POINTS, Claim, Decided, changed, is_above, is_below, is_near
from radmoe_studies.evidence import Evidence, Floats, Request
from radmoe_studies.gains import DOMAINS
from radmoe_studies.pooling import THINKING
from radmoe_studies.rates import (
    ALL,
    ANCHORS,
    BOUNDARY,
    DELIMITER,
    Curves,
    Rates,
    by_group,
    curves,
    mean,
    paper_cell,
    pooled_rates,
    remarks,
    subcohort_study,
)
from radmoe_studies.report.figures import Chart, Line, Plot
from radmoe_studies.resample import Quantity, resample
from radmoe_studies.subcohorts import CHANCE, DC, FUSED, MAJORITY, METHODS, RAD, SubcohortCell

M = 16
COUNTS = (1, 2, 4, 6, 8, 10, 12, 14, 15)
CELLS = tuple(SubcohortCell(M, c) for c in COUNTS)
FEW, MOST = SubcohortCell(M, 4), SubcohortCell(M, 10)  # f = .25 and .62: where the paper's curve is lowest and highest
CROSSING, NEAR = 0.4, 0.1
SHARES = (2 / 8, 3 / 8, 4 / 8, 5 / 8, 6 / 8)
SIZES = (8, 16, 32)
SHOWN = (RAD, DC, FUSED, MAJORITY)

_CASES = (
    f"sub-cohorts of {M}, problems with at least {M - 1} right and {M - 1} wrong located rollouts, {THINKING.name} "
    "pooled; bootstrap over problems"
)
_DEPLOYED = f"(delimiter@16, {_CASES})"
CURVE = Claim(
    "composition.s-curve",
    "RAD is below chance where right rollouts are few, and above it where they are most.",
    "-8.16 points at f=.25, +23.77 at f=.62",
    "tab:rollout-composition",
    f"RAD's lift at c=4 is below -{100 * POINTS:g} points and its lift at c=10 is above {100 * POINTS:g} points, both one-sided, the "
    f"weaker decides {_DEPLOYED}.",
    changed(EFFECT),
)
CROSSES = Claim(
    "composition.crosses-near-.4",
    "RAD's lift crosses zero where about two in five rollouts are right.",
    "f of about .4",
    "tab:rollout-composition",
    f"The f at which RAD's mean lift crosses zero (on straight lines between the c, from its lowest point on) lies within "
    f"{NEAR} of {CROSSING}, two one-sided tests {_DEPLOYED}.",
)
COMPLEMENT = Claim(
    "composition.confidence-finds-the-few",
    "The most confident rollout is above chance where right rollouts are few.",
    "+6.07 points at f=.25 (boundary +9.65)",
    "tab:rollout-composition",
    f"The DeepConf pick's lift at c=4 is above {100 * POINTS:g} points, one-sided {_DEPLOYED}.",
    changed(EFFECT),
)
GROWS = Claim(
    "composition.amplitude-grows",
    "The S-curve is steeper in larger cohorts.",
    "a figure, no number",
    "fig:rollout-sharpen",
    f"RAD's lift at f=.62 minus that at f=.25 is larger for m=32 than for m=8: the difference is above {100 * POINT:g} point, one-sided "
    f"(delimiter@16, problems that have all four sorts of sub-cohorts, {THINKING.name} pooled; bootstrap over problems).",
    changed(EFFECT),
)

# Points as the paper prints them for each c: RAD, DC, RAD+DC.
PAPER = {
    BOUNDARY: (
        (-3.70, -6.47, -8.16, -1.77, 10.89, 20.11, 16.49, 8.82, 4.51),
        (5.85, 8.55, 9.65, 8.91, 6.61, 4.56, 2.06, 0.15, -0.30),
        (-2.90, -4.22, -1.65, 6.58, 12.53, 15.15, 14.12, 8.30, 4.27),
    ),
    DELIMITER: (
        (-3.81, -6.69, -8.16, -0.01, 17.23, 23.77, 18.08, 9.43, 4.77),
        (3.55, 5.39, 6.07, 5.47, 3.57, 2.07, 0.31, -0.84, -0.84),
        (-3.02, -4.53, -0.95, 6.36, 13.45, 16.86, 15.72, 9.07, 4.57),
    ),
}
PAPER_ROWS = {BOUNDARY: 703, DELIMITER: 664}


def balanced_rates(evidence: Evidence, request: Request, options: Options) -> Rates:
    """Hit rates for every c, over the problems that have all of them."""
    return pooled_rates(
        evidence, request, CELLS, options, lambda right, wrong: (right >= max(COUNTS)) & (wrong >= M - min(COUNTS))
    )


def lift(rates: Rates, cell: SubcohortCell, method: int, options: Options) -> Quantity | None:
    """A method's mean lift over chance in one sort of sub-cohorts."""
    return mean(rates.lifts[:, rates.column(cell), method], rates.clusters, options)


def crossings(shares: Floats, lifts: Floats) -> Floats:
    """The share at which each curve [rows, shares] first rises to zero after its lowest point.

    It is 0 for a curve that is never negative, and 1 for a curve that does not rise to zero again.
    """
    out = np.empty(len(lifts))
    for row, curve in enumerate(lifts):
        lowest = int(np.argmin(curve))
        risen = np.flatnonzero(curve[lowest:] >= 0) + lowest
        if curve[lowest] >= 0 or not len(risen):
            out[row] = 0.0 if curve[lowest] >= 0 else 1.0
            continue
        after = int(risen[0])
        step = -curve[after - 1] / (curve[after] - curve[after - 1])
        out[row] = shares[after - 1] + step * (shares[after] - shares[after - 1])
    return out


def crossing(rates: Rates, options: Options) -> Quantity | None:
    """The share of right rollouts at which RAD's mean lift crosses zero."""
    if lift(rates, FEW, RAD, options) is None:
        return None
    shares = np.array([cell.right / cell.m for cell in rates.cells])
    result = resample(rates.lifts[:, :, RAD], rates.clusters, resamples=options.draws, seed=options.seed)
    return result.quantity(crossings(shares, result.estimate[None])[0], crossings(shares, result.draws))


def amplitude_growth(rates: Rates, options: Options) -> Quantity | None:
    """How much more RAD's lift differs between f=.62 and f=.25 for m=32 than for m=8, on the same problems."""
    lifts = rates.lifts[:, :, RAD]
    low, high = ([rates.column(SubcohortCell(m, round(share * m))) for m in (8, 32)] for share in (2 / 8, 5 / 8))
    amplitude = lifts[:, high] - lifts[:, low]
    return mean(amplitude[:, 1] - amplitude[:, 0], rates.clusters, options)


@subcohort_study(
    22,
    "What does RAD pick as right rollouts become more?",
    where="tab:rollout-composition, fig:rad-composition",
    claims=(CURVE, CROSSES, COMPLEMENT, GROWS),
)
def composition(evidence: Evidence, options: Options) -> Findings:
    rates = {request: balanced_rates(evidence, request, options) for request in ANCHORS}
    lifts = by_group(rates, options, lifts=True)
    sizes = [SubcohortCell(m, round(share * m)) for m in SIZES for share in SHARES]
    feasible = pooled_rates(evidence, DELIMITER, sizes, options)
    deployed = rates[DELIMITER]
    made = (
        Decided()
        .with_claim(
            CURVE,
            [
                ("c=4", lift(deployed, FEW, RAD, options), is_below(-POINTS)),
                ("c=10", lift(deployed, MOST, RAD, options), is_above(POINTS)),
            ],
        )
        .with_claim(CROSSES, [("the curve", crossing(deployed, options), is_near(CROSSING, NEAR, "share"))])
        .with_claim(COMPLEMENT, [("c=4 with confidences", lift(deployed, FEW, DC, options), is_above(POINTS))])
        .with_claim(GROWS, [("m=8 and m=32", amplitude_growth(feasible, options), is_above(POINT))])
    )
    note = (
        "The majority is scored by expectation over tied answers, so its entry at c=1 can be shown; the paper leaves it "
        "out, because its lowest-index tie-break decides it."
    )
    charts = _charts(lifts, deployed, feasible, options)
    return Findings((_table(lifts),), charts, made.decisions, (*remarks(evidence), note, *made.notes))


def _table(lifts: dict[Request, dict[str, Curves]]) -> Table:
    rows = []
    for request, groups in lifts.items():
        for name, group in groups.items():
            section = f"{request.readout}, {name} (n={group.rows}, {group.problems} problems)"
            for i, cell in enumerate(CELLS):
                numbers = (group.cell(i, method, "points") for method in SHOWN)
                rows.append(Row((TableCell(f"{cell.right} (f={cell.right / M:.2f})"), *numbers), section))
        for i, c in enumerate(COUNTS):
            printed = (paper_cell(numbers[i], "points") for numbers in (*PAPER[request], (None,) * len(COUNTS)))
            section = f"{request.readout}, the paper's (n={PAPER_ROWS[request]})"
            rows.append(Row((TableCell(f"{c} (f={c / M:.2f})"), *printed), section))
    columns = (Column("right of 16"), *(Column(METHODS[method], "95% CI") for method in SHOWN))
    return Table(
        "composition", "Lift over chance by the right rollouts among 16", columns, tuple(rows), (), "comparison"
    )


def _charts(
    lifts: dict[Request, dict[str, Curves]], rates: Rates, feasible: Rates, options: Options
) -> tuple[Chart, ...]:
    shares = [c / M for c in COUNTS]
    charts = []
    for request, groups in lifts.items():
        if groups:
            plots = [_s_curve(groups[name], shares, name) for name in (ALL, *DOMAINS) if name in groups]
            title = f"Lift over chance by the share of right rollouts, m={M}, {request.readout}"
            charts.append(Chart(f"composition-{request.readout.partition('@')[0]}", title, plots, shared_y=True))
    raw = curves(rates, options).get(ALL)
    by_size = curves(feasible, options, lifts=True).get(ALL)
    plots = []
    if raw is not None:
        series = [raw.series(METHODS[i], shares, i, band=i == RAD) for i in (RAD, DC, FUSED, CHANCE)]
        plots.append(Plot("lines", f"accuracy, m={M}", "share of right rollouts f", "right (%)", series=series))
    if by_size is not None:
        series = []
        for m in SIZES:
            own = [i for i, cell in enumerate(feasible.cells) if cell.m == m]
            part = by_size._replace(estimate=by_size.estimate[own], low=by_size.low[own], high=by_size.high[own])
            series.append(part.series(f"m={m}", SHARES, RAD))
        lines = (Line(0.0, "chance"),)
        plots.append(
            Plot("lines", "RAD by m", "share of right rollouts f", "lift (points)", series=series, lines=lines)
        )
    if plots:
        note = "The curves by m take every problem that has such sub-cohorts, so their problems differ from f to f."
        charts.append(Chart("composition-sizes", "Accuracy, and RAD's lift by cohort size, delimiter@16", plots, note))
    return tuple(charts)


def _s_curve(group: Curves, shares: list[float], title: str) -> Plot:
    series = [group.series(METHODS[i], shares, i, band=i in (RAD, DC)) for i in SHOWN]
    series = [one for one in series if one.y]
    return Plot(
        "lines", title, "share of right rollouts f", "lift (points)", series=series, lines=(Line(0.0, "chance"),)
    )
