"""Checks of figures in captions and text that repeat a table, follow from one, or follow from each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from scipy.special import stdtr

from radmoe.evaluation.stats import mcnemar_exact, partial_correlation
from radmoe_studies.audit.check import Check, compare, term
from radmoe_studies.audit.paper import Paper
from radmoe_studies.audit.spans import Span, again, count, read

ROUTERS = {
    "rate_20b": "gpt-oss-20B",
    "rate_120b": "gpt-oss-120B",
    "rate_30b": "Qwen3-30B-A3B",
    "rate_80b": "Qwen3-Next-80B-A3B",
}


def checks(paper: Paper) -> Iterator[Check]:
    yield from _repeats(paper)
    yield from _counts(paper)
    yield from _kernels(paper)
    yield from _scaling(paper)
    yield from _thinking(paper)
    yield from _correlations(paper)


def _repeats(paper: Paper) -> Iterator[Check]:
    """Figures that the text takes from a table and rounds further; `repeats.csv` says which cell each one is."""
    for row in paper.rows("repeats"):
        claim = paper.row("prose", id=row["id"])
        match = dict(pair.split("=", 1) for pair in row["match"].split(";"))
        source = paper.row(row["table"], **match)[row["column"]]
        where = "the caption's" if row["table"] == "prose" else f"tab:{row['table']} {' '.join(match.values())}"
        how = source.removeprefix("+")
        yield compare(
            claim["table"], claim["where"], row["figure"], claim["value"], again(claim["value"], source), how, where
        )


def _counts(paper: Paper) -> Iterator[Check]:
    configs, pool = len(paper.configs), "main pool"
    well, code = (sum(paper.columns(p).values()) for p in ("well-posed", "code"))
    yield compare("prose", pool, "well-posed n", paper.prose("n_wp"), configs * well, f"{configs} x {well}")
    yield compare("prose", pool, "code n", paper.prose("n_code"), configs * code, f"{configs} x {code}")
    n, eligible = int(paper.prose("n_wp")), int(paper.prose("eligible_wp"))
    cells, how = n + int(paper.prose("n_code")), f"{n} + {paper.prose('n_code')}"
    yield compare("prose", pool, "cells", paper.prose("cells"), cells, how)
    yield compare("prose", pool, "runs", paper.prose("runs"), 64 * cells, f"64 x {cells}")
    thinkers = sum(c.thinks for c in paper.configs)
    yield compare("prose", pool, "thinking-class", paper.prose("think_models"), thinkers, "6 gpt-oss + 2 Qwen3")
    parts = [int(paper.prose(f"purity_{d}")) for d in ("aime25", "brumo25", "gpqa")]
    yield compare("prose", "purity", "cells", paper.prose("purity_cells"), sum(parts), " + ".join(map(str, parts)))
    seconds, tokens = paper.prose("capture_s"), paper.prose("capture_tokens")
    cost, how = read(seconds) * 1000 / read(tokens), f"1000 x {seconds} / {tokens}"
    yield compare("prose", "capture", "ms per token", paper.prose("capture_ms"), cost, how)
    share, how = 100 * (n - eligible) / n, f"100 ({n} - {eligible}) / {n}"
    yield compare("per-model", "well-posed", "RAD abstains", paper.prose("abstain_share"), share, how)
    for name, family in ROUTERS.items():
        row = paper.row("moe-arch", family=family)
        rate, how = 100 * int(row["top_k"]) / int(row["experts"]), f"100 x {row['top_k']} / {row['experts']}"
        yield compare("moe-arch", family, "activation", paper.prose(name), rate, how)
    sizes = [int(r["n"]) for r in paper.rows("diversity") if not r["p"]]
    for row in paper.rows("diversity"):
        if row["p"]:
            yield compare("diversity", row["model"], "n", row["n"], sum(sizes), " + ".join(map(str, sizes)))


def _kernels(paper: Paper) -> Iterator[Check]:
    table, row = "wjja-main", paper.row("wjja-main", mode="Pooled")
    n, b, c = int(row["n"]), int(row["b"]), int(row["c"])
    yield compare(table, "App. Kernel", "cells", paper.prose("kernel_cells"), n, "", "tab:wjja-main n")
    yield compare(table, "App. Kernel", "cells that differ", paper.prose("kernel_differ"), b + c, f"{b} + {c}")
    share, how = 100 * (b + c) / n, f"100 x {b + c} / {n}"
    yield compare(table, "App. Kernel", "share that differs", paper.prose("kernel_differ_share"), share, how)
    yield compare(table, "sec. Analysis", "p", paper.prose("kernel_p"), mcnemar_exact(b, c), f"McNemar({b}, {c})")
    gap, how = 100 * (c - b) / n, f"100 ({c} - {b}) / {n}"
    yield compare(table, "sec. Analysis", "gap", paper.prose("kernel_gap"), gap, how)
    gaps = {r["delta"]: 100 * (int(r["c"]) - int(r["b"])) / int(r["n"]) for r in paper.rows("wjja-cat")}
    largest, source = max(gaps.values(), key=abs), f"largest of {len(gaps)} (c - b) / n"
    yield compare("wjja-cat", "caption", "largest gap", paper.prose("cat_largest"), largest, "", source)


def _scaling(paper: Paper) -> Iterator[Check]:
    table = "rollout-scaling"
    for anchor in ("boundary", "delimiter"):
        n = int(paper.prose(f"n_{anchor}"))
        two, four, last = (paper.row(table, anchor=anchor, m=m) for m in ("2", "4", "64"))
        whole = {column: count(last[column], n) * (100 / n) for column in ("rad", "dc", "rad_dc", "maj")}
        for column, name in (("rad", "RAD"), ("dc", "DC"), ("rad_dc", "RAD+DC")):
            slope, how = whole[column] - read(two[column]), f"{whole[column].value:.3f} - {two[column]}"
            yield compare(table, anchor, f"{name} slope", paper.prose(f"slope_{anchor}_{column}"), slope, how)
        gap, how = whole["rad_dc"] - whole["maj"], f"{whole['rad_dc'].value:.3f} - {whole['maj'].value:.3f}"
        yield compare(table, anchor, "RAD+DC less maj", paper.prose(f"gap_{anchor}"), gap, how)
        for row, why in ((two, "half of two is one rollout"), (four, "half of four is a pair, which ties")):
            name, source = f"{anchor} m={row['m']}", f"DC: {why}"
            yield compare(table, name, "rad_dc", row["rad_dc"], again(row["rad_dc"], row["dc"]), "", source)
    for row in paper.rows("rollout-composition"):
        name, c = f"{row['anchor']} c={row['c']}", int(row["c"])
        yield compare("rollout-composition", name, "f", row["f"], c / 16, f"{c} / 16")


def _thinking(paper: Paper) -> Iterator[Check]:
    table = "think-instruct"
    for family in ("Qwen3-30B", "Qwen3-Next-80B"):
        think, instruct = (paper.row(table, model=f"{family} {v}") for v in ("Thinking", "Instruct"))
        gap, how = read(think["rad"]) - read(instruct["rad"]), f"{think['rad']} - {instruct['rad']}"
        yield compare(table, family, "pick accuracy gap", paper.prose("think_pick_gap"), gap, how, "RAD on math")
        ratio = read(instruct["sel_math"]) / read(think["sel_math"])
        how = f"{term(instruct['sel_math'])} / {term(think['sel_math'])}"
        yield compare(table, family, "times larger", paper.prose("think_ratio"), ratio, how)
        for row, name in ((think, "think_coh"), (instruct, "instruct_coh")):
            coh, source = read(row["avg_coh"]), "the table's"
            yield compare(table, row["model"], "avg@coh in the text", paper.prose(name), coh, "", source)
    gpqa, well = (sum(int(r["n"]) for r in paper.rows("per-model", pool=p)) for p in ("gpqa", "well-posed"))
    share, source = 100 * gpqa / well, "cohort-eligible n of tab:per-model"
    yield compare(table, "all", "share of GPQA", paper.prose("gpqa_share"), share, f"100 x {gpqa} / {well}", source)


def _correlations(paper: Paper) -> Iterator[Check]:
    """The p of each published r, and r over the ten models of tab:per-model."""
    for row in paper.rows("diversity"):
        if row["p"]:
            df = int(row["n"]) - (2 if row["model"].startswith("Pooled") else 3)
            ends = read(row["r"])
            p = Span(_tail(ends.value, df), *sorted((_tail(ends.low, df), _tail(ends.high, df))))
            yield compare("diversity", row["model"], "p", row["p"], p, f"2 P(t > t(r = {row['r']}))", f"df = {df}")
    rows = paper.rows("per-model", pool="well-posed")
    coh = [read(r["avg_coh"]) for r in rows]
    dens = [count(r["dens"], int(r["n"])) * (100 / int(r["n"])) for r in rows]
    for figure, name, less in (("selector part", "cross_r_sel", 1), ("dens", "cross_r_dens", 0)):
        r, source = _pearson(dens, coh, less), f"Pearson over {len(rows)} models, well-posed"
        yield compare("per-model", "ten models", f"r of avg@coh and {figure}", paper.prose(name), r, "", source)


def _pearson(dens: Sequence[Span], coh: Sequence[Span], less: int) -> Span:
    """The correlation of coh with dens - less * coh.

    Its span is of first order: one rounded input is moved at a time, and the changes are added.
    """

    def r(moved: int = -1, end: str = "value") -> float:
        x, y = ([getattr(s, end if i == moved else "value") for i, s in enumerate(side)] for side in (dens, coh))
        return partial_correlation([a - less * b for a, b in zip(x, y, strict=True)], y).r

    reach = sum(max(abs(r(i, end) - r()) for end in ("low", "high")) for i in range(len(coh)))
    return Span(r(), r() - reach, r() + reach)


def _tail(r: float, df: int) -> float:
    """The two-sided p of a correlation."""
    return float(2 * stdtr(df, -abs(r) * math.sqrt(df / (1 - r * r))))
