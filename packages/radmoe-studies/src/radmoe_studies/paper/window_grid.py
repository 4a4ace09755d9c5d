"""Study 12: how much routing should a budget be spent on? Budgets B against window widths W. (tab:window-grid.)

The anchor is the latest `so` whose whole window lies in the first B tokens of a rollout; a rollout without one is dropped.
Beside this stands an arm that leaks: its anchor lies within the budget, and its window reads on beyond it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, domain_study
from radmoe_studies.budgets import BUDGETS, LATE
from radmoe_studies.decision import EFFECT, PEOPLED, POINT, Claim, ClaimDecision, above, all_of, below, changed
from radmoe_studies.evidence import Floats, Panel, Request
from radmoe_studies.gains import Gains, gain_cells, gains, of_domains, pooled
from radmoe_studies.pooling import THINKING, problems_of, shown
from radmoe_studies.report.figures import Chart, Grid, Plot
from radmoe_studies.resample import Quantity, Resampled, resample

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)
SMALL = (8, 16)
MIDDLE = (64, 128)  # budgets that end within most rollouts of the lab
WIDEST = WIDTHS[-1]
LEAKING = (16, 32, 64)  # widths at which a window is likely to reach beyond a middle budget
MARGIN = 0.01
BOXED = 2.0  # the z from which the best width of a budget is boxed
# tab:window-grid, in points; widths 1, 2, 4, ..., 512.
PAPER_WIDTHS = (*WIDTHS, 256, 512)
PAPER: dict[int, tuple[float, ...]] = {
    32: (0.9, -0.5, -1.2, 0.7, -0.8),
    64: (0.7, -0.3, 0.1, -1.2, -0.7, -0.1),
    128: (0.1, 0.3, 0.3, 1.0, 0.5, -0.4, -0.8),
    256: (0.3, 0.3, 0.6, 0.3, 0.3, -0.0, -0.5, 0.3),
    512: (0.9, 0.4, -0.0, 0.1, 0.5, 1.4, 0.6, 0.7, 0.0),
    1024: (1.2, 0.4, 1.0, 1.2, 0.7, 1.0, 1.0, 0.4, 0.8, 0.5),
    4096: (1.4, 1.0, 1.3, 1.3, 1.5, 2.1, 1.8, 2.0, 1.9, 2.3),
    16384: (1.7, 1.7, 2.3, 2.6, 3.2, 3.1, 2.8, 2.2, 2.4, 3.0),
    32768: (3.1, 3.0, 3.3, 3.5, 3.9, 3.4, 2.6, 2.6, 3.5, 4.1),
}

_POOLED = f"{THINKING.name} pooled, one-sided on the bootstrap over problems"
FITS = 0.50  # of the problems must have two rollouts in which the widest window fits, for width to be a question
_FALLBACK = "over all problems, where one that is not eligible gets a random rollout and gains 0"
_MIDDLE = " and ".join(map(str, MIDDLE))
NEAR = Claim(
    "window-grid.small-windows-are-near-optimal",
    "At middle budgets no width gains much more than a small window of 8 to 16 tokens.",
    "W of 8 to 16 is best at mid budgets",
    "tab:window-grid",
    f"At B = {_MIDDLE}, {_FALLBACK}, the mean gain of every other width that fits minus that of W = 8 and 16 is below "
    f"{100 * MARGIN:g} point: {_POOLED}; the weakest decides.",
    changed(PEOPLED),
)
WIDE = Claim(
    "window-grid.only-a-large-budget-favours-width",
    "Only the largest budget favours the widest window.",
    "W = 512: +4.06 (z 8.5) at B = 32,768",
    "tab:window-grid",
    f"On problems eligible for both widths, delta-full of the widest window that fits minus that of W = 16 is above "
    f"{100 * POINT:g} point at B = {LATE}, and at B = {_MIDDLE} it is below {100 * POINT:g} point: {_POOLED}; the weaker decides. Not "
    f"expressible where the widest window, W = {WIDEST}, fits in two rollouts of fewer than {FITS:.0%} of the problems.",
    changed(PEOPLED, EFFECT, "in rollouts that are hardly longer than the widest window, width is not a question"),
)
LEAK = Claim(
    "window-grid.leaking-windows-gain",
    "A sweep that lets windows read past the budget shows gains that the budget does not pay for.",
    "a budget leak that favours a mid window",
    "App. frontier",
    f"At B = {_MIDDLE} and W = {', '.join(map(str, LEAKING))}, {_FALLBACK}, the mean gain of leaking windows minus that of "
    f"whole ones is above {100 * POINT:g} point: {_POOLED}.",
    changed(PEOPLED, EFFECT),
)
CLAIMS = (NEAR, WIDE, LEAK)
CELLS = tuple((budget, width) for budget in BUDGETS for width in WIDTHS if width <= budget)
LEAKS = tuple((budget, width) for budget in MIDDLE for width in WIDTHS[1:])


def honest(budget: int, width: int) -> Request:
    return Request(f"trajectory:so*@{width}", budget=budget, whole=True, k=10)


def leaking(budget: int, width: int) -> Request:
    return Request(f"trajectory:so*@{width}", budget=budget, whole=True, k=10, at="trajectory:so*@1")


def wanted(panel: Panel) -> list[Request]:
    return [*(honest(*cell) for cell in CELLS), *(leaking(*cell) for cell in LEAKS)] if of_domains([panel]) else []


class Sweep(NamedTuple):
    """Gains of every cell, whole and leaking, and the differences that claims are about over resampled problems."""

    whole: dict[tuple[int, int], Gains]
    leaking: dict[tuple[int, int], Gains]
    names: list[str]
    means: Resampled

    def mean(self, name: str) -> Quantity | None:
        one = self.means.mean(self.names.index(name))
        return one if one.finite else None


def _sweep(panels: list[Panel], options: Options) -> Sweep:
    def of(request: Request) -> Gains:
        return pooled(panels, lambda panel: gains(panel, request))

    whole, leaky = {cell: of(honest(*cell)) for cell in CELLS}, {cell: of(leaking(*cell)) for cell in LEAKS}

    def gain(*widths: int) -> Floats:
        rows = np.stack([whole[budget, width].fallback for budget in MIDDLE for width in widths])
        return np.asarray(rows.mean(0), np.float64)

    fitting = [width for width in WIDTHS if width <= min(MIDDLE)]
    columns = {f"width {width}": gain(width) - gain(*SMALL) for width in fitting if width not in SMALL}
    columns["late"] = whole[LATE, WIDEST].full - whole[LATE, 16].full
    wide = np.stack([whole[budget, fitting[-1]].full - whole[budget, 16].full for budget in MIDDLE])
    known = np.isfinite(wide)
    columns["middle"] = np.where(known.any(0), np.where(known, wide, 0).sum(0) / np.maximum(known.sum(0), 1), np.nan)
    pairs = [(b, w) for b in MIDDLE for w in LEAKING]
    columns["leak"] = np.mean([leaky[cell].fallback - whole[cell].fallback for cell in pairs], axis=0)
    table = np.column_stack(list(columns.values()))
    means = resample(table, problems_of(panels), resamples=options.draws, seed=options.seed)
    return Sweep(whole, leaky, list(columns), means)


@domain_study(
    12,
    "How wide a window does a budget pay for?",
    where="tab:window-grid, Fig. window-grid",
    requests=wanted,
    claims=CLAIMS,
)
def window_grid(panels: list[Panel], options: Options) -> Findings:
    sweep = _sweep(panels, options)
    if not any(lift.covered.any() for lift in sweep.whole.values()):
        return Findings(notes=("No problem has two rollouts with a whole window at `so`.",))
    decisions = _decide(sweep)
    tested = [decision.claim for decision in decisions]
    notes = [f"{claim.key} cannot be tested: its windows fit in no problem." for claim in CLAIMS if claim not in tested]
    notes.append(
        "The paper's grid is read as So*: a first occurrence could not rise with B. Its caption boxes the best width of a "
        f"budget where z is {BOXED:g} or more; so do we. Windows of 256 and 512 tokens do not fit into the lab's rollouts."
    )
    return Findings((_table(sweep), _leaks(sweep)), (_chart(sweep),), tuple(decisions), tuple(notes))


def _decide(sweep: Sweep) -> list[ClaimDecision]:
    decisions: list[ClaimDecision] = []
    if any(sweep.whole[budget, width].covered.any() for budget in MIDDLE for width in SMALL):
        widths = [mean for name in sweep.names if name.startswith("width ") and (mean := sweep.mean(name))]
        decisions.append(all_of(NEAR, [below(NEAR, mean, unit="points", threshold=MARGIN) for mean in widths]))
    late, middle, leak = (sweep.mean(name) for name in ("late", "middle", "leak"))
    fits = float(sweep.whole[LATE, WIDEST].covered.mean())
    short = (
        f"a window of {WIDEST} tokens fits in two rollouts of {fits:.0%} of the problems alone" if fits < FITS else ""
    )
    if late and middle:
        parts = [above(WIDE, late, unit="points", threshold=POINT), below(WIDE, middle, unit="points", threshold=POINT)]
        decisions.append(replace(all_of(WIDE, parts), inexpressible=short))
    if leak and any(sweep.leaking[budget, width].covered.any() for budget in MIDDLE for width in LEAKING):
        decisions.append(above(LEAK, leak, unit="points", threshold=POINT))
    return decisions


def _table(sweep: Sweep) -> Table:
    rows = []
    for budget in BUDGETS:
        cells = [Cell(str(budget))]
        for width in PAPER_WIDTHS:
            lift = sweep.whole.get((budget, width))
            cells.append(missing("does not fit") if lift is None else gain_cells(lift.full, lift.test())[0])
        rows.append(Row(tuple(cells), "these pools"))
    for budget, values in PAPER.items():
        padded = [Cell(value / 100, "points") for value in values]
        padded += [missing("does not fit")] * (len(PAPER_WIDTHS) - len(values))
        rows.append(Row((Cell(str(budget)), *padded), "the paper"))
    columns = tuple(map(Column, ("B", *(f"W = {width}" for width in PAPER_WIDTHS))))
    note = "delta-full on eligible problems; * where |z| is 1.96 or more (the paper prints no z here)."
    return Table("window-grid", "Gain by budget and width, whole windows", columns, tuple(rows), (note,), "source")


def _leaks(sweep: Sweep) -> Table:
    rows = []
    for cell in LEAKS:
        whole, leaky = sweep.whole.get(cell), sweep.leaking[cell]
        own = gain_cells(whole.full, whole.test()) if whole is not None else (missing("does not fit"),) * 2
        share = shown(float(whole.covered.mean()) if whole is not None else None, "percent", note="does not fit")
        cells = (Cell(f"B = {cell[0]}, W = {cell[1]}"), share, *own, *gain_cells(leaky.full, leaky.test()))
        rows.append(Row(cells))
    titles = ("cell", "problems with whole windows", "whole", "z", "leaking", "z, leaking")
    return Table("window-grid-leaks", "Windows that read past their budget", tuple(map(Column, titles)), tuple(rows))


def _chart(sweep: Sweep) -> Chart:
    values: list[list[float | None]] = [[None] * len(WIDTHS) for _ in BUDGETS]
    boxed = []
    for i, budget in enumerate(BUDGETS):
        tests = {
            j: test
            for j, w in enumerate(WIDTHS)
            if (budget, w) in sweep.whole and (test := sweep.whole[budget, w].test())
        }
        for j, test in tests.items():
            values[i][j] = round(100 * test.gap, 2)
        best = max(tests, key=lambda j: tests[j].gap, default=None)
        if best is not None and tests[best].z >= BOXED:
            boxed.append((i, best))
    hatched = [(i, j) for i, row in enumerate(values) for j, value in enumerate(row) if value is None]
    grid = Grid([str(b) for b in BUDGETS], [str(w) for w in WIDTHS], values, boxed, hatched)
    plot = Plot("heat", "delta-full (points)", "window width W", "budget B", grid=grid)
    return Chart(
        "window-grid", "How wide a window does a budget pay for?", (plot,), "Boxed: the best width of a budget, z >= 2."
    )
