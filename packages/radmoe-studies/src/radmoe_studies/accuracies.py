"""Accuracies of methods by data set, with the paper's averages beside them. An abstention is wrong everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.evidence import Panel
from radmoe_studies.paper_tables import percent, printed
from radmoe_studies.picks import of_method
from radmoe_studies.pooling import groups, of_pool, shown

POOLED = ("well-posed", "code")  # averages over the problems of all data sets of that kind
VOTES = ("majority-split", "majority", "deepconf")  # over exact answers: programs are near-unique
# The averages that the paper prints over its ten configurations; that of a random rollout on code is 65.3 - 4.0.
PRINTED: dict[str, tuple[float | None, float | None]] = {
    "average": (0.663, 0.613),
    "majority": (0.736, None),
    "rad": (0.739, None),
    "rad+dc": (0.742, None),
    "strict": (0.711, 0.653),
    "strict+dc": (0.728, None),
}


def mean_hits(panels: Sequence[Panel], method: str) -> float:
    """The mean accuracy of a method over the problems of some panels; NaN where one of them has no result of it."""
    return float(np.mean(np.concatenate([of_method(panel, method) for panel in panels]))) if panels else np.nan


def accuracy_table(
    key: str,
    title: str,
    panels: Sequence[Panel],
    sections: Mapping[str, Sequence[Panel]],
    methods: Mapping[str, str],
    label: str = "",
) -> Table:
    """Methods by data set, with averages; the gain is that over a random rollout in the same column.

    `label` names a table of the paper whose averages stand below ours.
    """
    datasets = list(groups(panels, lambda panel: panel.dataset))
    rows = []
    for section, own in [*sections.items(), ("all", panels)]:
        for method, name in methods.items():
            cells = [Cell(name)]
            for column in (*datasets, *POOLED):
                part = of_pool(own, column) if column in POOLED else [p for p in own if p.dataset == column]
                if method in VOTES and part and all(panel.domain not in ("math", "science") for panel in part):
                    cells.append(missing("programs and texts are near-unique: an exact vote means nothing"))
                    continue
                value, floor = mean_hits(part, method), mean_hits(part, "average")
                gain = None if method == "average" else value - floor
                cells.append(shown(value, "percent", gain=gain, note="not measured on all of these problems"))
            rows.append(Row(tuple(cells), section))
    lines = [(f"paper, {name}", method, values) for name, method, values in _averages(label)]
    lines += [("paper, all", methods[method], values) for method, values in PRINTED.items() if method in methods]
    for section, name, values in lines:
        blank = [missing("other data sets")] * len(datasets)
        rows.append(
            Row((Cell(name), *blank, *(shown(value, "percent", note="not printed") for value in values)), section)
        )
    heads = (*datasets, *(f"all {pool}" for pool in POOLED))  # a data set may be called as a pool
    columns = (Column("method"), *map(Column, heads))
    return Table(key, title, columns, tuple(rows), sections="comparison")


def _averages(label: str) -> list[tuple[str, str, tuple[float | None, ...]]]:
    """The paper's averages by family or configuration and method: on well-posed problems, and on code."""
    out: dict[tuple[str, str], dict[str, float | None]] = {}
    for row in printed(label) if label else ():
        name = f"{row['family']} {row.get('variant', '')}".strip()
        out.setdefault((name, row["method"]), {})[row["column"]] = percent(row["value"])
    return [(name, method, (own.get("Avg"), own.get("Code"))) for (name, method), own in out.items()]
