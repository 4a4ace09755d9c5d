"""Accuracy tables: methods by datasets (Table 1), the strict readout, and every other baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from radmoe.evaluation.records import METHODS
from radmoe.evaluation.scores import Collection, Draws, Scores, degenerate
from radmoe.evaluation.table import Cell, Column, Row, Table, missing

MAIN = ("average", "majority", "deepconf", "rad", "rad+dc")
STRICT = ("average", "strict", "strict+dc")
OTHERS = tuple(m for m in METHODS if m not in (*MAIN, *STRICT))
POOLED = "all"
CI = "95% CI"


def main_table(pools: Collection, draws: Draws) -> Table:
    """The paper's Table 1."""
    return _accuracy("accuracy", f"Accuracy (%), gain over Avg@N; RAD reads {_readouts(pools)}", MAIN, pools, draws)


def strict_table(pools: Collection, draws: Draws) -> Table | None:
    """Marker-only readouts: no row is conditioned on answer content. None where no pool has one."""
    names = list(dict.fromkeys(r.settings.strict for r in pools.records if r.settings.strict is not None))
    if not names:
        return None
    return _accuracy("strict", f"Strict, marker-only RAD (%): {', '.join(names)}", STRICT, pools, draws)


def other_table(pools: Collection, draws: Draws) -> Table:
    """DeepConf's other votes, picks that read no routing, and the oracle."""
    return _accuracy("baselines", "Other baselines (%), gain over Avg@N", ("average", *OTHERS), pools, draws)


def _readouts(pools: Collection) -> str:
    return ", ".join(dict.fromkeys(r.settings.readout for r in pools.records))


def _accuracy(key: str, title: str, methods: Sequence[str], pools: Collection, draws: Draws) -> Table:
    well = [d for d in pools.datasets if any(r.dataset == d and degenerate(r) is None for r in pools.records)]
    rest = [d for d in pools.datasets if d not in well]
    wanted: list[str | None] = [*well, *([None] if len(well) > 1 else []), *rest]
    shown = None if len(well) > 1 else (well or rest)[0]  # the column whose interval is printed
    columns = [Column("method")]
    for dataset in wanted:
        sizes = {len(scores) for m in pools.models if (scores := pools.cell(m, dataset)) is not None}
        n = sizes.pop() if len(sizes) == 1 else None
        columns.append(Column(dataset or "Avg.", CI if dataset == shown else "", n))
    rows, reasons = [], dict[str, None]()
    for model in [*pools.models, *([None] if len(pools.models) > 1 else [])]:
        cut = {dataset: pools.cell(model, dataset) for dataset in wanted}
        whole = pools.scores(lambda r, model=model: model in (None, r.model))  # type: ignore[misc]
        assert whole is not None
        body = [[_cell(cut[dataset], method, draws, reasons) for dataset in wanted] for method in methods]
        for method, cells in zip(methods, _best(methods, body), strict=True):
            name = Cell(whole.label(method))
            rows.append(Row((name, *cells), POOLED if model is None else model))
    notes = []
    if len(well) > 1:
        notes.append(f"Avg. weighs every problem of the well-posed sets alike: {', '.join(well)}.")
    notes += [f"--: {reason}." for reason in reasons]
    notes += [f"{r.dataset}: {note}." for r in pools.records for note in r.notes]
    return Table(key, title, tuple(columns), tuple(rows), tuple(dict.fromkeys(notes)))


def _cell(scores: Scores | None, method: str, draws: Draws, reasons: dict[str, None]) -> Cell:
    if scores is None:
        return missing("not measured")
    reason = scores.why_not(method)
    if reason is not None:
        reasons[reason] = None
        return missing(reason)
    hits = scores.hits(method)
    gain = None if method == "average" else float(hits.mean() - scores.full.mean())
    return Cell(float(hits.mean()), "percent", gain=gain, n=len(hits), **scores.bounds(hits, draws))


def _best(methods: Sequence[str], body: list[list[Cell]]) -> list[list[Cell]]:
    """Mark the best method of each column; the floor and the oracle do not compete."""
    fair = [i for i, method in enumerate(methods) if method not in ("average", "oracle")]
    for at in range(len(body[0])):
        values = [float(v) for i in fair if isinstance(v := body[i][at].value, int | float)]
        for i in fair:
            if len(values) > 1 and body[i][at].value == max(values) > min(values):
                body[i][at] = replace(body[i][at], best=True)
    return body
