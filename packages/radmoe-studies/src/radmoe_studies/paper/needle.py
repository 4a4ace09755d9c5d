"""Study 23: who finds the one right rollout among m? (App. "Composition control", the single-needle regime.)

Sub-cohorts hold exactly one right rollout. It stands outside every consensus, so that RAD should miss it, while a
confidence that knows a good rollout should not.
"""

from __future__ import annotations

import numpy as np

from radmoe.evaluation.table import Cell as TableCell
from radmoe.evaluation.table import Column, Row, Table
from radmoe_studies.base import Findings, Options
from radmoe_studies.decision import EFFECT, POINT, Claim, Decided, changed, is_above, is_below
from radmoe_studies.evidence import Evidence, Request
from radmoe_studies.gains import DOMAINS
from radmoe_studies.pooling import THINKING
from radmoe_studies.rates import (
    ALL,
    ANCHORS,
    BOUNDARY,
    DELIMITER,
    Curves,
    Rates,
    curves,
    mean,
    paper_cell,
    pooled_rates,
    remarks,
    subcohort_study,
)
from radmoe_studies.report.figures import Chart, Line, Plot
from radmoe_studies.resample import Quantity
from radmoe_studies.subcohorts import DC, FUSED, METHODS, RAD, SubcohortCell

SIZES = (8, 16, 32)
CELLS = tuple(SubcohortCell(m, 1) for m in SIZES)
SHOWN = (RAD, DC, FUSED)

_CASES = (
    "for m = 8, 16 and 32 each, one-sided, the weakest decides (delimiter@16, problems with at least one right and m-1 "
    f"wrong located rollouts, {THINKING.name} pooled; bootstrap over problems)."
)
MISSES = Claim(
    "needle.rad-misses",
    "RAD finds a lone right rollout less often than chance.",
    "-7.21 / -3.96 / -2.07 points at m = 8 / 16 / 32 (boundary -6.75 / -3.93 / -2.26)",
    "tab:rollout-needle",
    f"RAD's accuracy minus 1/m is below -{100 * POINT:g} point {_CASES}",
    changed(EFFECT),
)
FINDS = Claim(
    "needle.confidence-finds",
    "The most confident rollout is the lone right one more often than chance.",
    "+5.01 / +3.27 / +2.03 points at m = 8 / 16 / 32 (boundary +7.23 / +5.23 / +2.92)",
    "tab:rollout-needle",
    f"The DeepConf pick's accuracy minus 1/m is above {100 * POINT:g} point {_CASES}",
    changed(EFFECT),
)

# Points as the paper prints them for m = 8, 16, 32: RAD, DC, RAD+DC, and the number of problems.
PAPER = {
    BOUNDARY: ((-6.75, 7.23, -4.05, 1440), (-3.93, 5.23, -2.94, 1140), (-2.26, 2.92, -1.72, 738)),
    DELIMITER: ((-7.21, 5.01, -4.80, 1418), (-3.96, 3.27, -3.10, 1091), (-2.07, 2.03, -1.69, 699)),
}


def needle_rates(evidence: Evidence, request: Request, options: Options) -> Rates:
    """Hit rates with one right rollout, for each m over the problems that have such sub-cohorts."""
    return pooled_rates(evidence, request, CELLS, options)


def lifts_of(rates: Rates, method: int, options: Options) -> dict[str, Quantity | None]:
    """A method's mean lift for each m."""
    return {f"m={m}": mean(rates.lifts[:, i, method], rates.clusters, options) for i, m in enumerate(SIZES)}


@subcohort_study(
    23,
    "Who finds the one right rollout?",
    where="tab:rollout-needle",
    claims=(MISSES, FINDS),
)
def needle(evidence: Evidence, options: Options) -> Findings:
    rates = {request: needle_rates(evidence, request, options) for request in ANCHORS}
    families = sorted({family for own in rates.values() for family in own.families})
    groups = (ALL, *DOMAINS, *families)
    lifts = {request: curves(own, options, groups=groups, lifts=True) for request, own in rates.items()}
    deployed = rates[DELIMITER]
    rad, confidence = lifts_of(deployed, RAD, options), lifts_of(deployed, DC, options)
    made = (
        Decided()
        .with_claim(MISSES, [(m, lift, is_below(-POINT)) for m, lift in rad.items()])
        .with_claim(FINDS, [(f"{m} with confidences", lift, is_above(POINT)) for m, lift in confidence.items()])
    )
    note = (
        "The paper reports all families together and calls DeepConf's lift Qwen-heavy; here each family has its rows."
    )
    return Findings(
        (_table(rates, lifts),), _charts(lifts, groups), made.decisions, (*remarks(evidence), note, *made.notes)
    )


def _table(rates: dict[Request, Rates], lifts: dict[Request, dict[str, Curves]]) -> Table:
    rows = []
    for request, groups in lifts.items():
        for name, group in groups.items():
            fits = rates[request].lifts[rates[request].of(name)][:, :, RAD]
            for i, m in enumerate(SIZES):
                n = TableCell(int(np.isfinite(fits[:, i]).sum()), "count")
                numbers = (group.cell(i, method, "points") for method in SHOWN)
                rows.append(Row((TableCell(str(m)), n, *numbers), f"{request.readout}, {name}"))
        for m, (*printed, problems) in zip(SIZES, PAPER[request], strict=True):
            numbers = (paper_cell(number, "points") for number in printed)
            count = TableCell(problems, "count")
            rows.append(Row((TableCell(str(m)), count, *numbers), f"{request.readout}, the paper's"))
    columns = (Column("m"), Column("n"), *(Column(METHODS[method], "95% CI") for method in SHOWN))
    notes = ("n counts a problem once for each configuration, as the paper does; intervals are over problems.",)
    return Table("needle", "Lift over chance with one right rollout among m", columns, tuple(rows), notes, "comparison")


def _charts(lifts: dict[Request, dict[str, Curves]], groups: tuple[str, ...]) -> tuple[Chart, ...]:
    charts = []
    sizes = [float(m) for m in SIZES]
    for request, own in lifts.items():
        plots = []
        for name in (group for group in groups if group in own and group in (ALL, *DOMAINS)):
            series = [own[name].series(METHODS[i], sizes, i) for i in SHOWN]
            plots.append(
                Plot(
                    "lines",
                    name,
                    "rollouts m",
                    "lift (points)",
                    series=[one for one in series if one.y],
                    lines=(Line(0.0, "chance"),),
                    logarithmic=True,
                )
            )
        if plots:
            title = f"Lift over chance with one right rollout among m, {request.readout}"
            charts.append(Chart(f"needle-{request.readout.partition('@')[0]}", title, plots, shared_y=True))
    return tuple(charts)
