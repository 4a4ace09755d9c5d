"""Lifts as sums and differences: the anchor's part, the selector's part, and their share of the headroom."""

from __future__ import annotations

from collections.abc import Iterator

from radmoe_studies.audit.check import Check, compare, term
from radmoe_studies.audit.paper import Paper
from radmoe_studies.audit.spans import count, read


def checks(paper: Paper) -> Iterator[Check]:
    yield from _per_model(paper)
    yield from _windows(paper)
    yield from _stars(paper)
    yield from _deciles(paper)


def difference(table: str, row: str, figure: str, published: str, a: str, b: str) -> Check:
    return compare(table, row, figure, published, read(a) - read(b), f"{term(a)} - {term(b)}")


def both_parts(table: str, row: str, figure: str, published: str, anchor: str, selector: str) -> Check:
    how = f"{term(anchor)} + {term(selector)}"
    return compare(table, row, figure, published, read(anchor) + read(selector), how)


def _per_model(paper: Paper) -> Iterator[Check]:
    table = "per-model"
    for row in paper.rows(table):
        name, n = f"{row['pool']} {row['model']}", int(row["n"])
        dens, full, coh = count(row["dens"], n) * (100 / n), row["avg_full"], row["avg_coh"]
        yield difference(table, name, "d_anchor", row["d_anchor"], coh, full)
        yield compare(table, name, "d_sel", row["d_sel"], dens - read(coh), f"{dens.value:.2f} - {coh}")
        yield both_parts(table, name, "d_full", row["d_full"], row["d_anchor"], row["d_sel"])
        yield compare(table, name, "d_full", row["d_full"], dens - read(full), f"{dens.value:.2f} - {full}")
        share = (dens - read(coh)) / (100 - read(coh)) * 100
        how = f"100 ({dens.value:.2f} - {coh}) / (100 - {coh})"
        yield compare(table, name, "headroom", row["headroom"], share, how)


def _windows(paper: Paper) -> Iterator[Check]:
    for row in paper.rows("width-recency"):
        yield difference("width-recency", f"W={row['window']}", "bonus", row["bonus"], row["recency"], row["fixed"])
    widest, best = paper.row("window-grid", budget="32768", window="512"), paper.prose("window_best")
    how = best.removeprefix("+")
    yield compare("window-grid", "B=32768 W=512", "delta", widest["delta"], read(best), how, "the text's")
    for domain in ("math", "science", "code"):
        anchor, sel, full = (
            paper.row("domain", domain=domain, quantity=f"boundary_{part}")["value"]
            for part in ("anchor", "sel", "full")
        )
        yield both_parts("domain", domain, "boundary_full", full, anchor, sel)


def _stars(paper: Paper) -> Iterator[Check]:
    for table in ("frontier", "domain"):
        tested = [r for r in paper.rows(table) if r["z"]]
        stars = sum(r["star"] == "1" for r in tested)
        reach = sum(abs(float(r["z"])) >= 1.96 for r in tested)
        yield compare(table, "all", "stars", str(stars), reach, "", f"so many of {len(tested)} |z| reach 1.96")


def _deciles(paper: Paper) -> Iterator[Check]:
    n = int(paper.prose("decile_n"))
    full = count(paper.row("layer-deciles", decile="full")["accuracy"], n)
    for row in paper.rows("layer-deciles"):
        if row["delta"]:
            correct = count(row["accuracy"], n)
            how = f"100 ({full.value:g} - {correct.value:g}) / {n}"
            yield compare("layer-deciles", row["decile"], "delta", row["delta"], (full - correct) * (100 / n), how)
