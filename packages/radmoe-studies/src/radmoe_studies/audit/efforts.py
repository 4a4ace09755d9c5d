"""gpt-oss by reasoning effort, from the single models; and the contrasts between efforts."""

from __future__ import annotations

from collections.abc import Iterator

from radmoe_studies.audit.check import Check, compare, terms
from radmoe_studies.audit.decomposition import both_parts
from radmoe_studies.audit.paper import Paper, Row
from radmoe_studies.audit.spans import Span, count, read, total, weighted

TREND = "effort-trend"


def checks(paper: Paper) -> Iterator[Check]:
    for row in paper.rows("effort-decomp"):
        yield from _effort(paper, row)
        yield from _text(paper, row)
    for row in paper.rows(TREND):
        yield from _contrast(paper, row)
    yield from _intervals(paper)


class Pooled:
    """Both sizes of one effort on math, from tab:per-model."""

    def __init__(self, paper: Paper, effort: str) -> None:
        self.parts = [paper.row("per-model", pool="math", model=f"OSS-{size}-{effort}") for size in ("20B", "120B")]
        self.sizes = [int(p["n"]) for p in self.parts]
        self.n = sum(self.sizes)

    def mean(self, column: str) -> Span:
        return weighted([read(p[column]) for p in self.parts], self.sizes)

    def how(self, column: str) -> str:
        return f"({terms(self.sizes, [p[column] for p in self.parts])}) / {self.n}"

    def right(self, column: str) -> Span:
        return total(count(p[column], n) for p, n in zip(self.parts, self.sizes, strict=True))


def _effort(paper: Paper, row: Row) -> Iterator[Check]:
    table, effort, source = "effort-decomp", row["effort"], "tab:per-model"
    pooled = Pooled(paper, effort)
    n, full, coh = pooled.n, pooled.mean("avg_full"), pooled.mean("avg_coh")
    dens = pooled.right("dens") * (100 / n)
    yield compare(table, effort, "avg64", row["avg64"], full, pooled.how("avg_full"), source)
    for figure, column in (("cons64", "maj"), ("rad", "dens")):
        correct = pooled.right(column)
        yield compare(table, effort, figure, row[figure], correct * (100 / n), f"100 x {correct.value:g} / {n}", source)
    group = f"OSS-pooled-{effort}"
    fused = count(paper.row("dc", pool="math", group=group)["rad_dc"], n)
    how = f"100 x {fused.value:g} / {n}"
    yield compare(table, effort, "rad_dc", row["rad_dc"], fused * (100 / n), how, f"tab:dc {group}")
    how = f"{coh.value:.2f} - {full.value:.2f}"
    yield compare(table, effort, "d_anchor", row["d_anchor"], coh - full, how, f"means of {source}")
    how = f"{dens.value:.2f} - {coh.value:.2f}"
    yield compare(table, effort, "d_sel", row["d_sel"], dens - coh, how, f"mean of {source}")
    yield both_parts(table, effort, "d_full", row["d_full"], row["d_anchor"], row["d_sel"])
    how = f"{dens.value:.2f} - {row['avg64']}"
    yield compare(table, effort, "d_full", row["d_full"], dens - read(row["avg64"]), how)
    how = f"100 ({dens.value:.2f} - {coh.value:.2f}) / (100 - {coh.value:.2f})"
    yield compare(table, effort, "headroom", row["headroom"], (dens - coh) / (100 - coh) * 100, how)


def _text(paper: Paper, row: Row) -> Iterator[Check]:
    table, effort = "effort-decomp", row["effort"]
    pooled, key = Pooled(paper, effort), effort.lower()
    mean, how = pooled.mean("avg_coh"), pooled.how("avg_coh")
    yield compare(table, effort, "avg@coh in the text", paper.prose(f"coh_{key}"), mean, how, "tab:per-model")
    dens, maj = pooled.right("dens"), pooled.right("maj")
    how = f"100 ({dens.value:g} - {maj.value:g}) / {pooled.n}"
    gap = (dens - maj) * (100 / pooled.n)
    yield compare(table, effort, "RAD less majority", paper.prose(f"dens_maj_{key}"), gap, how)
    share = read(row["headroom"])
    yield compare(table, effort, "headroom in the text", paper.prose(f"headroom_{key}"), share, "", "the table's")
    yield compare(table, effort, "lift in the text", paper.prose("full_range"), read(row["d_full"]), "", "the table's")


def _contrast(paper: Paper, row: Row) -> Iterator[Check]:
    """Check the contrast of two efforts.

    Low less Medium follows, because every problem is on both sides. With High only the number of shared problems does.
    """
    name = f"{row['pool']} {row['method']} {row['size']} {row['contrast']}"
    efforts = row["contrast"].split("-")
    sides = [paper.row("per-model", pool=row["pool"], model=f"{row['size']}-{e}") for e in efforts]
    sizes, everything = [int(s["n"]) for s in sides], sum(paper.columns(row["pool"]).values())
    if max(sizes) == everything:
        how = f"min({sizes[0]}, {sizes[1]})"
        yield compare(TREND, name, "n", row["n"], min(sizes), how, "tab:per-model; the other side is complete")
    if min(sizes) == everything:
        column = {"RAD": "rad", "RAD+DC": "rad_dc"}[row["method"]]
        cells = [paper.row("dc", pool=row["pool"], group=f"{row['size']}-{e}") for e in efforts]
        picks = [count(c[column], everything) * (100 / everything) for c in cells]
        for figure, base in (("full", "avg_full"), ("sel", "avg_coh")):
            first, second = (p - read(s[base]) for p, s in zip(picks, sides, strict=True))
            how = " - ".join(f"({p.value:.2f} - {s[base]})" for p, s in zip(picks, sides, strict=True))
            yield compare(TREND, name, f"d_{figure}", row[figure], first - second, how)


def _intervals(paper: Paper) -> Iterator[Check]:
    """A percentile interval leaves out 0 exactly where the two-sided p of the same resamples is below 0.05."""
    rows = paper.rows(TREND)
    for figure, what in (("full", "full lift"), ("sel", "selector part")):
        clear = sum(float(r[f"{figure}_low"]) > 0 or float(r[f"{figure}_high"]) < 0 for r in rows)
        below = sum(float(r[f"{figure}_p"]) < 0.05 for r in rows)
        source = f"so many of {len(rows)} intervals leave out 0"
        yield compare(TREND, "all", f"{what}, p below 0.05", str(below), clear, "", source)
