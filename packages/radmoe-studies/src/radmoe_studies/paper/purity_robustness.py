"""Study 5: does the order of readouts depend on how purity is measured? (App. "knn-purity".)

The readouts of study 2 on its cohort, under other labels (does a rollout give the majority's answer, is it right, how does
its answer begin), another correction for chance, and other kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.basins import Chance, first_characters, majority_label, purities
from radmoe_studies.decision import EFFECT, PEOPLED, PURITY, Claim, ClaimDecision, above, all_of, changed, within
from radmoe_studies.evidence import COSINE, Bools, Evidence, Floats, Ints, Panel, Request
from radmoe_studies.needs import VOTES
from radmoe_studies.pooling import THINKING
from radmoe_studies.quantities import mean_cell, mean_of, pooled, series
from radmoe_studies.report.figures import Chart, Plot
from radmoe_studies.resample import Resampled

READOUTS = ("rand@16", "rand-one-loc@16", "pre-delim@16", "delimiter@marker", "delimiter@16")
OTHERS = READOUTS[:-1]  # what the window from the delimiter on is compared with
WINDOW = Request("delimiter@16")
ALIKE = 0.05  # purity: kernels and corrections that differ by less are "qualitatively identical"
PROXY = 0.10  # purity: the width of the paper's own intervals, within which the two labels agree


class Variant(NamedTuple):
    """One way to measure purity."""

    name: str
    label: str = "answer"
    kernel: str = "weighted"
    chance: Chance = "leave-one-out"


ANSWER = Variant("answer")
MAJORITY, CORRECT = Variant("equals majority", "majority"), Variant("correct", "correct")
PLUG_IN, COSINES = Variant("plug-in chance", chance="plug-in"), Variant("cosine", kernel=COSINE)
VARIANTS = (
    ANSWER,
    MAJORITY,
    CORRECT,
    Variant("first character", "character"),
    PLUG_IN,
    Variant("binary", kernel="binary"),
    COSINES,
)

_TEST = f"two one-sided tests on the bootstrap over problems, {THINKING.name} pooled."
ORDER = Claim(
    "purity-robustness.order",
    "The order of readouts is the same under every label, correction for chance and kernel.",
    "qualitatively identical",
    "App. knn-purity",
    "The mean purity (K=1) of delimiter@16 minus that of rand@16, of rand-one-loc@16, of pre-delim@16 and of delimiter@marker, "
    "under each of the variants that could be measured (labels equals majority, correct, first character of math answers; plug-in "
    f"chance; binary and cosine kernels), is not turned round by {PURITY} or more: with the sign that it has by the answer, it is "
    f"above -{PURITY}, one-sided on the bootstrap over problems, {THINKING.name} pooled. The weakest decides for the claim; any, "
    "corrected for their number, decides against it.",
    changed(
        PEOPLED, EFFECT, "it was about three of the five readouts, and refuted where their order was never the paper's"
    ),
)
KERNEL = Claim(
    "purity-robustness.cosine",
    "Weighted Jaccard and cosine give the same neighbourhoods.",
    "qualitatively identical",
    "App. knn-purity, Routing feature",
    f"The mean difference of purity (K=1) at delimiter@16, cosine - weighted, lies within {ALIKE} of 0: {_TEST}",
    changed(PEOPLED),
)
CHANCE = Claim(
    "purity-robustness.chance",
    "The leave-one-out and the plug-in correction for chance give the same purity.",
    "differs by O(1/N)",
    "App. knn-purity, Chance baseline forms",
    f"The mean difference of purity (K=1) at delimiter@16, plug-in - leave-one-out, lies within {ALIKE} of 0: {_TEST}",
    changed(PEOPLED),
)
PSEUDO = Claim(
    "purity-robustness.majority-for-truth",
    "The majority's answer is a faithful stand-in for the right one.",
    "within bootstrap CI",
    "App. knn-purity, Ground-truth vs. majority",
    "The mean difference of purity (K=1) at delimiter@16, label 'equals majority' - label 'correct', over the problems on "
    f"which both are defined, lies within {PROXY} of 0: {_TEST}",
    changed(PEOPLED),
)


def requests(panel: Panel) -> tuple[Request, ...]:
    if panel.domain not in ("math", "science"):
        return ()
    return tuple(Request(readout, kernel) for kernel in ("weighted", "binary", COSINE) for readout in READOUTS)


def measured(evidence: Evidence, panel: Panel) -> Floats:
    """The purity of each problem under each variant and readout [P, V, R]; NaN where it is undefined or was not read."""
    inside = panel.answered & panel.read(WINDOW).located
    labels: dict[str, Ints | None] = {
        "answer": panel.answer,
        "majority": majority_label(panel, inside),
        "correct": panel.correct.astype(np.int64),
        "character": first_characters(panel) if panel.domain == "math" and panel.pool is not None else None,
    }
    out = np.full((len(panel), len(VARIANTS), len(READOUTS)), np.nan)
    for v, variant in enumerate(VARIANTS):
        for r, readout in enumerate(READOUTS):
            out[:, v, r] = _purity(
                panel, Request(readout, variant.kernel), inside, labels[variant.label], variant.chance
            )
    return out


def _purity(panel: Panel, request: Request, inside: Bools, label: Ints | None, chance: Chance) -> Floats:
    if label is None or request not in requests(panel):
        return np.full(len(panel), np.nan)
    read = panel.read(request)
    return purities(read.values, inside & read.located, label, 1, chance)


@study(
    5,
    "Does the order of readouts hang on how purity is measured?",
    where="App. knn-purity",
    requests=requests,
    claims=(ORDER, KERNEL, CHANCE, PSEUDO),
    needs=(VOTES,),
    population=THINKING,
)
def purity_robustness(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in evidence.panels if requests(panel)]
    cubes = {panel: measured(evidence, panel) for panel in panels}
    levels = pooled(panels, {panel: cube.reshape(len(panel), -1) for panel, cube in cubes.items()}, options)
    decisions, notes = _decide(panels, cubes, options)
    return Findings((_table(levels),), (_chart(levels),) if levels else (), decisions, tuple(notes))


def _leads(cube: Floats, v: int) -> Floats:
    """The window's purity minus that of each other readout under a variant [P, 4], on problems on which all have one."""
    leads = cube[:, v, [-1]] - cube[:, v, :-1]
    return np.where(np.isfinite(leads).all(1, keepdims=True), leads, np.nan)


def _gaps(cube: Floats) -> Floats:
    """The differences of variants at delimiter@16 that have a claim [P, 3]."""
    value = {variant: cube[:, v, READOUTS.index(WINDOW.readout)] for v, variant in enumerate(VARIANTS)}
    return np.column_stack(
        [value[COSINES] - value[ANSWER], value[PLUG_IN] - value[ANSWER], value[MAJORITY] - value[CORRECT]]
    )


def _decide(
    panels: list[Panel], cubes: dict[Panel, Floats], options: Options
) -> tuple[tuple[ClaimDecision, ...], list[str]]:
    notes, decisions = [], []
    base = pooled(panels, {panel: _leads(cube, 0) for panel, cube in cubes.items()}, options)
    signs = [] if base is None else np.where(base.estimate < 0, -1.0, 1.0).tolist()
    parts: list[ClaimDecision] = []
    for v, variant in enumerate(VARIANTS[1:], start=1):
        leads = (
            pooled(panels, {panel: _leads(cube, v) * signs for panel, cube in cubes.items()}, options)
            if signs
            else None
        )
        every = [q for column in range(len(signs)) if (q := mean_of(leads, column)) is not None]
        if len(every) == len(OTHERS):
            parts += [above(ORDER, q, unit="purity", threshold=-PURITY) for q in every]
        else:
            notes.append(f"The variant {variant.name!r} could not be measured, and the order was decided without it.")
    if parts:
        decisions.append(all_of(ORDER, parts))
    for column, (claim, margin) in enumerate(((KERNEL, ALIKE), (CHANCE, ALIKE), (PSEUDO, PROXY))):
        gap = {panel: _gaps(cube)[:, column : column + 1] for panel, cube in cubes.items()}
        q = mean_of(pooled(panels, gap, options), 0)
        if q is None:
            notes.append(f"{claim.key} was not decided: too few problems have a purity.")
        else:
            decisions.append(within(claim, q, unit="purity", margin=margin))
    notes.append(
        "The plug-in form counts a rollout as its own neighbour, so its purity is the lower one, by about 1/N."
    )
    return tuple(decisions), notes


def _table(levels: Resampled | None) -> Table:
    columns = (Column("measured by"), *(Column(readout, "95% CI") for readout in READOUTS))
    rows = []
    for v, variant in enumerate(VARIANTS):
        cells: list[Cell] = [Cell(variant.name)]
        for r in range(len(READOUTS)):
            cells.append(mean_cell(levels, v * len(READOUTS) + r, why="undefined"))
        rows.append(Row(tuple(cells)))
    notes = ("Answer: the label, correction and kernel of the paper's figure. All these configurations are pooled.",)
    return Table(
        "purity-robustness", "Purity of the nearest neighbour, by how it is measured", columns, tuple(rows), notes
    )


def _chart(levels: Resampled) -> Chart:
    names = [variant.name for variant in VARIANTS]
    bars = []
    for r in range(len(READOUTS)):
        cells = [mean_cell(levels, v * len(READOUTS) + r) for v in range(len(VARIANTS))]
        bars.append(series(READOUTS[r], names, cells))
    plot = Plot("bars", y="purity (0 chance, 1 perfect)", series=bars)
    return Chart("purity-robustness", "Does the order hang on how purity is measured?", (plot,))
