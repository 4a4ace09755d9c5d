"""Study 13: does a wide window help because it is wide, or a small one because it can stand later? (tab:width-recency.)

Both strategies are read on the rollouts in which the widest window fits. "Fixed" holds the anchor of the widest window and
varies the width alone; "recency" takes the latest anchor whose own window fits. At the widest they are the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.budgets import LATE
from radmoe_studies.decision import EFFECT, PEOPLED, POINT, Claim, ClaimDecision, above, changed
from radmoe_studies.evidence import Evidence, Floats, Panel, Request
from radmoe_studies.gains import Gains, gain_cells, gains, of_domains, pooled
from radmoe_studies.pooling import THINKING, problems_of, shown
from radmoe_studies.report.figures import Chart, Line, Plot, Series
from radmoe_studies.resample import Resampled, intervals, resample

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
SMALL, WIDER, WIDEST = WIDTHS[:4], WIDTHS[-2], WIDTHS[-1]  # a lab rollout of 80 tokens holds no window of 128
PAPER = {  # tab:width-recency: points and z of fixed and of recency, and the bonus
    1: (1.81, 3.8, 3.10, 6.5, 1.29),
    2: (1.47, 3.1, 3.08, 6.4, 1.60),
    4: (1.61, 3.4, 3.92, 8.2, 2.31),
    8: (2.40, 5.0, 4.01, 8.3, 1.60),
    16: (3.02, 6.3, 4.17, 8.7, 1.15),
    32: (3.02, 6.3, 3.25, 6.8, 0.23),
    64: (2.77, 5.8, 2.40, 5.0, -0.37),
    128: (2.57, 5.4, 2.15, 4.5, -0.42),
    256: (3.05, 6.4, 3.25, 6.8, 0.20),
    512: (4.06, 8.5, 4.06, 8.5, 0.00),
}

_POOLED = f"at B = {LATE}, {THINKING.name} pooled, one-sided on the bootstrap over problems"
_SMALL = ", ".join(map(str, SMALL))
WIDTH = Claim(
    "width-recency.width-alone-gains",
    "With the anchor held, a wider window gains more.",
    "+1.81 at W = 1, +4.06 at W = 512",
    "tab:width-recency",
    f"delta-full of the fixed strategy at W = {WIDEST} minus that at W = 1 is above {100 * POINT:g} point {_POOLED}.",
    changed(PEOPLED, EFFECT),
)
RECENCY = Claim(
    "width-recency.small-windows-ride-recency",
    "A small window gains by standing later.",
    "+1.29 at W = 1, +2.31 at W = 4",
    "tab:width-recency",
    f"The mean bonus (recency minus fixed) over W = {_SMALL} is above {100 * POINT:g} point {_POOLED}.",
    changed(PEOPLED, EFFECT),
)
VANISHES = Claim(
    "width-recency.the-bonus-shrinks-with-width",
    "The wider the window, the less there is to gain by standing later.",
    "+1.29 at W = 1, +0.20 at W = 256",
    "tab:width-recency",
    f"The mean bonus over W = {_SMALL} minus the bonus at W = {WIDER} is above {100 * POINT:g} point {_POOLED}. At W = {WIDEST} the "
    "bonus is 0 by construction, and so proves nothing.",
    changed(PEOPLED, EFFECT),
)


def fixed(width: int) -> Request:
    wide = None if width == WIDEST else f"trajectory:so*@{WIDEST}"
    return Request(f"trajectory:so*@{width}", budget=LATE, whole=True, k=10, at=wide)


def recency(width: int) -> Request:
    wide = None if width == WIDEST else f"trajectory:so*@{WIDEST}"
    return Request(f"trajectory:so*@{width}", budget=LATE, whole=True, k=10, among=wide)


def wanted(panel: Panel) -> list[Request]:
    both = [way(width) for way in (fixed, recency) for width in WIDTHS]
    return list(dict.fromkeys(both)) if of_domains([panel]) else []


class Arms(NamedTuple):
    """The gains of both strategies, one per width, and three means per width over resampled problems.

    The columns of `means` are delta-full of `fixed` at each width, then that of `recency`, then the second minus the first.
    """

    fixed: list[Gains]
    recency: list[Gains]
    means: Resampled

    def part(self, number_: int) -> tuple[Floats, Floats]:
        """The means and draws by width of fixed (0), recency (1) or the bonus (2)."""
        columns = slice(number_ * len(WIDTHS), (number_ + 1) * len(WIDTHS))
        return self.means.estimate[columns], self.means.draws[:, columns]


def _arms(panels: list[Panel], options: Options) -> Arms:
    def of(request: Request) -> Gains:
        return pooled(panels, lambda panel: gains(panel, request))

    held, latest = [of(fixed(width)) for width in WIDTHS], [of(recency(width)) for width in WIDTHS]
    full = np.column_stack([lift.full for lift in (*held, *latest)])
    table = np.concatenate([full, full[:, len(WIDTHS) :] - full[:, : len(WIDTHS)]], axis=1)
    return Arms(held, latest, resample(table, problems_of(panels), resamples=options.draws, seed=options.seed))


@study(
    13,
    "Is it the width of a window, or how late it stands?",
    where="tab:width-recency",
    requests=wanted,
    claims=(WIDTH, RECENCY, VANISHES),
    population=THINKING,
)
def width_recency(evidence: Evidence, options: Options) -> Findings:
    panels = of_domains(evidence.panels)
    arms = _arms(panels, options) if panels else None
    if arms is None or not np.isfinite(arms.means.draws).all():
        return Findings(notes=(f"Too few problems have two rollouts with a whole window of {WIDEST} tokens at `so`.",))
    depth = [[_depth(panels, way(width)) for width in WIDTHS] for way in (fixed, recency)]
    share = float(arms.fixed[-1].covered.mean())
    note = f"The subset in which a window of {WIDEST} tokens fits has {100 * share:.0f}% of the problems."
    return Findings((_table(arms, depth),), (_chart(arms, depth),), tuple(_decide(arms)), (note,))


def _decide(arms: Arms) -> list[ClaimDecision]:
    (held, held_draws), (bonus, bonus_draws) = arms.part(0), arms.part(2)
    small = [WIDTHS.index(width) for width in SMALL]
    wider = WIDTHS.index(WIDER)
    width = arms.means.quantity(held[-1] - held[0], held_draws[:, -1] - held_draws[:, 0])
    recent = arms.means.quantity(bonus[small].mean(), bonus_draws[:, small].mean(1))
    later = recent.minus(arms.means.quantity(bonus[wider], bonus_draws[:, wider]))
    every = ((WIDTH, width), (RECENCY, recent), (VANISHES, later))
    return [above(claim, quantity, unit="points", threshold=POINT) for claim, quantity in every]


def _depth(panels: list[Panel], request: Request) -> float:
    """The mean token at which windows begin."""
    return float(
        np.concatenate([read.start[read.located] for read in (panel.read(request) for panel in panels)]).mean()
    )


def _table(arms: Arms, depth: list[list[float]]) -> Table:
    rows = []
    for i, width in enumerate(WIDTHS):
        cells = [Cell(str(width))]
        for own in (arms.fixed[i], arms.recency[i]):
            cells += gain_cells(own.full, own.test())
        at = 2 * len(WIDTHS) + i
        cells.append(shown(float(arms.means.estimate[at]), "points", arms.means.interval(at)))
        rows.append(Row((*cells, *(shown(round(own[i], 1), "number") for own in depth)), "these pools"))
    for width, (one, z, other, other_z, bonus) in PAPER.items():
        cells = [Cell(str(width)), Cell(one / 100, "points"), Cell(z, "number"), Cell(other / 100, "points")]
        cells += [Cell(other_z, "number"), Cell(bonus / 100, "points")]
        rows.append(Row((*cells, *[missing("not printed")] * 2), "the paper"))
    columns = (*map(Column, ("W", "fixed", "z", "recency", "z, recency")), Column("bonus", "95% CI"))
    columns += (Column("begins at, fixed"), Column("begins at, recency"))
    note = f"delta-full on problems with two rollouts in which W = {WIDEST} fits; B = {LATE} here, 32,768 in the paper."
    return Table("width-recency", "Width with the anchor held, and recency", columns, tuple(rows), (note,), "source")


def _chart(arms: Arms, depth: list[list[float]]) -> Chart:
    def series(name: str, part: int) -> Series:
        estimates, draws = arms.part(part)
        low, high = intervals(100 * draws)
        return Series(name, list(WIDTHS), (100 * estimates).tolist(), low.tolist(), high.tolist())

    x = "window width W (tokens)"
    left = [series("fixed", 0), series("recency", 1)]
    right = [series("bonus", 2), Series("begins at", list(WIDTHS), depth[1], axis="right")]
    plots = (
        Plot("lines", "Two strategies", x, "delta-full (points)", series=left, logarithmic=True),
        Plot(
            "lines", "What standing later adds", x, "recency - fixed (points)", "token at which a window begins",
            right, lines=(Line(0, "no bonus"),), logarithmic=True,
        ),
    )  # fmt: skip
    return Chart("width-recency", "Is it the width of a window, or how late it stands?", plots)
