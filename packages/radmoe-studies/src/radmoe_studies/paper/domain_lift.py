"""Study 24: where is consensus in route space worth most? (App. "Composition control", domain dependence.)

The lift over chance of each method with all rollouts of a problem to choose from, by domain.
"""

from __future__ import annotations

import numpy as np

from radmoe.evaluation.table import Cell as TableCell
from radmoe.evaluation.table import Column, Row, Table, missing
from radmoe_studies.base import Findings, Options
from radmoe_studies.decision import EFFECT, FEWEST, POINT, Claim, Decided, changed, is_above
from radmoe_studies.evidence import Evidence, Request
from radmoe_studies.gains import DOMAINS
from radmoe_studies.paper.scaling import scaling_rates
from radmoe_studies.pooling import HOLM, THINKING, adjusted, shown
from radmoe_studies.quantities import usable
from radmoe_studies.rates import ANCHORS, BOUNDARY, DELIMITER, Rates, mean, paper_cell, remarks, subcohort_study
from radmoe_studies.report.figures import Chart, Plot, Series
from radmoe_studies.resample import Quantity, resample
from radmoe_studies.subcohorts import DC, FUSED, METHODS, RAD

SHOWN = (RAD, DC, FUSED)
FAR = 0.01  # "far above" is more than one point

_CASES = (
    f"delimiter@16, problems with as many located rollouts as the largest m (64, or the largest of 2..64 that {FEWEST} "
    f"problems have), all of them in one cohort, {THINKING.name} pooled; bootstrap over problems"
)
ORDER = Claim(
    "domain-lift.math-far-above",
    "RAD's lift over chance is far larger on math than on science and code.",
    "+6.19 against +2.20 and +2.64 points (boundary +6.88, +1.61, +1.99)",
    "tab:rollout-domain",
    f"RAD's lift on math minus that on science, and minus that on code, are both above {100 * FAR:g} point, one-sided, the "
    f"weaker decides ({_CASES}).",
)
EVERYWHERE = Claim(
    "domain-lift.above-chance-everywhere",
    "RAD is above chance in every domain.",
    "all three intervals exclude 0, Holm-corrected",
    "tab:rollout-domain",
    f"RAD's lift is above {100 * POINT:g} point on math, science and code each, one-sided, the weakest decides ({_CASES}).",
    changed(EFFECT),
)

# Points as the paper prints them: RAD, DC, RAD+DC, and the number of problems.
PAPER = {
    BOUNDARY: {"math": (6.88, 3.25, 7.38, 605), "science": (1.61, 1.68, 3.75, 1355), "code": (1.99, -0.65, 2.79, 872)},
    DELIMITER: {
        "math": (6.19, 3.32, 6.70, 592),
        "science": (2.20, -0.67, 2.36, 1223),
        "code": (2.64, -0.65, 3.12, 821),
    },
}


def lift(rates: Rates, domain: str, method: int, options: Options) -> Quantity | None:
    """A method's mean lift over chance with the largest cohorts of a domain."""
    if not rates.cells:
        return None
    return mean(np.where(rates.of(domain), rates.lifts[:, -1, method], np.nan), rates.clusters, options)


def difference(rates: Rates, domain: str, other: str, options: Options) -> Quantity | None:
    """RAD's lift on one domain minus that on another, which have different problems."""
    if lift(rates, domain, RAD, options) is None or lift(rates, other, RAD, options) is None:
        return None
    lifts = rates.lifts[:, -1, RAD]
    one, two = rates.of(domain), rates.of(other)
    inside = [i for i in range(len(lifts)) if one[i] or two[i]]
    columns = np.column_stack([np.where(one, lifts, np.nan), np.where(two, lifts, np.nan)])[inside]
    result = resample(columns, [rates.clusters[i] for i in inside], resamples=options.draws, seed=options.seed)
    return usable(result.difference(0, 1))


@subcohort_study(
    24,
    "Where is consensus in route space worth most?",
    where="tab:rollout-domain",
    claims=(ORDER, EVERYWHERE),
)
def domain_lift(evidence: Evidence, options: Options) -> Findings:
    rates = {request: scaling_rates(evidence, request, options) for request in ANCHORS}
    lifts = {
        request: {domain: [lift(own, domain, method, options) for method in SHOWN] for domain in DOMAINS}
        for request, own in rates.items()
    }
    deployed = rates[DELIMITER]
    made = (
        Decided()
        .with_claim(
            ORDER,
            [
                (f"math and {other}", difference(deployed, "math", other, options), is_above(FAR))
                for other in ("science", "code")
            ],
        )
        .with_claim(EVERYWHERE, [(domain, lifts[DELIMITER][domain][0], is_above(POINT)) for domain in DOMAINS])
    )
    notes = (*remarks(evidence), *made.notes)
    return Findings((_table(rates, lifts),), _charts(rates, lifts), made.decisions, notes)


def _table(rates: dict[Request, Rates], lifts: dict[Request, dict[str, list[Quantity | None]]]) -> Table:
    rows = []
    tested = {(request, domain): _p(own[0]) for request, domains in lifts.items() for domain, own in domains.items()}
    corrected = dict(zip(tested, adjusted(list(tested.values())), strict=True))
    for request, domains in lifts.items():
        size = rates[request].cells[-1].m if rates[request].cells else 0
        for domain, own in domains.items():
            n = TableCell(int(rates[request].of(domain).sum()), "count")
            cells = [_cell(one) for one in own]
            p = shown(corrected[request, domain], "p", note="too few problems")
            rows.append(Row((TableCell(domain), n, *cells, p), f"{request.readout}, m={size}"))
        for domain, (*printed, problems) in PAPER[request].items():
            numbers = [paper_cell(number, "points") for number in printed]
            count = TableCell(problems, "count")
            rows.append(
                Row(
                    (TableCell(domain), count, *numbers, missing("not in the paper")), f"{request.readout}, the paper's"
                )
            )
    columns = (
        Column("domain"),
        Column("n"),
        *(Column(METHODS[method], "95% CI") for method in SHOWN),
        Column("p of RAD (Holm)"),
    )
    notes = (
        "n counts a problem once for each configuration, as the paper does; intervals are over problems. p is two-sided, by the "
        f"bootstrap. {HOLM}",
    )
    return Table(
        "domain-lift", "Lift over chance with all rollouts, by domain", columns, tuple(rows), notes, "comparison"
    )


def _cell(value: Quantity | None) -> TableCell:
    if value is None:
        return missing(f"fewer than {FEWEST} problems, or no confidences")
    return TableCell(value.estimate, "points", *value.interval)


def _p(lift: Quantity | None) -> float | None:
    """The two-sided p of a lift, by its draws."""
    if lift is None:
        return None
    rarer = min(int(np.sum(lift.draws <= 0)), int(np.sum(lift.draws >= 0)))
    return min(1.0, 2 * (1 + rarer) / (1 + len(lift.draws)))


def _charts(rates: dict[Request, Rates], lifts: dict[Request, dict[str, list[Quantity | None]]]) -> tuple[Chart, ...]:
    plots = []
    for request, domains in lifts.items():
        series = []
        for i, method in enumerate(SHOWN):
            known = {domain: one for domain, own in domains.items() if (one := own[i]) is not None}
            if known:
                bounds = [one.interval for one in known.values()]
                y = [100 * one.estimate for one in known.values()]
                low, high = ([100 * bound[side] for bound in bounds] for side in (0, 1))
                series.append(Series(METHODS[method], list(known), y, low, high))
        if series:
            title = f"{request.readout}, m={rates[request].cells[-1].m}"
            plots.append(Plot("bars", title, y="lift over chance (points)", series=series))
    if not plots:
        return ()
    return (Chart("domain-lift", "Lift over chance with all rollouts, by domain", plots, shared_y=True),)
