"""Study 2: which place in a rollout says what it will answer? (Fig. "evidence", left.)

Purity is the share of nearest neighbours that give the same answer, corrected for chance. All readouts are compared on one
cohort: the rollouts with an answer and a delimiter window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.basins import purities
from radmoe_studies.decision import (
    EFFECT,
    FEWEST,
    PEOPLED,
    PURITY,
    Claim,
    ClaimDecision,
    above,
    all_of,
    changed,
    within,
)
from radmoe_studies.evidence import Bools, Evidence, Floats, Panel, Request
from radmoe_studies.needs import VOTES
from radmoe_studies.pooling import THINKING
from radmoe_studies.quantities import ALL, by_configuration, mean_cell, mean_of, pooled, series, usable
from radmoe_studies.report.figures import Chart, Line, Plot
from radmoe_studies.resample import Resampled

RAND, ONE, PRE, MARKER, WINDOW = (
    Request("rand@16"),
    Request("rand-one-loc@16"),
    Request("pre-delim@16"),
    Request("delimiter@marker"),
    Request("delimiter@16"),
)
READOUTS = (RAND, ONE, PRE, MARKER, WINDOW)
NEAR = 0.10  # purity that counts as "near 0"

_OVER = f"over problems, {THINKING.name} pooled"
CHANCE = Claim(
    "readouts.random-is-near-chance",
    "Routing at random positions says next to nothing about the answer.",
    "the two random controls are at chance",
    "Fig. evidence, left",
    f"The mean purity (K=1) of rand@16, and of rand-one-loc@16, {_OVER}, lies within {NEAR} of 0: two one-sided tests on the "
    "bootstrap over problems, the weaker decides.",
    changed(PEOPLED, "the paper has two random controls, of which the rule read one"),
)
INFORMED = Claim(
    "readouts.marker-knows",
    "The delimiter's own tokens already say more about the answer than random positions.",
    "already carries nontrivial state",
    "Fig. evidence, left",
    f"The mean purity (K=1) of delimiter@marker minus that of rand@16, and minus that of rand-one-loc@16, {_OVER}, are both above "
    f"{PURITY}: one-sided on the bootstrap over problems, the weaker decides.",
    changed(PEOPLED, EFFECT, "it was one claim with that about the window, which is another"),
)
WINS = Claim(
    "readouts.window-wins",
    "The window from the delimiter on says more about the answer than any other of the five readouts.",
    "wins by a wide margin: .86 / .59 / .54 at @16",
    "Fig. evidence, left",
    f"The mean purity (K=1) of delimiter@16 minus that of rand@16, of rand-one-loc@16, of pre-delim@16 and of delimiter@marker, "
    f"{_OVER}, are all above {PURITY}: one-sided on the bootstrap over problems, the weakest decides.",
    changed(PEOPLED, EFFECT, "it left out pre-delim and rand-one-loc, two of the paper's five bars"),
)


def wanted(panel: Panel) -> tuple[Request, ...]:
    return READOUTS if panel.domain in ("math", "science") else ()


def cohort(panel: Panel) -> Bools:
    """The rollouts that every readout is judged on: answered, and with a delimiter window [P, N]."""
    return panel.answered & panel.read(WINDOW).located


def purity_table(panel: Panel) -> Floats:
    """The purity of each problem under every readout [P, readouts]; NaN where it is undefined."""
    reads = [panel.read(request) for request in READOUTS]
    return np.column_stack([purities(read.values, cohort(panel) & read.located, panel.answer) for read in reads])


@study(
    2,
    "Where does routing say what the answer will be?",
    where="Fig. evidence, left",
    needs=(VOTES,),
    population=THINKING,
    requests=wanted,
    claims=(CHANCE, INFORMED, WINS),
)
def readouts(evidence: Evidence, options: Options) -> Findings:
    tables = {panel: purity_table(panel) for panel in evidence.panels if wanted(panel)}
    results = {name: pooled(own, tables, options) for name, own in by_configuration(list(tables)).items()}
    notes = [
        "Purity: 0 is chance, 1 is perfect. All readouts are judged on the rollouts with an answer and a delimiter window."
    ]
    return Findings((_table(results),), (_chart(results),), tuple(_decisions(results[ALL], notes)), tuple(notes))


def _decisions(result: Resampled | None, notes: list[str]) -> Iterator[ClaimDecision]:
    """The decisions that all configurations together allow; a note where there are none."""
    columns = range(len(READOUTS))
    if result is None or any(mean_of(result, column) is None for column in columns):
        notes.append(f"Nothing is decided: fewer than {FEWEST} problems have two different answers.")
        return

    def more(claim: Claim, one: Request, than: Sequence[Request]) -> ClaimDecision:
        pairs = [(READOUTS.index(one), READOUTS.index(other)) for other in than]
        gaps = [gap for pair in pairs if (gap := usable(result.difference(*pair))) is not None]
        return all_of(claim, [above(claim, gap, unit="purity", threshold=PURITY) for gap in gaps])

    controls = [usable(result.mean(READOUTS.index(one))) for one in (RAND, ONE)]
    yield all_of(CHANCE, [within(CHANCE, q, unit="purity", margin=NEAR) for q in controls if q is not None])
    yield more(INFORMED, MARKER, (RAND, ONE))
    yield more(WINS, WINDOW, (RAND, ONE, PRE, MARKER))


def _table(results: Mapping[str, Resampled | None]) -> Table:
    columns = (Column("configuration"), Column("problems"), *(Column(r.readout, "95% CI") for r in READOUTS))
    rows = [
        Row(
            (
                Cell(name),
                Cell(0 if result is None else result.n, "count"),
                *(mean_cell(result, i, why="no problem has two different answers") for i in range(len(READOUTS))),
            )
        )
        for name, result in results.items()
    ]
    return Table("readouts", "Purity of the nearest neighbour, by readout", columns, tuple(rows))


def _chart(results: Mapping[str, Resampled | None]) -> Chart:
    shown = [
        series(request.readout, list(results), [mean_cell(result, i) for result in results.values()])
        for i, request in enumerate(READOUTS)
    ]
    plot = Plot("bars", y="purity (0 chance, 1 perfect)", series=shown, lines=(Line(0.0, "chance"),))
    return Chart("readouts", "Where does routing say what the answer will be?", (plot,))
