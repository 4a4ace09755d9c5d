"""Study 4: when does routing begin to tell the answer? (Fig. "exp23".)

Purity (K=8) at the r-th trajectory anchor before the delimiter, 16 tokens from it on, beside the delimiter's own window. The
paper labels a rollout by whether it gives the majority's answer; the answers themselves and who is right are shown too. A
window that begins before the delimiter may reach into the answer, so a control keeps only windows that end before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.basins import majority_label, neighbours, purities_of
from radmoe_studies.decision import EFFECT, Claim, ClaimDecision, above, all_of, changed
from radmoe_studies.evidence import Bools, Evidence, Floats, Panel, Request
from radmoe_studies.needs import MATH
from radmoe_studies.pooling import QWEN_THINKING
from radmoe_studies.quantities import mean_cell, mean_of, pooled, series
from radmoe_studies.report.figures import Chart, Line, Plot
from radmoe_studies.resample import Resampled

ANCHORS = {"so": "so", "paragraph break": ".\n\n"}
ROUNDS = (1, 2, 3, 4, 6, 8)
WIDTH, K = 16, 8
WINDOW = Request(f"delimiter@{WIDTH}")
LABELS = ("majority", "answer", "correct")
RISE = 0.01  # purity per round: five such rounds make the smallest difference of purity
JUMP = 0.10  # purity: less is a step like others, not a jump
ENOUGH = 2 * K  # rollouts: where all others are neighbours, purity is 0 whatever routing says
REACHED = 0.50  # of the problems with a first round must have a round, for it to count

_COHORT = (
    f"Purity (K={K}, label 'equals majority') over the rollouts with an answer and an r-th anchor before their delimiter, "
    f"of which a problem must have {ENOUGH}, math problems, {QWEN_THINKING.name} pooled; L is the largest r that half of the problems with a first round reach. "
)
_QWEN = "the paper's figure has the two Qwen Thinking checkpoints, and every other configuration was pooled with them"
SHAPE = Claim(
    "anchor-rounds.steep-then-plateau",
    "Purity rises steeply over the first rounds of an anchor and then stays on a plateau.",
    "early steep rise, middle plateau",
    "Fig. exp23",
    _COHORT
    + "With m the middle round up to L, over problems with a purity in rounds 1, m and L: the rise per round from 1 "
    f"to m is above {RISE}, and above that from m to L by {RISE}, for each anchor that reaches three rounds: one-sided on the "
    "bootstrap over problems, the weakest decides.",
    changed(_QWEN, EFFECT),
)
LEAP = Claim(
    "anchor-rounds.delimiter-jump",
    "Purity jumps at the delimiter window.",
    "delimiter-window jump, all panels",
    "Fig. exp23",
    _COHORT
    + f"delimiter@{WIDTH} over the same rollouts as round L, less round L, is above {JUMP}, for each anchor: one-sided on "
    "the bootstrap over problems, the weaker decides.",
    changed(_QWEN),
)


def request(anchor: str, r: int) -> Request:
    return Request(f"trajectory:{ANCHORS[anchor]}#{r}@{WIDTH}")


def requests(panel: Panel) -> tuple[Request, ...]:
    if panel.domain != "math":
        return ()
    return (WINDOW, *(request(anchor, r) for anchor in ANCHORS for r in ROUNDS))


class RoundTrace(NamedTuple):
    """Purities of one anchor in one panel at every round [P, R]; NaN where a problem has none.

    `delimiter` is the purity of the delimiter window over the same rollouts, `before` that of the windows that end
    before the delimiter.
    """

    rounds: dict[str, Floats]  # by label
    delimiter: Floats
    before: Floats


def trace(panel: Panel, anchor: str) -> RoundTrace:
    """The purity of an anchor at each of its rounds."""
    delimiter = panel.read(WINDOW)
    cohort = panel.answered & delimiter.located
    rounds: dict[str, list[Floats]] = {label: [] for label in LABELS}
    windows, before = [], []
    for r in ROUNDS:
        read = panel.read(request(anchor, r))
        inside = cohort & read.located & (read.start < delimiter.start)
        near = neighbours(read.values, inside, K)
        for label in LABELS:
            rounds[label].append(_purity(panel, near, inside, label))
        windows.append(_purity(panel, neighbours(delimiter.values, inside, K), inside, "majority"))
        early = inside & (read.start + WIDTH <= delimiter.start)
        before.append(_purity(panel, neighbours(read.values, early, K), early, "majority"))
    columns = {label: np.column_stack(own) for label, own in rounds.items()}
    return RoundTrace(columns, np.column_stack(windows), np.column_stack(before))


def _purity(panel: Panel, near: Bools, inside: Bools, label: str) -> Floats:
    labels = majority_label(panel, inside) if label == "majority" else panel.answer
    if label == "correct":
        labels = panel.correct.astype(np.int64)
    return np.where(inside.sum(1) >= ENOUGH, purities_of(near, inside, labels), np.nan)


def reached(traces: Sequence[RoundTrace]) -> int:
    """How many of the rounds count, from the first on."""
    known = np.isfinite(np.concatenate([one.rounds["majority"] for one in traces])).sum(0)
    enough = known >= max(REACHED * known[0], 1)
    return len(ROUNDS) if enough.all() else int(np.argmin(enough))


@study(
    4,
    "When does routing begin to tell the answer?",
    where="Fig. exp23",
    requests=requests,
    claims=(SHAPE, LEAP),
    needs=(MATH,),
    population=QWEN_THINKING,
)
def anchor_rounds(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in evidence.panels if requests(panel)]
    notes = [
        "The paper's figure has two Qwen thinking models and four math sets. It prints no numbers.",
        f"A round of a problem counts if {ENOUGH} rollouts reach it. The paper asks for two, but with {K + 1} or fewer all "
        "others are neighbours, and purity is 0 by construction.",
    ]
    traces = {anchor: {panel: trace(panel, anchor) for panel in panels} for anchor in ANCHORS}
    counts = {anchor: reached(list(own.values())) for anchor, own in traces.items()}
    shape, leap = [], []
    for anchor, own in traces.items():
        if (parts := _shape(panels, own, counts[anchor], options)) is None:
            notes.append(f"The anchor {anchor!r} reaches {counts[anchor]} rounds: its rise was not judged.")
        shape += parts or []
        leap += _leap(panels, own, counts[anchor], options)
    decisions = tuple(all_of(claim, parts) for claim, parts in ((SHAPE, shape), (LEAP, leap)) if parts)
    undecided = [claim.key for claim, parts in ((SHAPE, shape), (LEAP, leap)) if not parts]
    notes += [f"{key} was not decided: too few problems have anchors in several rounds." for key in undecided]
    results = {
        anchor: {name: pooled(panels, columns, options) for name, columns in _columns(own).items()}
        for anchor, own in traces.items()
    }
    whole = pooled(panels, {panel: _whole(panel) for panel in panels}, options)
    table = Table(
        "anchor-rounds",
        f"Purity (K={K}) at successive anchors",
        (Column("round"), Column("problems"), *(Column(name, "95% CI") for name in _columns(traces["so"]))),
        tuple(row for anchor, own in results.items() for row in _rows(anchor, own, traces[anchor])),
        sections="anchor",
    )
    return Findings((table,), (_chart(results, counts, whole),), decisions, tuple(notes))


def _columns(own: dict[Panel, RoundTrace]) -> dict[str, dict[Panel, Floats]]:
    """The columns of the table by their titles."""
    shown = {f"label {label}": {panel: one.rounds[label] for panel, one in own.items()} for label in LABELS}
    shown["windows that end before the delimiter"] = {panel: one.before for panel, one in own.items()}
    shown[f"delimiter@{WIDTH}, same rollouts"] = {panel: one.delimiter for panel, one in own.items()}
    return shown


def _whole(panel: Panel) -> Floats:
    """The purity of the delimiter window over all answered rollouts, by the majority and by answers [P, 2]."""
    read = panel.read(WINDOW)
    inside = panel.answered & read.located
    near = neighbours(read.values, inside, K)
    return np.column_stack([_purity(panel, near, inside, label) for label in ("majority", "answer")])


def _shape(
    panels: list[Panel], own: dict[Panel, RoundTrace], count: int, options: Options
) -> list[ClaimDecision] | None:
    """The early rise, and by how much it is steeper than the late one; None where fewer than three rounds count."""
    if count < 3:
        return None
    middle = count // 2
    steps = {panel: _rises(one.rounds["majority"], middle, count - 1) for panel, one in own.items()}
    result = pooled(panels, steps, options)
    parts = [mean_of(result, column) for column in (0, 1)]
    if any(q is None for q in parts):
        return None
    return [above(SHAPE, q, unit="purity per round", threshold=RISE) for q in parts if q is not None]


def _rises(values: Floats, middle: int, last: int) -> Floats:
    early = (values[:, middle] - values[:, 0]) / (ROUNDS[middle] - ROUNDS[0])
    late = (values[:, last] - values[:, middle]) / (ROUNDS[last] - ROUNDS[middle])
    return np.column_stack([np.where(np.isfinite(late), early, np.nan), early - late])


def _leap(panels: list[Panel], own: dict[Panel, RoundTrace], count: int, options: Options) -> list[ClaimDecision]:
    if count < 1:
        return []
    last = {panel: (one.delimiter - one.rounds["majority"])[:, count - 1 : count] for panel, one in own.items()}
    q = mean_of(pooled(panels, last, options), 0)
    return [] if q is None else [above(LEAP, q, unit="purity", threshold=JUMP)]


def _rows(anchor: str, own: dict[str, Resampled | None], traces: dict[Panel, RoundTrace]) -> list[Row]:
    known = np.isfinite(np.concatenate([one.rounds["majority"] for one in traces.values()])).sum(0)
    return [
        Row((Cell(str(r)), Cell(int(known[i]), "count"), *(mean_cell(result, i) for result in own.values())), anchor)
        for i, r in enumerate(ROUNDS)
    ]


def _chart(results: dict[str, dict[str, Resampled | None]], counts: dict[str, int], whole: Resampled | None) -> Chart:
    plots = []
    for column, (title, key) in enumerate(
        (("majority's answer or not", "label majority"), ("answers", "label answer"))
    ):
        lines = [
            series(anchor, ROUNDS[: counts[anchor]], [mean_cell(own[key], i) for i in range(counts[anchor])])
            for anchor, own in results.items()
        ]
        level = mean_cell(whole, column).value
        levels = (Line(level, f"delimiter@{WIDTH}"),) if isinstance(level, float) else ()
        plots.append(Plot("lines", title, "round of the anchor", f"purity (K={K})", series=lines, lines=levels))
    return Chart("anchor-rounds", "When does routing begin to tell the answer?", tuple(plots), shared_y=True)
