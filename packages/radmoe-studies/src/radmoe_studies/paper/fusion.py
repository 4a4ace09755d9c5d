"""Study 20: does confidence add to density, and does it matter how? (App. "DeepConf and fusion".)

RAD, RAD+DC by conf50 (the densest of the more confident half) and RAD+DC by rank sum, on the same eligible problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.stats import Paired, holm
from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.decision import Claim, ClaimDecision, within
from radmoe_studies.evidence import Evidence, Floats, Panel, Request
from radmoe_studies.fusions import fused
from radmoe_studies.needs import LOGPROBS
from radmoe_studies.paper_tables import percent, pool_of, printed
from radmoe_studies.picks import rad, standard
from radmoe_studies.pooling import HOLM, PAIRED, POOLS, configuration, groups, of_pool, paired, shown, stack
from radmoe_studies.report.figures import Chart, Line, Plot, Series
from radmoe_studies.resample import Resampled, resample

MARGIN = 0.01  # a point: what the paper resolves over all configurations
EFFORTS = ("low", "medium", "high")
RAD, HALF, SUM = range(3)
NAMES = ("RAD", "conf50", "rank sum")

ADDS = Claim(
    "fusion.confidence-adds-nothing",
    "RAD+DC selects as well as RAD.",
    "no cell after Holm; 74.2 against 73.9",
    "App. effort, tab:dc",
    f"RAD+DC (conf50) minus RAD on well-posed problems, all configurations pooled, lies within {100 * MARGIN:g} point of 0: "
    "two one-sided tests on the bootstrap over problems.",
)
RULE = Claim(
    "fusion.rule-does-not-matter",
    "The two ways to fuse density and confidence select equally well.",
    "no cell after Holm",
    "App. effort, tab:dc-fusion",
    f"Rank sum minus conf50 on well-posed problems and code together, all configurations pooled, lies within "
    f"{100 * MARGIN:g} point of 0: two one-sided tests on the bootstrap over problems.",
)


class Group(NamedTuple):
    """Some panels of a pool of problems: hits on eligible problems, and how many problems there are at all."""

    pool: str
    name: str
    means: Resampled
    n: int
    of: int
    dc: Paired  # conf50 against RAD
    rule: Paired  # rank sum against conf50


def wanted(panel: Panel) -> list[Request]:
    return [standard(panel)] if panel.domain in ("math", "science", "code") and "cbw" in panel.scalars else []


def table(panel: Panel) -> Floats:
    """Hits of RAD, conf50 and rank sum [P, 3], NaN on problems that are not eligible."""
    return np.column_stack([rad(panel), fused(panel, "conf50"), fused(panel, "ranksum")])


@study(
    20,
    "Does confidence add to density, and does it matter how?",
    where="App. effort, tab:dc, tab:dc-fusion",
    requests=wanted,
    claims=(ADDS, RULE),
    needs=(LOGPROBS,),
)
def fusion(evidence: Evidence, options: Options) -> Findings:
    hits = {panel: table(panel) for panel in evidence.panels if wanted(panel)}
    compared = [
        group
        for pool in POOLS
        for name, own in _groups(of_pool(hits, pool)).items()
        if (group := _group(pool, name, own, hits, options)) is not None
    ]
    everything = _group("all", "all", list(hits), hits, options)
    decisions: list[ClaimDecision] = []
    notes = [
        "The paper's n counts eligible problems, those with two or more located rollouts; the number of all problems "
        "stands beside it. Holm's correction is over all rows of a table.",
    ]
    whole = next((group for group in compared if (group.pool, group.name) == ("well-posed", "all")), None)
    for claim, group, one, other in ((ADDS, whole, HALF, RAD), (RULE, everything, SUM, HALF)):
        if group is None:
            notes.append(f"{claim.key} cannot be tested: no such problem has two located rollouts with confidences.")
        else:
            decisions.append(within(claim, group.means.difference(one, other), unit="points", margin=MARGIN))
    left_out = sorted({panel.configuration for panel in evidence.panels} - {panel.configuration for panel in hits})
    if left_out:
        notes.append(f"Without confidences, or of another kind: {', '.join(left_out)}.")
    if not compared:
        return Findings(notes=tuple(notes))
    tables = (_table(compared, RAD, HALF, "dc"), _table(compared, HALF, SUM, "rule"))
    return Findings(tables, _charts(compared), tuple(decisions), tuple(notes))


def _groups(panels: Sequence[Panel]) -> dict[str, list[Panel]]:
    """The panels of each configuration, of each effort that several models share, and all panels."""
    out = groups(panels, configuration)
    for effort in EFFORTS:
        own = [panel for panel in panels if panel.style == effort]
        if len({panel.model for panel in own}) > 1:
            out[f"{effort}, all models"] = own
    return out | {"all": list(panels)} if panels else {}


def _group(pool: str, name: str, own: list[Panel], hits: Mapping[Panel, Floats], options: Options) -> Group | None:
    rows = stack(own, hits.__getitem__)
    if not len(rows.table):
        return None
    means = resample(*rows, resamples=options.draws, seed=options.seed)
    first, half, total = rows.table.T
    n, of = len(rows.table), sum(map(len, own))
    tests = (paired(half, first, rows.problems), paired(total, half, rows.problems))
    return Group(pool, name, means, n, of, *tests)


def _table(compared: Sequence[Group], one: int, other: int, which: str) -> Table:
    tests = [group.dc if which == "dc" else group.rule for group in compared]
    rows = [
        Row(
            (
                Cell(group.name),
                Cell(group.n, "count"),
                Cell(group.of, "count"),
                shown(group.means.estimate[one], "percent"),
                shown(group.means.estimate[other], "percent"),
                shown(gap.estimate, "points", gap.interval),
                Cell(test.c, "count"),
                Cell(test.b, "count"),
                Cell(test.p, "p"),
                Cell(float(adjusted), "p"),
            ),
            group.pool,
        )
        for group, test, adjusted in zip(compared, tests, holm([test.p for test in tests]), strict=True)
        for gap in [group.means.difference(other, one)]
    ]
    for row in printed("dc" if which == "dc" else "dc-fusion"):
        label, n, first, second, gap, only_first, only_second, p = list(row.values())[1:]
        accuracies = [
            shown(percent(first), "percent"),
            shown(percent(second), "percent"),
            shown(percent(gap), "points"),
        ]
        counts = [Cell(int(only_first), "count"), Cell(int(only_second), "count"), Cell(float(p), "p")]
        head = (Cell(label), Cell(int(n), "count"), missing("see tab:main"))
        rows.append(Row((*head, *accuracies, *counts, missing("not printed")), f"paper, {pool_of(row)}"))
    heads = ("group", "eligible", "problems", NAMES[one], NAMES[other])
    tail = (f"{NAMES[one]} alone right", f"{NAMES[other]} alone right", "p", "Holm p")
    columns = (*map(Column, heads), Column("difference", "95% CI"), *map(Column, tail))
    title = "RAD+DC against RAD" if which == "dc" else "Two ways to fuse: rank sum against conf50"
    return Table(f"fusion-{which}", title, columns, tuple(rows), (PAIRED, HOLM), "comparison")


def _charts(compared: Sequence[Group]) -> tuple[Chart, ...]:
    own = [group for group in compared if group.name == "all"]
    names = [group.pool for group in own]
    series = []
    for name, one, other in (("RAD+DC - RAD", HALF, RAD), ("rank sum - conf50", SUM, HALF)):
        differences = [group.means.difference(one, other) for group in own]
        low, high = zip(*(gap.interval for gap in differences), strict=True)
        values = [100 * gap.estimate for gap in differences]
        series.append(Series(name, names, values, [100 * v for v in low], [100 * v for v in high]))
    lines = (Line(100 * MARGIN, "+1 point"), Line(-100 * MARGIN, "-1 point"))
    plot = Plot("bars", y="difference of accuracies (points)", series=series, lines=lines)
    return (Chart("fusion", "Does confidence add to density, and does it matter how?", (plot,)),)
