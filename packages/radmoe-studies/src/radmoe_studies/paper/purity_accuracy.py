"""Study 3: does RAD pick better where neighbourhoods are purer? (Fig. "evidence", right; Fig. "purity-acc-phase".)

The paper gives t as a number of rollouts in one place and as 16 t tokens per rollout in another. The first reading is the
primary one here: sub-cohorts of t rollouts on problems that have enough of them at every t. The second reads windows of W
tokens with all rollouts. Since t may drive purity and accuracy apart from each other, they are also correlated across
problems at one t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.decision import CORRELATION, EFFECT, PEOPLED, Claim, ClaimDecision, above, all_of, changed
from radmoe_studies.evidence import Evidence, Panel, Request
from radmoe_studies.needs import MATH
from radmoe_studies.picks import majority
from radmoe_studies.pooling import THINKING
from radmoe_studies.purity_curves import (
    REQUESTS,
    WIDTHS,
    PurityCurve,
    Result,
    pool_curves,
    sizes_of,
    with_rollouts,
    with_windows,
)
from radmoe_studies.quantities import by_configuration, mean_cell, number, usable
from radmoe_studies.report.figures import Chart, Line, Plot, Series
from radmoe_studies.resample import intervals

STEPS, WIDER = 3, 0.10  # widths that must differ for a trend; the share of rollouts in which a width is one
CLOSE = 0.2  # of rho: curves of some steps cannot be told apart by less
RISES = 0.5  # of rho: a curve that does not rise at half of its steps has less; the paper has .72 and more
_RISE = (
    "Spearman's rho of mean purity (K=1, delimiter@16) with {0}, and of RAD's accuracy with {0}, over the problems {1}, "
    f"{THINKING.name} pooled, are both above {RISES}: one-sided on the bootstrap over problems, the weaker decides."
)
ROLLOUTS = Claim(
    "purity-accuracy.rise-with-rollouts",
    "Purity and RAD's accuracy rise together as rollouts are added.",
    "rho +1.00 (purity), +.72 (accuracy)",
    "Fig. evidence, right; Fig. purity-acc-phase",
    _RISE.format("t (4 to 64 rollouts)", "that have that many and a purity at every t"),
    changed(PEOPLED, EFFECT),
)
WINDOWS = Claim(
    "purity-accuracy.rise-with-window",
    "Purity and RAD's accuracy rise together as more tokens are read.",
    "rho +1.00 (purity), +.72 (accuracy)",
    "Sec. Exp II, Accuracy correspondence",
    _RISE.format("W (16, 32, 64, 128 tokens from the delimiter on)", "with a purity, all rollouts in")
    + f" Not expressible where fewer than {STEPS} widths differ: one is wider than the last if {WIDER:.0%} of the rollouts go on.",
    changed(
        PEOPLED, EFFECT, "rollouts that end behind the delimiter have one window at every width, which is no evidence"
    ),
)
COUPLED = Claim(
    "purity-accuracy.coupled",
    "Purity and accuracy go together at one t as well: t alone does not drive both.",
    "not merely co-monotone in t",
    "App. knn-purity, trajectory plot",
    "The correlation across problems of purity (K=1, delimiter@16) with RAD's accuracy at one t, both less their "
    f"configuration's mean and given the share of right rollouts, averaged over t, {THINKING.name} pooled, is above "
    f"{CORRELATION}: one-sided on the bootstrap over problems. The share is held fixed because purity, corrected for chance, and "
    "accuracy both depend on it.",
    changed(PEOPLED, EFFECT),
)


def requests(panel: Panel) -> tuple[Request, ...]:
    return REQUESTS if panel.domain == "math" else ()


@study(
    3,
    "Does RAD pick better where neighbourhoods are purer?",
    where="Fig. evidence, right; Fig. purity-acc-phase",
    requests=requests,
    claims=(ROLLOUTS, WINDOWS, COUPLED),
    needs=(MATH,),
    population=THINKING,
)
def purity_accuracy(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in evidence.panels if requests(panel)]
    notes = [
        "The paper's numbers are over 347 math problems of 8 models, at 64 rollouts.",
        "The paper's text has t as rollouts and as 16 t tokens: both were measured, rollouts first. A window ends where its "
        "rollout ends, so that wider ones read the same tokens where little is written behind the delimiter.",
    ]
    groups, sizes = by_configuration(panels), sizes_of(panels)
    windows = {panel: with_windows(panel) for panel in panels}
    by_window = {name: pool_curves(own, windows, options) for name, own in groups.items()}
    by_size: dict[str, Result | None] = dict.fromkeys(groups)
    rollouts: dict[Panel, PurityCurve] = {}
    if len(sizes) >= 3:
        rollouts = {panel: with_rollouts(panel, sizes, options.seed + i) for i, panel in enumerate(panels)}
        by_size = {name: pool_curves(own, rollouts, options) for name, own in groups.items()}
    else:
        notes.append("Too few rollouts have an answer and a delimiter: sizes of sub-cohorts were not compared.")
    decisions = [
        *_rise(ROLLOUTS, by_size["all"], notes),
        *_coupled(by_size["all"], notes),
    ]
    widths = distinct_widths(panels)
    short = (
        f"{' and '.join(map(str, widths)) or 'none'} of the widths {', '.join(map(str, WIDTHS))} differ: fewer than {WIDER:.0%} of the "
        "rollouts go on behind them, so that there is no trend to see"
    )
    decisions += [
        replace(decision, inexpressible=short if len(widths) < STEPS else "")
        for decision in _rise(WINDOWS, by_window["all"], notes)
    ]
    tables = [_summary(by_size, by_window)]
    charts = []
    for key, unit, steps, curves, result in (
        ("rollouts", "rollouts t", sizes, rollouts, by_size["all"]),
        ("windows", "window W", WIDTHS, windows, by_window["all"]),
    ):
        if result is not None:
            tables.append(_steps(key, unit, steps, result))
            charts.append(_chart(key, unit, steps, result, _vote(curves)))
    return Findings(tuple(tables), tuple(charts), tuple(decisions), tuple(notes))


def distinct_widths(panels: Sequence[Panel]) -> list[int]:
    """The widths that differ from the next smaller one: at least a share WIDER of the rollouts has tokens that it alone reads."""
    reads = [panel.read(REQUESTS[0]) for panel in panels]
    left = [(panel.lengths - read.start)[read.located] for panel, read in zip(panels, reads, strict=True)]
    behind = np.concatenate(left) if left else np.empty(0)
    before = (0, *WIDTHS[:-1])
    return [
        width for width, last in zip(WIDTHS, before, strict=True) if behind.size and np.mean(behind > last) >= WIDER
    ]


def _rise(claim: Claim, result: Result | None, notes: list[str]) -> list[ClaimDecision]:
    parts = []
    for of in (0, 1):
        values = np.full(1, np.nan) if result is None else result.rho(of)
        if result is not None and (q := usable(result.means.quantity(values[0], values[1:]))) is not None:
            parts.append(above(claim, q, unit="rho", threshold=RISES, resolution=CLOSE))
    if len(parts) < 2:
        notes.append(f"{claim.key} was not decided: too few problems have a purity at every step.")
        return []
    return [all_of(claim, parts)]


def _coupled(result: Result | None, notes: list[str]) -> list[ClaimDecision]:
    values = None if result is None else result.coupling
    q = None if values is None or result is None else usable(result.means.quantity(values[0], values[1:]))
    if q is None:
        notes.append(f"{COUPLED.key} was not decided: purity or accuracy is the same on all problems, or they are few.")
        return []
    return [above(COUPLED, q, unit="r", threshold=CORRELATION)]


def _summary(by_size: dict[str, Result | None], by_window: dict[str, Result | None]) -> Table:
    titles = (
        "rho of purity with t",
        "rho of accuracy with t",
        "r at one t, given the rate",
        "rho of purity with W",
        "rho of accuracy with W",
    )
    rows = []
    for name, result in by_size.items():
        window = by_window[name]
        cells = [Cell(name), Cell(0 if result is None else result.means.n, "count")]
        columns = [None if result is None else result.rho(of) for of in (0, 1)]
        columns.append(None if result is None else result.coupling)
        columns += [None if window is None else window.rho(of) for of in (0, 1)]
        cells += [missing("no problem has one") if own is None else number(own[0], draws=own[1:]) for own in columns]
        rows.append(Row(tuple(cells)))
    paper = (Cell("paper"), Cell(347, "count"), Cell(1.0, "number"), Cell(0.72, "number"), *[missing("")] * 3)
    columns_ = (Column("configuration"), Column("problems"), *(Column(title, "95% CI") for title in titles))
    return Table("purity-accuracy", "Purity and accuracy as t and W grow", columns_, (*rows, Row(paper)))


def _steps(key: str, unit: str, steps: Sequence[int], result: Result) -> Table:
    columns = (
        Column(unit),
        Column("purity", "95% CI"),
        Column("RAD accuracy", "95% CI"),
        *(Column(title, "95% CI") for title in ("r across problems", "given the rate")),
    )
    rows = [
        Row(
            (
                Cell(str(step)),
                mean_cell(result.means, i),
                mean_cell(result.means, i + len(steps), "percent"),
                *(number(own[0, i], draws=own[1:, i]) for own in (result.plain, result.given_rate)),
            )
        )
        for i, step in enumerate(steps)
    ]
    return Table(f"purity-accuracy-{key}", f"Purity and accuracy by {unit}", columns, tuple(rows))


def _vote(curves: dict[Panel, PurityCurve]) -> float:
    """The majority's accuracy on the problems that have a curve, in percent."""
    votes = [majority(panel)[np.isfinite(curve.purity[:, 0])] for panel, curve in curves.items()]
    return 100 * float(np.mean(np.concatenate(votes)))


def _chart(key: str, unit: str, steps: Sequence[int], result: Result, vote: float) -> Chart:
    count, means = len(steps), result.means
    purity, accuracy = means.estimate[:count].tolist(), (100 * means.estimate[count:]).tolist()
    low, high = intervals(means.draws)
    series = (
        Series("purity", steps, purity, low[:count].tolist(), high[:count].tolist()),
        Series("accuracy", steps, accuracy, (100 * low[count:]).tolist(), (100 * high[count:]).tolist(), axis="right"),
    )
    curve = Plot("lines", x=unit, y="purity (K=1)", right="RAD accuracy (%)", series=series, logarithmic=True)
    labels = [str(step) for step in steps]
    plane = Plot(
        "points",
        x="purity (K=1)",
        y="RAD accuracy (%)",
        series=(Series(unit, purity, accuracy, labels=labels),),
        lines=(Line(vote, "majority of all rollouts"),),
    )
    return Chart(f"purity-accuracy-{key}", f"Purity and accuracy by {unit}", (curve, plane))
