"""Study 31: which rows of routing select best, among how many neighbours, and with likelihood or without?

The paper reads sixteen tokens from where the answer opens. Here every readout is measured by how often its pick is right,
less how often a random rollout is. It reports and decides nothing: the presets `best` and `best+text` are chosen by such a table of
development problems and confirmed on others (docs/choosing.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.basins import densest
from radmoe_studies.evidence import Evidence, Floats, Ints, Panel, Read, Request
from radmoe_studies.fusions import fused_picks
from radmoe_studies.needs import LOGPROBS
from radmoe_studies.picks import highest, hits, majority, rate
from radmoe_studies.quantities import mean_cell, pooled, series
from radmoe_studies.report.figures import Chart, Line, Plot
from radmoe_studies.resample import Resampled

READOUTS = (
    "boundary@marker",
    "boundary@16",
    "delimiter@marker",
    "delimiter@16",
    "delimiter@span",
    "closing@-16",
    "closing@16",
    "all",
)
TEXT = (
    "boundary@marker",
    "boundary@16",
    "closing@-16",
    "all",
)  # a text opens at the boundary, and nothing follows its end
SHARES = (Fraction(5, 64), Fraction(10, 64), Fraction(20, 64))  # of the rollouts: how many neighbours count
SHOWN = SHARES[1]  # in the figure
SIZES = (8, 16, 32, 64)  # how many rollouts there could be
BY_SIZE = SHARES[2]  # the share of neighbours in the table by number of rollouts
NONE = "none"
WAYS = (NONE, "ranksum", "conf50")  # what likelihood does
DOMAINS = ("math", "science", "code", "text")
_LIKELIHOOD, _MAJORITY = "likelihood alone", "majority"


class Recipe(NamedTuple):
    """One way to select: which rows are read, k as a share of N, and whether likelihood joins the density."""

    readout: str
    share: Fraction
    fusion: str


def readouts(panel: Panel) -> tuple[str, ...]:
    return () if panel.domain not in DOMAINS else TEXT if panel.domain == "text" else READOUTS


def requests(panel: Panel) -> list[Request]:
    return [Request(readout) for readout in readouts(panel)] if "likelihood" in panel.scalars else []


def picks(panel: Panel, recipe: Recipe) -> Ints:
    """The pick of each problem [P], -1 where fewer than two rollouts are located."""
    request, k = Request(recipe.readout), max(1, int(recipe.share * panel.n))
    if recipe.fusion == NONE:
        read = panel.read(request)
        return densest(read.values, read.located, k)
    return fused_picks(panel, recipe.fusion, request, "likelihood", k)


def gain(panel: Panel, chosen: Floats) -> Floats:
    """What picks gain over a random rollout of their problem; where there is none, a random one stands in."""
    return np.where(np.isfinite(chosen), chosen - rate(panel), 0.0)


@study(
    31,
    "Which rows of routing select best, and does likelihood help?",
    where="not in the paper",
    requests=requests,
    needs=(LOGPROBS,),
)
def recipes(evidence: Evidence, options: Options) -> Findings:
    domains = {
        domain: own
        for domain in DOMAINS
        if (own := [panel for panel in evidence.panels if panel.domain == domain and requests(panel)])
    }
    rows: list[Row] = []
    fewer: list[Row] = []
    charts: list[Chart] = []
    for domain, panels in domains.items():
        columns = [Recipe(r, s, f) for r in readouts(panels[0]) for s in SHARES for f in WAYS]
        tables = {
            panel: np.column_stack([_alone(panel), *(gain(panel, hits(panel, picks(panel, one))) for one in columns)])
            for panel in panels
        }
        drawn = pooled(panels, tables, options)
        cells = {one: mean_cell(drawn, place + 2, "points") for place, one in enumerate(columns)}
        rows += _rows(domain, panels, cells, drawn)
        fewer += _fewer(domain, panels, options)
        charts.append(_chart(domain, readouts(panels[0]), cells, mean_cell(drawn, 0, "points")))
    heads = ("readout", "neighbours", "problems")
    titles = ("routing alone", "rank sum with likelihood", "in the likelier half")
    table = Table(
        "recipes",
        "What a pick gains over a random rollout",
        (*map(Column, heads), *(Column(title, "95% CI") for title in titles)),
        tuple(rows),
        (
            "All configurations together; a problem with all its configurations is one cluster. Neighbours: of 64 rollouts, and as "
            "large a share of fewer. In the likelier half: the densest of the half that is likelier by mean log-probability. "
            "Where fewer than two rollouts are located, a random one stands in and gains 0.",
        ),
        "kind",
    )
    return Findings((table, _by_size(fewer)), tuple(charts))


def first(panel: Panel, n: int) -> Panel:
    """A panel of the first n rollouts of every problem, with what this study reads of them."""
    own = {request: panel.read(request) for request in requests(panel)}
    reads = {request: Read(read.values[:, :n, :n], read.start[:, :n]) for request, read in own.items()}
    scalars = {name: values[:, :n] for name, values in panel.scalars.items()}
    marks = {problem: own.first(n) for problem, own in panel.marks.items()}
    lengths = panel.lengths[:, :n]
    return replace(panel, marks=marks, known={}, identity="", lengths=lengths, scalars=scalars, reads=reads)


def _fewer(domain: str, panels: Sequence[Panel], options: Options) -> list[Row]:
    """Per readout, and for likelihood alone, a row of gains by number of rollouts."""
    columns = [Recipe(readout, BY_SIZE, "ranksum") for readout in readouts(panels[0])]
    cells: list[list[Cell]] = []
    for size in SIZES:
        own = [first(panel, size) for panel in panels if panel.n >= size]
        if not own:
            cells.append([missing(f"no problem has {size} rollouts")] * (len(columns) + 1))
            continue
        tables = {
            panel: np.column_stack(
                [*(gain(panel, hits(panel, picks(panel, one))) for one in columns), _likeliest(panel)]
            )
            for panel in own
        }
        drawn = pooled(own, tables, options)
        cells.append([mean_cell(drawn, place, "points") for place in range(len(columns) + 1)])
    count = Cell(sum(map(len, panels)), "count")
    names = [*(one.readout for one in columns), _LIKELIHOOD]
    return [Row((Cell(name), count, *(row[place] for row in cells)), domain) for place, name in enumerate(names)]


def _by_size(rows: Sequence[Row]) -> Table:
    return Table(
        "recipes-sizes",
        "The same with fewer rollouts",
        (Column("readout"), Column("problems"), *(Column(f"N = {size}", "95% CI") for size in SIZES)),
        tuple(rows),
        (f"Rank sum with likelihood, {_of_64(BY_SIZE)} neighbours; the first N rollouts of every problem.",),
        "kind",
    )


def _alone(panel: Panel) -> Floats:
    """What likelihood and a majority gain alone [P, 2]; no majority where answers are not comparable."""
    vote = gain(panel, majority(panel)) if panel.domain in ("math", "science") else np.full(len(panel), np.nan)
    return np.column_stack([_likeliest(panel), vote])


def _likeliest(panel: Panel) -> Floats:
    return gain(panel, hits(panel, highest(panel.scalar("likelihood"))))


def _rows(domain: str, panels: Sequence[Panel], cells: dict[Recipe, Cell], drawn: Resampled | None) -> list[Row]:
    count = Cell(sum(map(len, panels)), "count")
    rows = []
    for readout in readouts(panels[0]):
        for share in SHARES:
            own = (cells[Recipe(readout, share, fusion)] for fusion in WAYS)
            rows.append(Row((Cell(readout), Cell(_of_64(share)), count, *own), domain))
    blank = Cell("")
    rows.append(Row((Cell(_LIKELIHOOD), blank, count, blank, mean_cell(drawn, 0, "points"), blank), domain))
    if domain in ("math", "science"):
        rows.append(Row((Cell(_MAJORITY), blank, count, mean_cell(drawn, 1, "points"), blank, blank), domain))
    return rows


def _chart(domain: str, names: Sequence[str], cells: dict[Recipe, Cell], likelihood: Cell) -> Chart:
    titles = {NONE: "routing alone", "ranksum": "with likelihood"}
    drawn = [
        series(title, names, [cells[Recipe(name, SHOWN, fusion)] for name in names], 100.0)
        for fusion, title in titles.items()
    ]
    lines = [Line(100 * likelihood.value, "likelihood alone")] if isinstance(likelihood.value, float) else []
    plot = Plot("bars", domain, y="points over a random rollout", series=drawn, lines=lines)
    return Chart(f"recipes-{domain}", "Which rows to read", (plot,), f"{_of_64(SHOWN)} rollouts count as neighbours.")


def _of_64(share: Fraction) -> str:
    return f"{int(64 * share)} of 64"
