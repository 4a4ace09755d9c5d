"""Accuracy tables: methods by data sets (Table 1), the strict readout, and every other method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from radmoe.evaluation.cohort import METHODS
from radmoe.evaluation.cohort.families import WELL_POSED
from radmoe.evaluation.cohort.registry import READS
from radmoe.evaluation.scores import GROUPINGS, Collection, Draws, Scores
from radmoe.evaluation.table import Cell, Column, Row, Table, missing

MAIN = ("average", "majority", "majority-split", "deepconf", "rad", "rad+dc")
STRICT = ("average", "strict", "strict+dc")
POOLED = "all"
CI = "95% CI"


def main_table(pools: Collection, draws: Draws) -> Table:
    """The paper's Table 1, and majority with its ties split."""
    return _accuracy("accuracy", f"Accuracy (%), gain over Avg@N; RAD reads {readouts(pools)}", MAIN, pools, draws)


def strict_table(pools: Collection, draws: Draws) -> Table | None:
    """Marker-only readouts: no row is conditioned on answer content. None where no pool has one."""
    names = list(dict.fromkeys(r.setting.strict for r in pools.records if r.setting.strict is not None))
    if not names:
        return None
    return _accuracy("strict", f"Strict, marker-only RAD (%): {', '.join(names)}", STRICT, pools, draws)


def other_table(pools: Collection, draws: Draws) -> Table:
    """Every other method of the registry, by what it reads; the oracle is last."""
    others = [method for method in METHODS.values() if method.name not in (*MAIN, *STRICT)]
    others.sort(key=lambda method: max(map(READS.index, method.reads)))
    names = ("average", *(method.name for method in others))
    return _accuracy("baselines", "Other methods (%), gain over Avg@N", names, pools, draws)


def readouts(pools: Collection) -> str:
    """The readouts that RAD uses on these pools."""
    return ", ".join(dict.fromkeys(r.setting.readout for r in pools.records))


def _accuracy(key: str, title: str, methods: Sequence[str], pools: Collection, draws: Draws) -> Table:
    together = pools.domain(None, WELL_POSED)
    well = list(dict.fromkeys(r.dataset for r in together.records)) if together is not None else []
    rest = [dataset for dataset in pools.datasets if dataset not in well]
    wanted: list[str | None] = [*well, *([None] if len(well) > 1 else []), *rest]  # None: the well-posed ones together

    def cut(group: str | None, dataset: str | None) -> Scores | None:
        return pools.domain(group, WELL_POSED) if dataset is None else pools.cell(group, dataset)

    columns = [Column("method"), Column("reads", text=True)]
    for dataset in wanted:
        sizes = {len(scores) for group in pools.groups if (scores := cut(group, dataset)) is not None}
        n = sizes.pop() if len(sizes) == 1 else None
        columns.append(Column(dataset or "Avg.", CI, n))
    rows, reasons = [], dict[str, None]()
    for group in [*pools.groups, *([None] if len(pools.groups) > 1 else [])]:
        parts = [cut(group, dataset) for dataset in wanted]
        whole = pools.scores(lambda r, group=group: group in (None, pools.group_of(r)))  # type: ignore[misc]
        assert whole is not None
        body = [[_cell(scores, method, draws, reasons) for scores in parts] for method in methods]
        for method, cells in zip(methods, mark_best(methods, body), strict=True):
            names = Cell(whole.label(method)), Cell(", ".join(METHODS[method].reads))
            rows.append(Row((*names, *cells), POOLED if group is None else group))
    notes = []
    if len(well) > 1:
        notes.append(f"Avg. weighs every problem of the well-posed sets alike: {', '.join(well)}.")
    notes += [f"--: {reason}." for reason in reasons]
    notes += [f"{r.dataset}: {note}." for r in pools.records for note in r.notes]
    return Table(key, title, tuple(columns), tuple(rows), tuple(dict.fromkeys(notes)), GROUPINGS[pools.by])


def unmeasured(scores: Scores | None, method: str, reasons: dict[str, None]) -> Cell | None:
    """The empty cell of a method that has no result there, whose reason joins `reasons`; None where it has one."""
    if scores is None:
        return missing("not measured")
    reason = scores.why_not(method)
    if reason is None:
        return None
    reasons[reason] = None
    return missing(reason)


def _cell(scores: Scores | None, method: str, draws: Draws, reasons: dict[str, None]) -> Cell:
    if (empty := unmeasured(scores, method, reasons)) is not None:
        return empty
    assert scores is not None
    hits = scores.hits(method)
    gain = None if method == "average" else float(hits.mean() - scores.full.mean())
    return Cell(float(hits.mean()), "percent", gain=gain, n=len(hits), **scores.bounds(hits, draws))


def mark_best(methods: Sequence[str], body: list[list[Cell]]) -> list[list[Cell]]:
    """Mark the best method of each column; the average and what reads the truth do not compete."""
    fair = [i for i, name in enumerate(methods) if name != "average" and "truth" not in METHODS[name].reads]
    for at in range(len(body[0])):
        values = [float(v) for i in fair if isinstance(v := body[i][at].value, int | float)]
        for i in fair:
            if len(values) > 1 and body[i][at].value == max(values) > min(values):
                body[i][at] = replace(body[i][at], best=True)
    return body
