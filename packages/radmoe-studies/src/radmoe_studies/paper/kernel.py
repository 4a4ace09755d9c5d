"""Study 15: does it matter how route vectors are compared? (App. "Binary vs. weighted Jaccard kernel".)

A cell is a problem of one configuration under one readout with two or more located rollouts. Only the kernel differs
between two picks of a cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.stats import (
    benjamini_hochberg,
    mcnemar_boundary,
    mcnemar_mde,
    mcnemar_power,
)
from radmoe.evaluation.table import Cell, Column, Row, Table, Unit
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.decision import PEOPLED, Claim, ClaimDecision, below, changed, within
from radmoe_studies.evidence import COSINE, Evidence, Floats, Panel, Request
from radmoe_studies.gains import DOMAINS
from radmoe_studies.paper_tables import percent, printed
from radmoe_studies.picks import highest, hits
from radmoe_studies.pooling import (
    HOLM,
    PAIRED,
    THINKING,
    Rows,
    adjusted,
    clusters,
    configuration,
    groups,
    paired,
    shown,
)
from radmoe_studies.report.figures import Chart, Line, Plot, Series
from radmoe_studies.resample import Resampled, resample

READOUTS = ("boundary@marker", "delimiter@marker", "delimiter@16", "boundary@16")
KERNELS = ("weighted", "binary", COSINE)
MARGIN = 0.01  # the gap that the paper calls relevant: one point
RARELY = 0.10  # of the cells may have another pick, and the picks still be "the same"

EQUAL = Claim(
    "kernel.not-load-bearing",
    "Weighted and binary Jaccard select equally well.",
    "+0.22 points [-0.18, +0.59], p = .248",
    "App. wjja, tab:wjja-main",
    f"Weighted minus binary accuracy over all cells (four readouts, {THINKING.name} pooled) lies within {100 * MARGIN:g} "
    "point of 0: two one-sided tests on the bootstrap over problems.",
    changed(PEOPLED),
)
SAME = Claim(
    "kernel.same-picks",
    "The two kernels rarely pick another rollout.",
    "5.4% of cells",
    "App. wjja",
    f"The share of all cells (four readouts, {THINKING.name} pooled) in which weighted and binary Jaccard pick different rollouts is "
    f"below {100 * RARELY:g}%: one-sided on the bootstrap over problems.",
    changed(PEOPLED),
)
PRINTED: tuple[tuple[str, Unit], ...] = (("ja", "percent"), ("wj", "percent"), ("delta", "points"))
WEIGHTED, BINARY, COS, GAP, COSGAP, OTHER = range(6)  # columns of a cell


def wanted(panel: Panel) -> list[Request]:
    if panel.domain not in DOMAINS:
        return []
    return [Request(readout, kernel, k=panel.setting.k) for readout in READOUTS for kernel in KERNELS]


def cells(panel: Panel, readout: str) -> Floats:
    """What each problem gives under a readout [P, 6]: hits of the kernels, gaps, and whether the picks differ."""
    chosen = [highest(panel.density(Request(readout, kernel, k=panel.setting.k))) for kernel in KERNELS]
    weighted, binary, cosine = (hits(panel, one) for one in chosen)
    other = np.where(chosen[0] >= 0, (chosen[0] != chosen[1]).astype(float), np.nan)
    return np.column_stack([weighted, binary, cosine, weighted - binary, weighted - cosine, other])


class KernelCut(NamedTuple):
    """The means over a part of the cells, and the test of the two kernels on them.


    Of `n` cells, only the binary kernel is right in `b` and only the weighted one in `c`. A problem may have several cells, so p is by problems.
    """

    means: Resampled
    n: int
    b: int
    c: int
    p: float


@study(
    15,
    "Does it matter how route vectors are compared?",
    where="App. wjja",
    requests=wanted,
    claims=(EQUAL, SAME),
    population=THINKING,
)
def kernel(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in evidence.panels if panel.domain in DOMAINS]
    tables = {(panel, readout): cells(panel, readout) for panel in panels for readout in READOUTS}

    def cut(own: Sequence[Panel], readouts: Sequence[str] = READOUTS) -> KernelCut | None:
        return _cut([(panel, tables[panel, readout]) for panel in own for readout in readouts], options)

    pooled = cut(panels)
    if pooled is None:
        return Findings(
            notes=("No problem has two located rollouts under any of the four readouts: nothing is compared.",)
        )
    modes = {readout: one for readout in READOUTS if (one := cut(panels, (readout,))) is not None}
    by_domain = {domain: [panel for panel in panels if panel.domain == domain] for domain in DOMAINS}
    categories = {
        (readout, domain): one
        for readout in READOUTS
        for domain, own in by_domain.items()
        if own and (one := cut(own, (readout,))) is not None
    }
    parts = [own for name in (configuration, _dataset) for own in groups(panels, name).values()]
    cuts = [one for own in [*parts, *(own for own in by_domain.values() if own)] if (one := cut(own)) is not None]
    surviving = int(np.sum(benjamini_hochberg([one.p for one in [*cuts, *categories.values()]]) < 0.05))
    decisions: list[ClaimDecision] = [
        within(EQUAL, pooled.means.mean(GAP), unit="points", margin=MARGIN),
        below(SAME, pooled.means.mean(OTHER), unit="share", threshold=RARELY),
    ]
    notes = (
        f"Benjamini-Hochberg over {len(cuts) + len(categories)} cuts (configurations, data sets, domains, readouts within "
        f"domains): {surviving} are significant; in the paper 0 of 26.",
        "The paper says that the kernels pick another rollout in 816 cells; 816 = 391 + 425 are cells in which exactly one "
        "of them is right. Both are counted here, and the claim about picks is tested on picks.",
        "The cosine is not in the paper: it stands beside both kernels as a third.",
    )
    return Findings(
        (_modes(modes, pooled), _categories(categories), _power(modes, pooled)),
        (_chart(categories, modes, pooled),),
        tuple(decisions),
        notes,
    )


def _dataset(panel: Panel) -> str:
    return panel.dataset


def _cut(own: list[tuple[Panel, Floats]], options: Options) -> KernelCut | None:
    if not own:
        return None
    rows = np.concatenate([table for _, table in own])
    problems = [problem for panel, _ in own for problem in clusters(panel)]
    kept = np.isfinite(rows[:, GAP])
    if not kept.any():
        return None
    data = Rows(rows[kept], [problem for problem, keep in zip(problems, kept, strict=True) if keep])
    means = resample(*data, resamples=options.draws, seed=options.seed)
    test = paired(data.table[:, BINARY], data.table[:, WEIGHTED], data.problems)
    return KernelCut(means, test.n, test.b, test.c, test.p)


def _numbers(cut: KernelCut, holm: float | None) -> tuple[Cell, ...]:
    e = cut.means.estimate
    return (
        Cell(cut.n, "count"),
        shown(e[BINARY], "percent"),
        shown(e[WEIGHTED], "percent"),
        shown(e[GAP], "points", cut.means.interval(GAP)),
        Cell(cut.b, "count"),
        Cell(cut.c, "count"),
        Cell(cut.p, "p"),
        shown(holm, "p"),
    )


_HEADS = (
    Column("cells"),
    Column("binary"),
    Column("weighted"),
    Column("weighted - binary", "95% CI"),
    Column("binary alone right"),
    Column("weighted alone right"),
    Column("p"),
    Column("Holm p"),
)


def _paper(row: Mapping[str, str]) -> tuple[Cell, ...]:
    """Cells, accuracies and counts as printed."""
    values = [shown(percent(row[key]), unit) for key, unit in PRINTED]
    return (Cell(int(row["n"]), "count"), *values, Cell(int(row["b"]), "count"), Cell(int(row["c"]), "count"))


def _modes(modes: dict[str, KernelCut], pooled: KernelCut) -> Table:
    every = modes | {"all": pooled}
    rows = []
    for (name, one), holm in zip(every.items(), adjusted([one.p for one in every.values()]), strict=True):
        other = shown(one.means.estimate[OTHER], "percent", one.means.interval(OTHER))
        cosine = shown(one.means.estimate[COSGAP], "points", one.means.interval(COSGAP))
        rows.append(Row((Cell(name), *_numbers(one, holm), other, cosine), "here"))
    for row in printed("wjja-main"):
        tail = (Cell(float(row["p"]), "p"), shown(float(row["holm"]) if row["holm"].strip("-") else None, "p"))
        none = [shown(None, "percent", note="not printed")] * 2
        rows.append(Row((Cell(row["mode"]), *_paper(row), *tail, *none), "paper"))
    heads = (
        Column("readout"),
        *_HEADS,
        Column("other pick", "95% CI"),
        Column("weighted - cosine", "95% CI"),
    )
    return Table(
        "kernel-modes",
        "Weighted against binary Jaccard, by readout",
        heads,
        tuple(rows),
        (PAIRED, HOLM),
        "comparison",
    )


def _categories(categories: dict[tuple[str, str], KernelCut]) -> Table:
    corrected = adjusted([one.p for one in categories.values()])
    rows = [
        Row((Cell(domain), *_numbers(one, holm)), readout)
        for ((readout, domain), one), holm in zip(categories.items(), corrected, strict=True)
    ]
    blank = [shown(None, "p", note="not printed")] * 2
    rows += [Row((Cell(r["category"]), *_paper(r), *blank), f"paper, {r['mode']}") for r in printed("wjja-cat")]
    title = "Weighted against binary Jaccard, by readout and domain"
    return Table("kernel-categories", title, (Column("domain"), *_HEADS), tuple(rows), (PAIRED, HOLM), "comparison")


def _power(modes: dict[str, KernelCut], pooled: KernelCut) -> Table:
    """The power of the test, given how many cells differ."""
    rows = []
    for name, one in [*modes.items(), ("all", pooled)]:
        n, d = one.n, one.b + one.c
        few = "too few cells differ for any gap to be significant"
        powers = [mcnemar_power(n, d, g) if g * n <= d else None for g in (0.01, 0.005)]
        less = "fewer cells differ than such a gap needs"
        rows.append(
            Row(
                (
                    Cell(name),
                    Cell(d, "count"),
                    shown(mcnemar_mde(n, d), "points", note=few),
                    shown(mcnemar_boundary(n, d), "points", note=few),
                    *(shown(power, "percent", note=less) for power in powers),
                    shown(abs(float(one.means.estimate[GAP])), "points"),
                )
            )
        )
    for row in printed("wjja-power"):
        gaps = [shown(percent(row[key]), "points") for key in ("mde", "boundary")]
        chances = [shown(float(row[key]), "percent") for key in ("power_1pp", "power_05pp")]
        last = shown(percent(row["observed"]), "points")
        rows.append(Row((Cell(f"paper: {row['scope']}"), Cell(int(row["n_disc"]), "count"), *gaps, *chances, last)))
    heads = ("readout", "cells that differ", "seen with 80% power", "significant from", "power at 1 point")
    columns = tuple(Column(head) for head in (*heads, "power at 0.5 points", "gap seen"))
    note = (
        "Power is that of McNemar over cells, as in the paper, as if they were independent. Where a problem has several cells, "
        "less could have been seen."
    )
    return Table("kernel-power", "What the comparison of kernels could have seen", columns, tuple(rows), (note,))


def _chart(categories: dict[tuple[str, str], KernelCut], modes: dict[str, KernelCut], pooled: KernelCut) -> Chart:
    series = []
    for domain in (*DOMAINS, "all"):
        own = {r: one for (r, d), one in categories.items() if d == domain}
        own = modes | {"all": pooled} if domain == "all" else own
        if own:
            low, high = zip(*(one.means.interval(GAP) for one in own.values()), strict=True)
            values = [100 * float(one.means.estimate[GAP]) for one in own.values()]
            series.append(Series(domain, list(own), values, [100 * v for v in low], [100 * v for v in high]))
    lines = (Line(100 * MARGIN, "+1 point"), Line(-100 * MARGIN, "-1 point"))
    plot = Plot("bars", y="weighted - binary (points)", series=series, lines=lines)
    return Chart("kernel", "Does it matter how route vectors are compared?", (plot,))
