"""Paired tests: exact McNemar p and accuracy differences, from the discordant counts."""

from __future__ import annotations

from collections.abc import Iterator

from radmoe.evaluation.stats import mcnemar_exact
from radmoe_studies.audit.check import Check, compare
from radmoe_studies.audit.paper import Paper
from radmoe_studies.audit.spans import count

# For each table: the columns of the first and the second selector, and of how often only that one is right.
PAIRED = {
    "dc": ("rad", "rad_dc", "rad_only", "dc_only"),
    "dc-fusion": ("conf50", "rankfuse", "c50_only", "rf_only"),
    "wjja-main": ("ja", "wj", "b", "c"),
    "wjja-cat": ("ja", "wj", "b", "c"),
}


def checks(paper: Paper) -> Iterator[Check]:
    for table, (first, second, only_first, only_second) in PAIRED.items():
        for row in paper.rows(table):
            name = " ".join(row[k] for k in ("pool", "group", "mode", "category") if k in row)
            n, b, c = int(row["n"]), int(row[only_first]), int(row[only_second])
            if "p" in row:
                p, few = mcnemar_exact(b, c), min(b, c)
                how, source = f"min(1, 2 P(X <= {few}))", f"X ~ Bin({b + c}, 1/2)"
                yield compare(table, name, "p", row["p"], p, how, source)
            yield compare(table, name, "delta", row["delta"], 100 * (c - b) / n, f"100 ({c} - {b}) / {n}")
            right = count(row[first], n)
            how, source = f"100 ({right.value:.6g} - {b} + {c}) / {n}", f"{row[first]}% being {right.value:.6g} of {n}"
            yield compare(table, name, second, row[second], (right + (c - b)) * (100 / n), how, source)
    row = paper.row("wjja-cat", mode="delimiter@marker", category="math")
    b, c = int(row["b"]), int(row["c"])
    how = f"McNemar({b}, {c})"
    yield compare("wjja-cat", "delimiter@marker math", "p", paper.prose("cat_p"), mcnemar_exact(b, c), how)
