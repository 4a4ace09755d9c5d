"""Study 26: is it the same mechanism at both anchors? (App. "Composition control", cross-anchor robustness.)

What studies 21 to 23 find at the delimiter is asked of the boundary too, and must hold at both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from radmoe.evaluation.table import Cell as TableCell
from radmoe.evaluation.table import Column, Row, Table, missing
from radmoe.studies.base import Findings, Options, study
from radmoe.studies.charts import Chart, Line, Plot, Series
from radmoe.studies.decision import Claim
from radmoe.studies.evidence import Evidence, Request
from radmoe.studies.needs import MANY
from radmoe.studies.paper.composition import COUNTS, FEW, MOST, M, balanced_rates, lift
from radmoe.studies.paper.needle import lifts_of, needle_rates
from radmoe.studies.paper.scaling import FLAT, TIE, gap, scaling_rates, slope
from radmoe.studies.rates import (
    ALL,
    ANCHORS,
    BOUNDARY,
    DELIMITER,
    Decided,
    Mean,
    Rates,
    Rule,
    curves,
    is_above,
    is_below,
    is_near,
    paper_cell,
    remarks,
    wanted,
)
from radmoe.studies.subcohorts import DC, FUSED, METHODS, RAD

_BOTH = (
    "at boundary@16 and at delimiter@16 each, the weakest decides; problems, pooling and bootstrap as in the study of one "
    "anchor."
)
SCALES = Claim(
    "cross-anchor.rad-scales",
    "RAD picks better as the cohort grows, at both anchors.",
    "+2.90 / +3.26 points",
    "fig:rollout-anchor",
    f"RAD's accuracy at the largest m minus that at m=2 is above 0, one-sided, {_BOTH}",
)
FLATTENS = Claim(
    "cross-anchor.deepconf-does-not",
    "The most confident rollout is no better in a larger cohort, at both anchors.",
    "+0.37 / -0.36 points",
    "fig:rollout-anchor",
    f"The DeepConf pick's accuracy at the largest m minus that at m=2 is below {100 * FLAT:g} points, one-sided, {_BOTH}",
)
CURVE = Claim(
    "cross-anchor.s-curve",
    "RAD's lift changes its sign from few to most right rollouts, at both anchors.",
    "-8.16 to +20.11 / -8.16 to +23.77 points",
    "fig:rollout-anchor",
    f"RAD's lift among {M} rollouts is below 0 at c=4 and above 0 at c=10, one-sided, {_BOTH}",
)
NEEDLE = Claim(
    "cross-anchor.needle",
    "A lone right rollout is missed by RAD and found by confidence, at both anchors.",
    "RAD -3.93 / -3.96, DC +5.23 / +3.27 points at m=16",
    "tab:rollout-needle",
    f"With one right rollout among 16, RAD's lift is below 0 and the DeepConf pick's is above 0, one-sided, {_BOTH}",
)
TIES = Claim(
    "cross-anchor.fused-ties-majority",
    "RAD+DC reaches the majority vote, at both anchors.",
    "-0.39 / +0.11 points",
    "fig:rollout-anchor",
    f"RAD+DC's accuracy minus the majority's at the largest m lies within {100 * TIE:g} points of 0, two one-sided tests, "
    f"math and science only, {_BOTH}",
)


class AtAnchor(NamedTuple):
    """The hit rates of studies 21, 22 and 23 at one anchor."""

    scaling: Rates
    balanced: Rates
    needle: Rates


class Part(NamedTuple):
    """A quantity that a claim depends on, its rule, and the paper's numbers at boundary and delimiter."""

    claim: Claim
    name: str
    compute: Callable[[AtAnchor, Options], Mean | None]
    rule: Rule
    paper: tuple[float, float]


PARTS = (
    Part(SCALES, "RAD, m=2 to the largest", lambda at, o: slope(at.scaling, RAD, o), is_above(), (2.90, 3.26)),
    Part(FLATTENS, "DC, m=2 to the largest", lambda at, o: slope(at.scaling, DC, o), is_below(FLAT), (0.37, -0.36)),
    Part(CURVE, "RAD, 4 right of 16", lambda at, o: lift(at.balanced, FEW, RAD, o), is_below(), (-8.16, -8.16)),
    Part(CURVE, "RAD, 10 right of 16", lambda at, o: lift(at.balanced, MOST, RAD, o), is_above(), (20.11, 23.77)),
    Part(NEEDLE, "RAD, 1 right of 16", lambda at, o: lifts_of(at.needle, RAD, o)["m=16"], is_below(), (-3.93, -3.96)),
    Part(NEEDLE, "DC, 1 right of 16", lambda at, o: lifts_of(at.needle, DC, o)["m=16"], is_above(), (5.23, 3.27)),
    Part(
        TIES, "RAD+DC - majority at the largest m", lambda at, o: gap(at.scaling, o), is_near(0.0, TIE), (-0.39, 0.11)
    ),
)


@study(
    26,
    "cross-anchor",
    "Is it the same mechanism at both anchors?",
    where="fig:rollout-anchor",
    requests=wanted,
    claims=(SCALES, FLATTENS, CURVE, NEEDLE, TIES),
    needs=(MANY,),
)
def cross_anchor(evidence: Evidence, options: Options) -> Findings:
    rates = {
        request: AtAnchor(*(f(evidence, request, options) for f in (scaling_rates, balanced_rates, needle_rates)))
        for request in ANCHORS
    }
    means = {request: [part.compute(own, options) for part in PARTS] for request, own in rates.items()}
    made = Decided()
    for claim in (SCALES, FLATTENS, CURVE, NEEDLE, TIES):
        parts = [
            (f"{request.readout}, {part.name}", one, part.rule)
            for request in ANCHORS
            for part, one in zip(PARTS, means[request], strict=True)
            if part.claim is claim
        ]
        made = made.with_claim(claim, parts)
    return Findings((_table(means),), _charts(rates, options), made.decisions, (*remarks(evidence), *made.notes))


def _table(means: dict[Request, list[Mean | None]]) -> Table:
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
