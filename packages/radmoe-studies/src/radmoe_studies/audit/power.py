"""The power table of the kernel test: every cell follows from n and the discordant count."""

from __future__ import annotations

from collections.abc import Iterator

from radmoe.evaluation.stats import mcnemar_boundary, mcnemar_mde, mcnemar_power
from radmoe_studies.audit.check import Check, compare
from radmoe_studies.audit.paper import Paper
from radmoe_studies.audit.spans import Span, read

TABLE = "wjja-power"


def checks(paper: Paper) -> Iterator[Check]:
    for row in paper.rows(TABLE):
        scope = row["scope"]
        test = paper.row("wjja-main", mode=scope)
        n, b, c = int(test["n"]), int(test["b"]), int(test["c"])
        d = b + c
        yield compare(TABLE, scope, "n_disc", row["n_disc"], d, f"{b} + {c}")
        of = f"{d} of {n} discordant"
        mde, edge = mcnemar_mde(n, d), mcnemar_boundary(n, d)
        yield compare(TABLE, scope, "mde", row["mde"], 100 * mde, "", f"the gap of power 0.8, {of}")
        how, source = f"100 x {round(edge * n)} / {n}", f"the least |c - b| with p <= 0.05, {of}"
        yield compare(TABLE, scope, "boundary", row["boundary"], 100 * edge, how, source)
        for figure, gap in (("power_1pp", 0.01), ("power_05pp", 0.005)):
            yield compare(TABLE, scope, figure, row[figure], mcnemar_power(n, d, gap), "", f"exact power, {of}")
        yield compare(TABLE, scope, "observed", row["observed"], 100 * abs(c - b) / n, f"100 |{c} - {b}| / {n}")
    modes = [r["power_1pp"] for r in paper.rows(TABLE) if r["scope"] != "Pooled"]
    low, _, high = paper.prose("power_range").partition("..")
    for figure, published, pick in (("least", low, min), ("greatest", high, max)):
        extreme: Span = pick((read(p) for p in modes), key=lambda s: s.value)
        yield compare(
            TABLE, "modes", f"{figure} power at 1 pp", published, extreme.value, f"{figure} of {', '.join(modes)}"
        )
