"""Study 25: do confidence and density say the same about a rollout? (Tab. "dc-density-corr".)

Within each problem, DeepConf's cBW is correlated with the K-NN density of routing over the located rollouts. A mean near
zero may hide problems with a strong correlation of either sign, so single problems are held against permutations of the
confidences within the problem.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.basins import densities
from radmoe_studies.decision import PEOPLED, Claim, ClaimDecision, above, all_of, changed, within
from radmoe_studies.evidence import Evidence, Floats, Panel, Request
from radmoe_studies.needs import LOGPROBS
from radmoe_studies.picks import standard
from radmoe_studies.pooling import THINKING
from radmoe_studies.quantities import by_configuration, mean_cell, mean_of, number, pooled
from radmoe_studies.report.figures import Chart, Line, Plot, Series
from radmoe_studies.resample import Resampled

KERNELS = ("weighted", "binary")
NEAR = 0.10  # a correlation below this is less than a small one
SMALL = 0.20  # the paper counts the problems below this
MOST, CLOSE = 0.50, 0.05  # "most problems", and how near to it a share cannot be told from it
FEWEST = 4  # rollouts: fewer have no correlation worth the name
BINS = np.linspace(-1.0, 1.0, 26)

_QUANTITY = (
    "The mean over problems (math, science and code) of the Pearson correlation, over the located rollouts of a problem, of cBW "
    "(32-token window) with K-NN density at RAD's readout"
)
TEXTS = "problems of text, which the paper does not have, were pooled with the others"
MEAN = Claim(
    "orthogonality.mean-near-zero",
    "Confidence and routing density are nearly uncorrelated within a problem, under both kernels.",
    "mean r .03 (weighted), .03 (binary)",
    "Tab. dc-density-corr",
    f"{_QUANTITY}, {THINKING.name} pooled, lies within {NEAR} of 0 under the weighted and under the binary kernel: two "
    "one-sided tests each on the bootstrap over problems, the weaker decides.",
    changed(PEOPLED, TEXTS),
)
SPLITS = Claim(
    "orthogonality.every-split",
    "The correlation is near zero on well-posed problems and on code alike.",
    "mean r .02 (well-posed), .05 (code)",
    "Tab. dc-density-corr",
    f"{_QUANTITY}, {THINKING.name} pooled, weighted kernel, lies within {NEAR} of 0 on math and science together and on code: two "
    "one-sided tests each on the bootstrap over problems, the weaker decides.",
    changed(PEOPLED, TEXTS),
)
SINGLE = Claim(
    "orthogonality.most-problems",
    "In most problems the correlation is small.",
    "61% of pools with |r| < .2",
    "Tab. dc-density-corr",
    f"The share of problems whose correlation (weighted kernel, {THINKING.name} pooled) is below {SMALL} in absolute "
    f"value is above {MOST}: one-sided on the bootstrap over problems.",
    changed(PEOPLED, TEXTS),
)
PAPER = {
    ("weighted", "all"): (0.03, 0.61),
    ("weighted", "well-posed"): (0.02, None),
    ("weighted", "code"): (0.05, None),
}
PAPER |= {("binary", "all"): (0.03, 0.60), ("binary", "well-posed"): (0.02, None), ("binary", "code"): (0.06, None)}


def requests(panel: Panel) -> tuple[Request, ...]:
    """RAD's readout under both kernels, where there are confidences, on problems of the paper's domains."""
    if panel.domain not in ("math", "science", "code") or "cbw" not in panel.scalars:
        return ()
    return tuple(Request(standard(panel).readout, kernel) for kernel in KERNELS)


class Correlations(NamedTuple):
    """The correlation of each problem [P], and those of permuted confidences [permutations, P]; NaN where undefined."""

    r: Floats
    permuted: Floats


def correlations(panel: Panel, request: Request, permutations: int, seed: int) -> Correlations:
    """Pearson's r of confidence and density within each problem."""
    read, confidence = panel.read(request), panel.scalar("cbw")
    inside = read.located & np.isfinite(confidence)
    density = densities(read.values, read.located, panel.setting.k)
    order = np.argsort(~inside, axis=1, kind="stable")  # the rollouts that count come first
    inside = np.take_along_axis(inside, order, 1)
    x, y = (_unit(np.take_along_axis(values, order, 1), inside) for values in (confidence, density))
    rng = np.random.default_rng(seed)
    permuted = np.empty((permutations, len(panel)))
    for row in range(permutations):
        shuffle = np.argsort(np.where(inside, rng.random(inside.shape), 2.0), axis=1)
        permuted[row] = (np.take_along_axis(x, shuffle, 1) * y).sum(1)
    return Correlations((x * y).sum(1), permuted)


def _unit(values: Floats, inside: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Floats:
    """Values centred over the mask and of norm 1, 0 outside; NaN in rows that are constant or too short."""
    count = inside.sum(1, keepdims=True)
    filled = np.where(inside, values, 0.0)
    centred = np.where(inside, filled - filled.sum(1, keepdims=True) / np.maximum(count, 1), 0.0)
    norm = np.linalg.norm(centred, axis=1, keepdims=True)
    flat = (norm <= 1e-6 * np.linalg.norm(filled, axis=1, keepdims=True)) | (count < FEWEST)
    unit: Floats = np.where(flat, np.nan, centred / np.where(flat, 1.0, norm))
    return unit


@study(
    25,
    "Do confidence and density say the same?",
    where="Tab. dc-density-corr",
    population=THINKING,
    needs=(LOGPROBS,),
    requests=requests,
    claims=(MEAN, SPLITS, SINGLE),
)
def orthogonality(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in evidence.panels if requests(panel)]
    made = {
        (kernel, panel): correlations(panel, request, max(options.samples // 4, 10), options.seed + place)
        for place, panel in enumerate(panels)
        for kernel, request in zip(KERNELS, requests(panel), strict=True)
    }
    splits = by_configuration(panels)
    splits["well-posed"] = [panel for panel in panels if panel.domain in ("math", "science")]
    splits["code"] = [panel for panel in panels if panel.domain == "code"]
    tables = {kernel: {panel: _columns(made[kernel, panel].r) for panel in panels} for kernel in KERNELS}
    results = {
        (kernel, name): pooled(own, tables[kernel], options) for kernel in KERNELS for name, own in splits.items()
    }
    decisions, notes = _decide(results)
    rows = [
        _row(kernel, name, results[kernel, name], [made[kernel, panel] for panel in own])
        for kernel in KERNELS
        for name, own in splits.items()
        if own
    ]
    columns = (
        *(Column(title) for title in ("problems of", "problems")),
        Column("mean r", "95% CI"),
        *(Column(title) for title in ("sd", "sd permuted", "|r| < .2", "|r| < .2 permuted")),
        *(Column(title) for title in ("paper: mean r", "paper: |r| < .2")),
    )
    table = Table(
        "orthogonality", "Confidence against routing density, within problems", columns, tuple(rows), sections="kernel"
    )
    notes.append(
        "Permuted: confidences are shuffled among the rollouts of a problem. An sd above the permuted one means that "
        "single problems have correlations that their mean does not show. The paper's sd is .26 over its 64 rollouts, "
        "where shuffling gives about .13."
    )
    return Findings((table,), (_chart(panels, made),) if panels else (), decisions, tuple(notes))


def _columns(r: Floats) -> Floats:
    """The correlation, and whether it is small [P, 2]."""
    return np.column_stack([r, np.where(np.isfinite(r), (np.abs(r) < SMALL).astype(float), np.nan)])


def _decide(results: dict[tuple[str, str], Resampled | None]) -> tuple[tuple[ClaimDecision, ...], list[str]]:
    def parts(claim: Claim, cells: list[tuple[str, str]]) -> list[ClaimDecision]:
        found = [mean_of(results[cell], 0) for cell in cells]
        return [within(claim, q, unit="r", margin=NEAR) for q in found if q is not None]

    decisions, notes = [], []
    if len(both := parts(MEAN, [(kernel, "all") for kernel in KERNELS])) == len(KERNELS):
        decisions.append(all_of(MEAN, both))
    else:
        notes.append("Too few problems have a correlation: nothing was decided.")
    if len(each := parts(SPLITS, [("weighted", "well-posed"), ("weighted", "code")])) == 2:
        decisions.append(all_of(SPLITS, each))
    else:
        notes.append(f"{SPLITS.key} was not decided: it needs well-posed problems and code, both with confidences.")
    if (share := mean_of(results["weighted", "all"], 1)) is not None:
        decisions.append(above(SINGLE, share, unit="share", threshold=MOST, resolution=CLOSE))
    return tuple(decisions), notes


def _row(kernel: str, name: str, result: Resampled | None, own: list[Correlations]) -> Row:
    r = np.concatenate([one.r for one in own])
    permuted = np.concatenate([one.permuted for one in own], axis=1)
    r, permuted = r[np.isfinite(r)], permuted[:, np.isfinite(permuted).all(0)]
    spread, by_chance = (float(np.std(values)) if values.size else np.nan for values in (r, permuted))
    small = float(np.mean(np.abs(permuted) < SMALL)) if permuted.size else np.nan
    mean, share = PAPER.get((kernel, name), (None, None))
    cells = (
        Cell(name),
        Cell(0 if result is None else result.n, "count"),
        mean_cell(result, 0),
        number(spread),
        number(by_chance),
        mean_cell(result, 1, "percent"),
        number(small, "percent"),
        missing("") if mean is None else Cell(mean, "number"),
        missing("") if share is None else Cell(share, "percent"),
    )
    return Row(cells, section=kernel)


def _chart(panels: list[Panel], made: dict[tuple[str, Panel], Correlations]) -> Chart:
    """How the correlations of single problems are spread, beside permuted ones."""
    spread = {kernel: np.concatenate([made[kernel, panel].r for panel in panels]) for kernel in KERNELS}
    spread["permuted"] = np.concatenate([made["weighted", panel].permuted.ravel() for panel in panels])
    shares = {}
    for name, values in spread.items():
        known = values[np.isfinite(values)]
        shares[name] = 100 * np.histogram(known, BINS)[0] / max(len(known), 1)
    filled = np.flatnonzero(np.sum(list(shares.values()), axis=0))
    shown = slice(max(filled.min() - 1, 0), filled.max() + 2) if len(filled) else slice(None)
    middle = ((BINS[1:] + BINS[:-1]) / 2)[shown].tolist()
    series = [Series(name, middle, own[shown].tolist()) for name, own in shares.items()]
    plot = Plot(
        "lines",
        x="correlation of confidence and density within a problem",
        y="share of problems (%)",
        series=series,
        lines=(Line(0.0, "uncorrelated", "x"),),
    )
    return Chart("orthogonality", "Do confidence and density say the same?", (plot,))
