"""Study 16: which layers carry the signal? (App. "Layer depth".)

Layers are taken by tenths: one alone (s0..s9), the shallowest ones together (c0..c8), and all but one (x0..x9), at four
readouts and with two kernels. A readout locates the same rollouts whatever the layers, so all comparisons are paired.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.bands import (
    BANDS,
    FULL,
    GROUPS,
    KERNELS,
    READOUTS,
    SINGLE,
    WITHOUT,
    BandArms,
    arms_of,
    bands_table,
    loss_cell,
    loss_p,
    omnibus,
    wanted,
)
from radmoe_studies.base import Findings, Options, domain_study
from radmoe_studies.decision import (
    EFFECT,
    PEOPLED,
    POINT,
    Claim,
    ClaimDecision,
    above,
    all_of,
    all_within,
    changed,
    within,
)
from radmoe_studies.evidence import Panel
from radmoe_studies.gains import of_domains
from radmoe_studies.pooling import HOLM, PAIRED, THINKING, adjusted, configuration, groups, no_science, shown
from radmoe_studies.report.figures import Chart, Line, Plot, Series
from radmoe_studies.resample import Quantity

SHALLOW, MIDDLE = SINGLE[:3], SINGLE[3:7]
TENTH, NEEDED, FLATNESS, OUTSIDE = 0.007, 0.01, 0.015, 0.01  # margins of equivalence
# Accuracies of boundary@marker with the weighted kernel, from tab:layer-deciles.
PAPER = dict(zip(SINGLE, (70.73, 71.24, 70.31, 70.05, 70.73, 70.81, 70.71, 70.36, 70.36, 70.29), strict=True))
PAPER[FULL] = 71.16

_POOLED = f"{THINKING.name} pooled, by the bootstrap over problems"
NECESSARY = Claim(
    "layers.no-tenth-is-necessary",
    "Without any one tenth of the layers the pick is as good.",
    "at most 0.47 points, 0 of 10 survive Holm",
    "App. layer-depth",
    f"Accuracy with all layers minus accuracy without a tenth lies within {100 * NEEDED:g} point of 0 for every tenth, "
    f"readout and kernel: two one-sided tests, {_POOLED}; the weakest of all decides for it, the furthest beyond the margin (max-T) against it.",
    changed(PEOPLED),
)
SUFFICIENT = Claim(
    "layers.shallowest-tenth-suffices",
    "The shallowest tenth of the layers alone picks as well as all of them.",
    "within 0.7 points, p >= .23",
    "Fig. shallow-vs-full-dumbbell",
    f"Accuracy with all layers minus that with the shallowest tenth lies within {100 * TENTH:g} points of 0 at each of the "
    f"four readouts, weighted kernel: two one-sided tests, {_POOLED}; the weakest decides for it, max-T against it.",
    changed(PEOPLED),
)
FLAT = Claim(
    "layers.depth-is-flat",
    "It does not matter which tenth is read.",
    "70.05 to 71.24; Cochran's Q p = .67",
    "tab:layer-deciles",
    f"At boundary@marker, weighted kernel, each tenth's accuracy lies within {100 * FLATNESS:g} points of the mean of all "
    f"tenths: two one-sided tests, {_POOLED}; the weakest decides for it, max-T against it. Cochran's Q is shown but does not decide, because "
    "'not significant' is not 'the same'.",
    changed(PEOPLED),
)
SCIENCE = Claim(
    "layers.depth-matters-in-science-only",
    "Shallow layers are better than middle ones on science questions, and nowhere else.",
    "+2.9 points on GPQA, +0.2 elsewhere",
    "Fig. layer-localization-gpqa",
    f"At boundary@16, weighted kernel, the mean accuracy of tenths 0-2 minus that of tenths 3-6 is above {100 * POINT:g} point in "
    f"science, and within {100 * OUTSIDE:g} point of 0 in math and code: {_POOLED}; the weaker decides. Not expressible where the only "
    "science questions are the lab's, which ask for arithmetic: the paper's claim is about GPQA.",
    changed(PEOPLED, EFFECT, "the lab's choice questions are no counterpart of GPQA"),
)
NOTES = (
    "The paper gives 0.7 points for the shallowest tenth in its appendix (an estimate), and 1.7 in its text (an interval's end).",
    "Where several configurations have a problem, the p of Cochran's Q is that of permuting the bands within whole problems.",
)
MARGINS = {NECESSARY: NEEDED, SUFFICIENT: TENTH, FLAT: FLATNESS}


@domain_study(
    16,
    "Which layers carry the signal?",
    where="App. layer-depth, tab:layer-deciles",
    requests=wanted,
    claims=(NECESSARY, SUFFICIENT, FLAT, SCIENCE),
)
def layers(panels: list[Panel], options: Options) -> Findings:
    every = {(r, k): arms_of(panels, r, k, options) for r in READOUTS for k in KERNELS}
    domains = {
        name: of_domains(panels, own) for name, own in (("science", ("science",)), ("math and code", ("math", "code")))
    }
    split = {
        (name, kernel): arms_of(own, "boundary@16", kernel, options)
        for name, own in domains.items()
        if own
        for kernel in KERNELS
    }
    decisions, notes = _decide(panels, every, split)
    shallow = sorted({panel.layers for panel in panels if panel.layers < 10})
    if shallow:
        notes.append(
            f"Models with {', '.join(map(str, shallow))} layers: tenths that hold no layer are left out, and the "
            "first layer stands for the shallowest tenth."
        )
    tables = (
        _summary(every),
        _tenths(every["boundary@marker", "weighted"]),
        bands_table(every),
        _configurations(panels, options),
    )
    return Findings(tables, tuple(_charts(every, split)), tuple(decisions), (*notes, *NOTES))


def _decide(
    panels: list[Panel], every: dict[tuple[str, str], BandArms], split: dict[tuple[str, str], BandArms]
) -> tuple[list[ClaimDecision], list[str]]:
    losses: dict[Claim, list[Quantity]] = {NECESSARY: [], SUFFICIENT: [], FLAT: []}
    for arms in every.values():
        losses[NECESSARY] += [arms.loss(band) for band in arms.bands(WITHOUT)]
        losses[SUFFICIENT] += [arms.loss(band) for band in arms.bands(("c0",)) if arms.kernel == "weighted"]
    arms = every["boundary@marker", "weighted"]
    singles = [BANDS.index(band) for band in arms.bands(SINGLE)]
    if len(singles) > 1:
        estimates, draws = (a[..., singles] - a[..., singles].mean(-1, keepdims=True) for a in arms.means[:2])
        losses[FLAT] = [arms.means.quantity(*one, singles) for one in zip(estimates, draws.T, strict=True)]
    decisions = [all_within(claim, own, unit="points", margin=MARGINS[claim]) for claim, own in losses.items() if own]
    science, rest = (split.get((name, "weighted")) for name in ("science", "math and code"))
    if science and rest and (inside := science.gap(SHALLOW, MIDDLE)) and (outside := rest.gap(SHALLOW, MIDDLE)):
        parts = [above(SCIENCE, inside, unit="points", threshold=POINT)]
        parts.append(within(SCIENCE, outside, unit="points", margin=OUTSIDE))
        decisions.append(replace(all_of(SCIENCE, parts), inexpressible=no_science(panels)))
    tested = [decision.claim for decision in decisions]
    lacking = [claim.key for claim in (NECESSARY, SUFFICIENT, FLAT, SCIENCE) if claim not in tested]
    return decisions, [f"{key} cannot be tested: the pools lack its readout, tenths or domains." for key in lacking]


def _summary(every: dict[tuple[str, str], BandArms]) -> Table:
    """One row per readout and kernel: the omnibus tests, and what the shallowest tenth loses."""
    titles = (
        "readout and kernel",
        "problems",
        "all layers",
        *(f"Q, {name}: Holm p" for name in GROUPS),
        "largest loss, all but one",
    )
    columns = (*map(Column, titles), Column("loss, shallowest tenth", "95% CI"), Column("Holm p"))
    groups_of = [*GROUPS.values()]
    tests = [[*(omnibus(arms, group) for group in groups_of), loss_p(arms, "c0")] for arms in every.values()]
    corrected = iter(adjusted([p for own in tests for p in own]))
    rows = []
    for arms in every.values():
        *q, p = (shown(next(corrected), "p", note="fewer than two bands to compare") for _ in range(len(groups_of) + 1))
        known = np.isfinite(arms.hits[:, 0])
        if not known.any():
            rows.append(Row((Cell(arms.name), *[missing("no problem has two located rollouts")] * (len(columns) - 1))))
            continue
        losses = [arms.loss(band).estimate for band in arms.bands(WITHOUT)]
        cells = [Cell(arms.name), Cell(int(known.sum()), "count"), shown(float(arms.means.estimate[0]), "percent")]
        cells += [*q, shown(max(losses, key=abs, default=None), "points"), loss_cell(arms, "c0"), p]
        rows.append(Row(tuple(cells)))
    return Table("layers", "Does it matter which layers are read?", columns, tuple(rows), (PAIRED, HOLM))


def _tenths(arms: BandArms) -> Table:
    """The paper's table: each tenth alone, beside what the paper prints."""
    bands = arms.bands((FULL, *SINGLE))
    tests = [None if band == FULL else loss_p(arms, band) for band in bands]
    rows = []
    for band, *p in zip(bands, tests, adjusted(tests), strict=True):
        accuracy = shown(float(arms.means.estimate[BANDS.index(band)]), "percent")
        loss = missing("itself") if band == FULL else loss_cell(arms, band)
        compared = (loss, *(shown(value, "p", note="itself") for value in p))
        rows.append(Row((Cell(band), accuracy, *compared, Cell(PAPER[band] / 100, "percent"))))
    titles = ("layers", "accuracy", "all layers minus these", "p", "Holm p", "paper")
    columns = tuple(Column(title, "95% CI" if "minus" in title else "") for title in titles)
    return Table(
        "layers-tenths", f"Accuracy with one tenth of the layers, {arms.name}", columns, tuple(rows), (PAIRED, HOLM)
    )


def _configurations(panels: list[Panel], options: Options) -> Table:
    columns = (Column("configuration"), *(Column(readout, "95% CI") for readout in READOUTS))
    rows = []
    for name, own in groups(panels, configuration).items():
        every = [arms_of(own, readout, "weighted", options) for readout in READOUTS]
        rows.append(Row((Cell(name), *(loss_cell(arms, "c0") for arms in every))))
    return Table(
        "layers-configurations", "All layers minus the shallowest tenth, weighted kernel", columns, tuple(rows)
    )


def _profile(name: str, arms: BandArms) -> Series:
    bands = arms.bands(SINGLE)
    at = [BANDS.index(band) for band in bands]
    intervals = [arms.means.interval(i) for i in at]
    return Series(
        name,
        [int(band[1]) for band in bands],
        [100 * float(arms.means.estimate[i]) for i in at],
        [100 * low for low, _ in intervals],
        [100 * high for _, high in intervals],
    )


def _charts(every: dict[tuple[str, str], BandArms], split: dict[tuple[str, str], BandArms]) -> list[Chart]:
    def plot(kernel: str, arms: dict[str, BandArms], levels: bool) -> Plot:
        series = [_profile(name, own) for name, own in arms.items() if own.bands(SINGLE)]
        lines = [
            Line(100 * float(own.means.estimate[0]), f"all layers, {name}")
            for name, own in arms.items()
            if levels and own.bands((FULL,))
        ]
        return Plot(
            "lines",
            f"{kernel} kernel",
            "tenth of the layers, from the shallowest",
            "accuracy (%)",
            series=series,
            lines=lines,
        )

    depth = [plot(kernel, {r: every[r, kernel] for r in READOUTS}, False) for kernel in KERNELS]
    charts = [Chart("layers-depth", "Accuracy with one tenth of the layers", depth, shared_y=True)]
    names = [name for name in ("science", "math and code") if (name, "weighted") in split]
    parts = [plot(kernel, {name: split[name, kernel] for name in names}, True) for kernel in KERNELS]
    charts.append(Chart("layers-science", "Does depth matter in science only? (boundary@16)", parts, shared_y=True))
    rows = [every[r, "weighted"] for r in READOUTS if every[r, "weighted"].bands((FULL, "c0")) == [FULL, "c0"]]
    series = [
        Series(
            name,
            [arms.readout for arms in rows],
            [100 * float(arms.means.estimate[BANDS.index(band)]) for arms in rows],
        )
        for name, band in (("shallowest tenth", "c0"), ("all layers", FULL))
    ]
    dumbbells = Plot("dumbbells", x="accuracy (%)", series=series)
    return [*charts, Chart("layers-shallowest", "The shallowest tenth of the layers, and all of them", (dumbbells,))]
