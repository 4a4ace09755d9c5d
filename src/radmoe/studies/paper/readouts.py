"""Study 2: which place in a rollout says what it will answer? (Fig. "evidence", left.)

Purity is the share of nearest neighbours that give the same answer, corrected for chance. All readouts are compared on one
cohort: the rollouts with an answer and a delimiter window.
"""

from __future__ import annotations

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe.studies.base import Findings, Options, study
from radmoe.studies.charts import Chart, Line, Plot, Series
from radmoe.studies.decision import Claim, above, all_of, within
from radmoe.studies.evidence import Bools, Evidence, Floats, Panel, Request
from radmoe.studies.needs import VOTES
from radmoe.studies.pooling import problems_of
from radmoe.studies.purity import knn_purity
from radmoe.studies.resample import Resampled, resample

RAND, ONE, PRE, MARKER, WINDOW = (
    Request("rand@16"),
    Request("rand-one-loc@16"),
    Request("pre-delim@16"),
    Request("delimiter@marker"),
    Request("delimiter@16"),
)
READOUTS = (RAND, ONE, PRE, MARKER, WINDOW)
NEAR = 0.10  # purity that counts as "near 0"

CHANCE = Claim(
    "readouts.random-is-near-chance",
    "Routing at random positions says next to nothing about the answer.",
    "near 0",
    "Fig. evidence, left",
    f"The mean purity (K=1) of rand@16 over problems, all configurations pooled, lies within {NEAR} of 0: two one-sided "
    "tests on the bootstrap over problems.",
)
ORDER = Claim(
    "readouts.marker-then-window",
    "The delimiter's own tokens say more than random positions, and the window from it on says most.",
    ".86 / .59 / .54 at @16",
    "Fig. evidence, left",
    "Two differences of mean purity, delimiter@marker - rand@16 and delimiter@16 - delimiter@marker, are both above 0: "
    "one-sided on the bootstrap over problems, the weaker of the two decides.",
)


def wanted(panel: Panel) -> tuple[Request, ...]:
    return READOUTS if panel.domain in ("math", "science") else ()


def cohort(panel: Panel) -> Bools:
    """The rollouts that every readout is judged on: answered, and with a delimiter window [P, N]."""
    return panel.answered & panel.read(WINDOW).located


def purities(panel: Panel, request: Request, mask: Bools, k: int = 1) -> Floats:
    """The purity of each problem [P] over the rollouts in the mask that the readout located; NaN where it has none."""
    read = panel.read(request)
    out = np.full(len(panel), np.nan)
    for row, (S, inside) in enumerate(zip(read.values, mask & read.located, strict=True)):
        answers = [str(answer) for answer in panel.answer[row, inside]]
        purity = knn_purity(np.ascontiguousarray(S[np.ix_(inside, inside)]), answers, k)
        out[row] = np.nan if purity is None else purity
    return out


@study(
    2,
    "readouts",
    "Where does routing say what the answer will be?",
    where="Fig. evidence, left",
    requests=wanted,
    claims=(CHANCE, ORDER),
    needs=(VOTES,),
)
def readouts(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in evidence.panels if wanted(panel)]
    tables = {panel: np.column_stack([purities(panel, r, cohort(panel)) for r in READOUTS]) for panel in panels}
    names = list(dict.fromkeys(panel.configuration for panel in panels))
    groups = {name: [panel for panel in panels if panel.configuration == name] for name in names}
    groups["all"] = panels
    results = {name: _pooled(own, tables, options) for name, own in groups.items()}
    pooled = results["all"]
    parts = [above(ORDER, *pooled.difference(3, 0), n=pooled.n, unit="purity")]
    parts.append(above(ORDER, *pooled.difference(4, 3), n=pooled.n, unit="purity"))
    chance = within(CHANCE, float(pooled.estimate[0]), pooled.draws[:, 0], n=pooled.n, unit="purity", margin=NEAR)
    return Findings(
        (_table(results),), (_chart(results),), (chance, all_of(ORDER, parts)), ("Purity: 0 is chance, 1 is perfect.",)
    )


def _pooled(panels: list[Panel], tables: dict[Panel, Floats], options: Options) -> Resampled:
    """Mean purities with problems as clusters: a problem that several configurations answered counts once."""
    rows = np.concatenate([tables[panel] for panel in panels])
    return resample(rows, problems_of(panels), resamples=options.draws, seed=options.seed)


def _table(results: dict[str, Resampled]) -> Table:
    columns = (Column("configuration"), Column("problems"), *(Column(r.readout, "95% CI") for r in READOUTS))
    rows = [
        Row(
            (
                Cell(name),
                Cell(result.n, "count"),
                *(Cell(float(result.estimate[i]), "number", *result.interval(i)) for i in range(len(READOUTS))),
            )
        )
        for name, result in results.items()
    ]
    return Table("readouts", "Purity of the nearest neighbour, by readout", columns, tuple(rows))


def _chart(results: dict[str, Resampled]) -> Chart:
    series = []
    for i, request in enumerate(READOUTS):
        intervals = [result.interval(i) for result in results.values()]
        series.append(
            Series(
                request.readout,
                list(results),
                [float(result.estimate[i]) for result in results.values()],
                [low for low, _ in intervals],
                [high for _, high in intervals],
            )
        )
    plot = Plot("bars", y="purity (0 chance, 1 perfect)", series=series, lines=(Line(0.0, "chance"),))
    return Chart("readouts", "Where does routing say what the answer will be?", (plot,))
