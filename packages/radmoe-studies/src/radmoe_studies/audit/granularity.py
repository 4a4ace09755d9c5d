"""Percentages that must be a whole number of problems.

A selector picks one rollout per problem, so its accuracy over n problems is k / n. Where the steps of k / n are wider
than the last printed place, a wrong figure shows: at n = 30 accuracies are 3.33% apart, and one figure in 33 is possible.
"""

from __future__ import annotations

from collections.abc import Iterator

from radmoe_studies.audit.check import Check, compare
from radmoe_studies.audit.paper import POOLS, Paper
from radmoe_studies.audit.spans import read, unit

# For each table: the columns that name a row, and those that are accuracies over its n problems.
BY_N = {
    "dc": (("pool", "group"), ("rad", "rad_dc")),
    "dc-fusion": (("pool", "group"), ("conf50", "rankfuse")),
    "per-model": (("pool", "model"), ("maj", "dens")),
    "wjja-main": (("mode",), ("ja", "wj")),
    "wjja-cat": (("mode", "category"), ("ja", "wj")),
}


def checks(paper: Paper) -> Iterator[Check]:
    for table, (names, columns) in BY_N.items():
        for row in paper.rows(table):
            for column in columns:
                yield from _whole(table, " ".join(row[k] for k in names), column, row[column], int(row["n"]))
    for row in paper.rows("main"):
        if row["method"] != "Avg@64":
            n = len(paper.family(row["family"])) * problems(paper, row["column"])
            yield from _whole("main", f"{row['family']} {row['method']}", row["column"], row["value"], n)
    for row in paper.rows("marker-only"):
        name = f"{row['family']} {row['variant']} {row['method']}"
        yield from _whole("marker-only", name, row["column"], row["value"], problems(paper, row["column"]))
    for row in paper.rows("swebench"):
        yield from _whole("swebench", row["model"], "mix_rad", row["mix_rad"], int(row["n_mix"]))
        yield from _whole("swebench", row["model"], "all_rad", row["all_rad"], 500)
    for row in paper.rows("layer-deciles"):
        yield from _whole("layer-deciles", row["decile"], "accuracy", row["accuracy"], int(paper.prose("decile_n")))
    for anchor in ("boundary", "delimiter"):  # at m = 64 the cohort is the whole pool: one pick per problem
        row = paper.row("rollout-scaling", anchor=anchor, m="64")
        for column in ("rad", "dc", "rad_dc", "maj", "oracle"):
            yield from _whole("rollout-scaling", f"{anchor} m=64", column, row[column], int(paper.prose(f"n_{anchor}")))


def problems(paper: Paper, column: str) -> int:
    """How many problems one data set has, or the five well-posed ones together for the Avg. column."""
    if column == "Avg":
        return sum(paper.columns("well-posed").values())
    return next(paper.columns(pool)[column] for pool in POOLS if column in paper.columns(pool))


def _whole(table: str, row: str, figure: str, published: str, n: int) -> Iterator[Check]:
    if not published or 100 / n <= unit(published):
        return  # no figure is printed, or any figure is possible
    k = round(read(published).value * n / 100)
    yield compare(table, row, figure, published, 100 * k / n, f"100 x {k} / {n}")
