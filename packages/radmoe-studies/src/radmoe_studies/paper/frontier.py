"""Study 11: what does a budget of tokens buy? Early anchors are cheap, late ones certain. (App. "Cost-certainty frontier".)

A rollout may be read up to token B. The paper's "So" rises with B at full coverage, which a first occurrence cannot do: here
it is the last round that all located rollouts of a problem share. The first occurrence stands beside it as a control, and
so does the latest one before the delimiter.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, domain_study
from radmoe_studies.budgets import ANCHORS, BUDGETS, EARLY, LATE, MAIN, Frontier, frontier_of, request, wanted
from radmoe_studies.decision import (
    EFFECT,
    PEOPLED,
    POINT,
    POINTS,
    Claim,
    ClaimDecision,
    above,
    all_of,
    below,
    changed,
    within,
)
from radmoe_studies.evidence import Panel
from radmoe_studies.gains import all_arrive, gain_cells
from radmoe_studies.picks import rate
from radmoe_studies.pooling import THINKING, configuration, groups, shown
from radmoe_studies.report.figures import Chart, Line, Plot, Series

MARGIN = 0.01  # of what a trajectory cohort may differ from all rollouts
# tab:frontier: points and z for So, So*, Now, boundary and delimiter, then the coverage of late anchors.
PAPER = {
    256: ((-0.38, -0.8), (1.58, 2.9), (-1.27, -1.5), (-1.17, -1.1), (-1.06, -1.0), 0.19),
    1024: ((0.70, 1.5), (0.71, 1.4), (0.06, 0.1), (0.45, 0.7), (0.87, 1.4), 0.45),
    4096: ((1.71, 3.7), (1.26, 2.6), (0.39, 0.8), (2.35, 4.4), (3.69, 7.0), 0.68),
    16384: ((2.77, 6.1), (2.45, 5.1), (2.37, 4.6), (4.26, 9.0), (5.83, 12.4), 0.92),
    32768: ((3.45, 7.5), (3.55, 7.4), (3.98, 7.7), (6.11, 13.2), (7.65, 16.5), 0.98),
}

COVERED = 0.10  # of the problems: the smallest difference of coverage; the paper has .8
_POOLED = f"{THINKING.name} pooled, one-sided on the bootstrap over problems"
CHEAP = Claim(
    "frontier.early-is-cheap",
    "Trajectory anchors can be read in nearly all problems at a budget at which late ones cover few.",
    "coverage near 1 against 0.19 at B = 256",
    "tab:frontier",
    f"At B = {EARLY}, the share of problems with two located rollouts for So* minus that for the delimiter is above {COVERED}: {_POOLED}.",
    changed(PEOPLED, EFFECT),
)
CERTAIN = Claim(
    "frontier.late-is-certain",
    "With a budget that reaches the answer, the delimiter gains more than a trajectory anchor.",
    "+7.65 (z 16.5) against +3.55 (z 7.4)",
    "tab:frontier",
    f"At B = {LATE}, delta-full of delimiter@16 minus that of So*, on problems eligible for both, is above {100 * POINTS:g} points: "
    f"{_POOLED}.",
    changed(PEOPLED, EFFECT),
)
CROSS = Claim(
    "frontier.early-and-late-cross",
    "At a small budget trajectory anchors gain more, at a large one late anchors do.",
    "they cross at B of 2,048 to 4,096",
    "App. frontier",
    "Over all problems, where one that is not eligible gets a random rollout and gains 0, delta-full of delimiter@16 minus that "
    f"of So* is below -{100 * POINT:g} point at B = {EARLY} and above {100 * POINT:g} point at B = {LATE}: {_POOLED}; the weaker "
    "decides.",
    changed(PEOPLED, EFFECT),
)
KIND = Claim(
    "frontier.late-cohorts-are-better",
    "Reaching a trajectory anchor says nothing about correctness; reaching a late one does.",
    "delta-anchor near 0, and up to +3 to +5",
    "App. frontier",
    f"At B = {LATE}, delta-anchor of So* lies within {100 * MARGIN:g} point of 0 (two one-sided tests) and that of delimiter@16 "
    f"is above {100 * POINT:g} point: {_POOLED}; the weaker decides. Not expressible where fewer than {POINT:.0%} of the rollouts "
    "never reach the delimiter: delta-anchor can be no larger than that.",
    changed(PEOPLED, EFFECT, "where every rollout finishes, delta-anchor is 0 whatever routing says"),
)
MODELS = Claim(
    "frontier.every-model-gains-early",
    "A trajectory anchor gains in every model.",
    "positive on 8 of 8, significant on 6",
    "App. frontier",
    f"At B = {LATE}, delta-full of So* is above {100 * POINT:g} point in each of the {THINKING.name}: one-sided on the bootstrap over "
    "its problems; the weakest configuration decides.",
    changed(PEOPLED, EFFECT),
)


@domain_study(
    11,
    "What does a budget of tokens buy?",
    where="App. frontier, tab:frontier",
    requests=wanted,
    claims=(CHEAP, CERTAIN, CROSS, KIND, MODELS),
)
def frontier(panels: list[Panel], options: Options) -> Findings:
    whole = frontier_of(panels, options)
    single = {name: frontier_of(own, options) for name, own in groups(panels, configuration).items()}
    decisions = _decide(panels, whole, single)
    tested = [decision.claim for decision in decisions]
    notes = [
        f"{c.key} cannot be tested on these pools." for c in (CHEAP, CERTAIN, CROSS, KIND, MODELS) if c not in tested
    ]
    notes.append(
        "Rollouts of the lab have 80-300 tokens, the paper's up to 32,768: budgets are compared by their order, not by size. "
        "Late anchors at small budgets stand on a few short rollouts."
    )
    tables = (_table(whole), _coverage(whole), _parts(whole), _models(single), _baseline(panels, whole))
    return Findings(tables, (_chart(whole),), tuple(decisions), tuple(notes))


def _decide(panels: list[Panel], whole: Frontier, single: dict[str, Frontier]) -> list[ClaimDecision]:
    means = whole.means
    shares = [whole.column(anchor, EARLY, "covered") for anchor in ("So*", "delimiter")]
    decisions = [above(CHEAP, means.difference(*shares), unit="share", threshold=COVERED)]
    last = len(means.estimate) - 1
    if whole.known(last):
        decisions.append(above(CERTAIN, means.mean(last), unit="points", threshold=POINTS))
        gaps = [
            means.difference(*(whole.column(anchor, budget, "fallback") for anchor in ("delimiter", "So*")))
            for budget in (EARLY, LATE)
        ]
        early = below(CROSS, gaps[0], unit="points", threshold=-POINT)
        decisions.append(all_of(CROSS, [early, above(CROSS, gaps[1], unit="points", threshold=POINT)]))
    if whole.known(whole.column("So*", LATE, "anchor"), whole.column("delimiter", LATE, "anchor")):
        early = within(KIND, whole.mean("So*", LATE, "anchor"), unit="points", margin=MARGIN)
        late = above(KIND, whole.mean("delimiter", LATE, "anchor"), unit="points", threshold=POINT)
        finished = all_arrive(panels, request("delimiter", LATE), POINT)
        decisions.append(replace(all_of(KIND, [early, late]), inexpressible=finished))
    able = [one for one in single.values() if one.known(one.column("So*", LATE, "full"))]
    if len(able) > 1:
        each = [above(MODELS, one.mean("So*", LATE, "full"), unit="points", threshold=POINT) for one in able]
        decisions.append(all_of(MODELS, each))
    return decisions


def _table(whole: Frontier) -> Table:
    columns = [Column("B")]
    for anchor in ANCHORS:
        columns += [Column(anchor), Column(f"z, {anchor}")]
    rows = []
    for budget in BUDGETS:
        cells = [Cell(str(budget))]
        for anchor in ANCHORS:
            own = whole.gains[anchor, budget]
            cells += gain_cells(own.full, own.test())
        rows.append(Row(tuple(cells), "these pools"))
    for budget, (*values, _) in PAPER.items():
        cells = [Cell(str(budget))]
        for points, z in values:
            cells += [Cell(points / 100, "points", stars="*" if abs(z) >= 1.96 else ""), Cell(z, "number")]
        rows.append(Row((*cells, *[missing("not in the paper")] * 4), "the paper"))
    note = "delta-full against all rollouts, on eligible problems; z by the Poisson-binomial test; * where |z| is 1.96 or more."
    return Table(
        "frontier", "Gain over a random rollout, by budget and anchor", tuple(columns), tuple(rows), (note,), "source"
    )


def _coverage(whole: Frontier) -> Table:
    rows = []
    for budget in BUDGETS:
        shares = (whole.mean(anchor, budget, "covered").estimate for anchor in ANCHORS)
        rows.append(Row((Cell(str(budget)), *(shown(share, "percent") for share in shares)), "these pools"))
    for budget, values in PAPER.items():
        late = Cell(values[-1], "percent")
        rows.append(
            Row(
                (Cell(str(budget)), *[missing("near 1")] * 3, late, late, *[missing("not in the paper")] * 2),
                "the paper",
            )
        )
    columns = tuple(map(Column, ("B", *ANCHORS)))
    return Table("frontier-coverage", "Problems with two located rollouts", columns, tuple(rows), sections="source")


def _parts(whole: Frontier) -> Table:
    rows = []
    for anchor in ANCHORS:
        columns = [whole.column(anchor, LATE, part) for part in ("anchor", "selection", "full")]
        values = (shown(float(whole.means.estimate[c]), "points", whole.means.interval(c)) for c in columns)
        rows.append(Row((Cell(anchor), *values)))
    columns_ = (Column("anchor"), *(Column(f"delta-{name}", "95% CI") for name in ("anchor", "sel", "full")))
    return Table("frontier-parts", f"Where the gain comes from, B = {LATE}", columns_, tuple(rows))


def _models(single: dict[str, Frontier]) -> Table:
    columns = [Column("configuration")]
    for anchor in MAIN:
        columns += [Column(anchor), Column(f"z, {anchor}"), Column(f"delta-anchor, {anchor}")]
    rows = []
    for name, own in single.items():
        cells = [Cell(name)]
        for anchor in MAIN:
            lift = own.gains[anchor, LATE]
            cells += [*gain_cells(lift.full, lift.test()), shown(own.mean(anchor, LATE, "anchor").estimate, "points")]
        rows.append(Row(tuple(cells)))
    return Table("frontier-configurations", f"delta-full by configuration, B = {LATE}", tuple(columns), tuple(rows))


def _baseline(panels: list[Panel], whole: Frontier) -> Table:
    """The baseline the paper warns of: it counts a right rollout without the anchor as wrong."""
    rows = []
    for budget in BUDGETS:
        own = whole.gains["delimiter", budget]
        reads = [panel.read(request("delimiter", budget)) for panel in panels]
        share = [read.located.sum(1) / panel.here.sum(1) for panel, read in zip(panels, reads, strict=True)]
        low = [rate(panel, read.located) for panel, read in zip(panels, reads, strict=True)]
        inflated = own.pick - np.concatenate(low) * np.concatenate(share)
        cells: list[Cell] = [missing("no problem has two located rollouts")] * 4
        if own.covered.any():
            honest, wrong = float(np.nanmean(own.full)), float(np.nanmean(inflated))
            located = float(np.concatenate(share)[own.covered].mean())
            ratio = shown(wrong / honest if honest > 0 else None, "number", note="no gain to compare with")
            cells = [shown(located, "percent"), shown(honest, "points"), shown(wrong, "points"), ratio]
        rows.append(Row((Cell(str(budget)), *cells)))
    titles = ("B", "rollouts located", "delta-full", "against the wrong baseline", "ratio")
    note = "The wrong baseline counts right rollouts without the delimiter as wrong; the paper finds 3.3 times the gain with it."
    return Table(
        "frontier-baseline",
        "A baseline that inflates the gain (delimiter@16)",
        tuple(map(Column, titles)),
        tuple(rows),
        (note,),
    )


def _chart(whole: Frontier) -> Chart:
    def series(part: str) -> list[Series]:
        out = []
        for anchor in MAIN:
            at = {b: whole.column(anchor, b, part) for b in BUDGETS if whole.known(whole.column(anchor, b, part))}
            values = [100 * float(whole.means.estimate[c]) for c in at.values()]
            ends = [whole.means.interval(c) for c in at.values()] if part == "full" else []
            low, high = ([100 * end[i] for end in ends] if ends else None for i in (0, 1))
            out.append(Series(anchor, list(at), values, low, high))
        return [one for one in out if one.x]

    x = "budget B (tokens per rollout)"
    gain = Plot(
        "lines",
        "Gain",
        x,
        "delta-full (points)",
        series=series("full"),
        lines=(Line(0, "random rollout"),),
        logarithmic=True,
    )
    cover = Plot("lines", "Coverage", x, "problems (%)", series=series("covered"), logarithmic=True)
    return Chart("frontier", "What does a budget of tokens buy?", (gain, cover))
