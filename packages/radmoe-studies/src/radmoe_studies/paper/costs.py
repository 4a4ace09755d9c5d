"""Study 29: what do capture and selection cost? (Sec. "Computational overhead"; App. "routing-capture".) It only reports.

Bytes are counted in the files of the pools. Selection is timed on this machine, one thread, on a few problems of each pool,
so its numbers differ from run to run. A pool does not show what capture adds to generation.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe.pool import Pool, schema
from radmoe.selection.kernels import binary_jaccard, weighted_jaccard
from radmoe.selection.readout import read
from radmoe.selection.selector import choose
from radmoe_studies.base import Findings, Options, study
from radmoe_studies.evidence import Evidence, Panel
from radmoe_studies.quantities import number
from radmoe_studies.report.figures import Chart, Plot, Series

SAMPLE = 20  # problems of a panel that are timed
PAPER_MS = "tens of ms"


class Times(NamedTuple):
    """Median milliseconds for a problem: reading its windows, comparing them, and choosing."""

    reading: float
    comparing: float
    choosing: float
    problems: int
    rollouts: float  # of a problem, on average

    @property
    def total(self) -> float:
        return self.reading + self.comparing + self.choosing


def timed(panel: Panel, sample: int = SAMPLE) -> Times:
    """Select on a few problems spread over the panel; the first is run twice, so that compiled code is ready."""
    assert panel.pool is not None
    places = np.unique(np.linspace(0, len(panel) - 1, min(sample, len(panel))).astype(int))
    jaccard = binary_jaccard if panel.setting.kernel == "binary" else weighted_jaccard
    rows = []
    for place in [places[0], *places]:
        began = time.perf_counter()
        group = panel.pool.group(panel.problem_ids[place])
        reading = read(group, panel.setting.readout, panel.setting.kind, binary=panel.setting.kernel == "binary")
        was_read = time.perf_counter()
        S = jaccard(reading.Z)
        compared = time.perf_counter()
        if reading.located.any():
            choose(group, S, reading, panel.setting)
        chosen = time.perf_counter()
        rows.append((was_read - began, compared - was_read, chosen - compared, len(group)))
    table = np.array(rows)[1:]
    reading_ms, comparing_ms, choosing_ms = (1000 * np.median(table[:, :3], axis=0)).tolist()
    return Times(reading_ms, comparing_ms, choosing_ms, len(places), float(table[:, 3].mean()))


class Bytes(NamedTuple):
    """Bytes per token: all columns on disk, routing on disk, routing before compression, and the compression of ids and weights."""

    stored: float
    routing: float
    raw: float
    ids: float
    weights: float


def stored(pool: Pool) -> Bytes:
    """What a pool stores per token; NaN where it has no such column."""
    tokens = pool.tokens or np.nan
    captured, _, routing = pool.routing_bytes()
    everything = sum(shard.bytes for shard in pool.shards.values())
    ids, weights = (_shrinks(pool, column.name) for column in (schema.EXPERT_IDS, schema.EXPERT_WEIGHTS))
    return Bytes(everything / tokens, routing / tokens, captured / tokens, ids, weights)


def _shrinks(pool: Pool, name: str) -> float:
    """How many bytes of a column one byte on disk holds."""
    readers = [
        (shard.columns[name], shard.meta["columns"][name]) for shard in pool.shards.values() if name in shard.columns
    ]
    on_disk = sum(entry["bytes"] for _, entry in readers)
    return sum(reader.row_bytes * entry["rows"] for reader, entry in readers) / on_disk if on_disk else float("nan")


@study(29, "What do capture and selection cost?", where="Sec. Computational overhead; App. routing-capture")
def costs(evidence: Evidence, options: Options) -> Findings:
    panels = [panel for panel in evidence.panels if panel.pool is not None]
    notes = [
        "Selection was timed on this machine, one thread; medians over problems. The paper: N=64, W=16, one CPU thread.",
        "The share that capture adds to generation (paper: about 7%) is not recorded in pools: benchmarks measure it.",
    ]
    if not panels:
        return Findings(notes=(*notes, "There are no pools to measure."))
    times = {panel: timed(panel, SAMPLE // 4 if options.quick else SAMPLE) for panel in panels}
    first = {panel.path: panel for panel in reversed(panels)}  # a pool of several kinds is several panels
    sizes = {
        f"{panel.configuration}, {panel.dataset}": (panel.pool, stored(panel.pool))
        for panel in reversed(first.values())
        if panel.pool is not None
    }
    return Findings((_bytes_table(sizes), _times_table(times)), (_chart(times),), notes=tuple(notes))


def _bytes_table(sizes: dict[str, tuple[Pool, Bytes]]) -> Table:
    titles = ("bytes per token", "of routing", "routing uncompressed", "ids shrink by", "weights shrink by")
    rows = [
        Row((Cell(name), Cell(pool.tokens, "count"), *(number(value, why="not kept") for value in sizes_)))
        for name, (pool, sizes_) in sizes.items()
    ]
    paper = Row((Cell("paper"), *[missing("not given")] * 5, missing("half of the ids' factor")))
    columns = tuple(map(Column, ("pool", "tokens", *titles)))
    notes = ("The paper: 1.2 TB for 310,400 rollouts, ids compress about twice as well as weights.",)
    return Table("costs-bytes", "Bytes per token", columns, (*rows, paper), notes)


def _times_table(times: dict[Panel, Times]) -> Table:
    rows = []
    for panel, own in times.items():
        cells = (own.reading, own.comparing, own.choosing, own.total)
        name = Cell(f"{panel.configuration}, {panel.dataset}")
        rows.append(Row((name, Cell(own.problems, "count"), number(own.rollouts), *(number(value) for value in cells))))
    paper = Row((Cell("paper"), missing(""), Cell(64.0, "number"), *[missing("not given")] * 3, missing(PAPER_MS)))
    columns = ("pool", "problems timed", "rollouts", "ms to read", "ms to compare", "ms to choose", "ms per problem")
    notes = (f"The paper: {PAPER_MS} per problem on one CPU thread.",)
    return Table("costs-selection", "Selection, ms per problem", tuple(map(Column, columns)), (*rows, paper), notes)


def _chart(times: dict[Panel, Times]) -> Chart:
    """Medians over the pools of each configuration."""
    names = list(dict.fromkeys(panel.configuration for panel in times))
    series = []
    for place, part in enumerate(("read", "compare", "choose")):
        values = [[own[place] for panel, own in times.items() if panel.configuration == name] for name in names]
        series.append(Series(part, names, [float(np.median(own)) for own in values]))
    return Chart("costs", "What does selection cost?", (Plot("bars", y="ms per problem", series=series),))
