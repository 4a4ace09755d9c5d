"""Families of tests: Holm columns, which tests survive them, and Cochran's Q."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scipy.special import chdtrc

from radmoe.evaluation.stats import holm, mcnemar_exact
from radmoe_studies.audit.check import Check, compare
from radmoe_studies.audit.paper import Paper
from radmoe_studies.audit.spans import Span, read


def checks(paper: Paper) -> Iterator[Check]:
    yield from _kernels(paper)
    yield from _deciles(paper)
    yield from _fusion(paper)


def _kernels(paper: Paper) -> Iterator[Check]:
    modes = [r for r in paper.rows("wjja-main") if r["holm"]]
    p = [Span.exact(mcnemar_exact(int(r["b"]), int(r["c"]))) for r in modes]
    for row, adjusted, how in zip(modes, _holm(p), _steps(p), strict=True):
        yield compare("wjja-main", row["mode"], "holm", row["holm"], adjusted, how)


def _deciles(paper: Paper) -> Iterator[Check]:
    table, rows = "layer-deciles", [r for r in paper.rows("layer-deciles") if r["p"]]
    p = [read(r["p"]) for r in rows]
    adjusted = _holm(p)
    for row, adjust, how in zip(rows, adjusted, _steps(p), strict=True):
        yield compare(table, row["decile"], "holm", row["holm"], adjust, how)
    survive, source = sum(a.value < 0.05 for a in adjusted), f"so many of {len(rows)} adjusted p are below 0.05"
    yield compare(table, "all", "survive Holm", paper.prose("decile_survive"), survive, "", source)
    q, df = paper.prose("cochran_q"), int(paper.prose("cochran_df"))
    tail = read(q).through(lambda x: float(chdtrc(df, x)))
    yield compare(table, "all", "Cochran p", paper.prose("cochran_p"), tail, f"P(chi2 > {q})", f"df = {df}")
    yield compare(table, "all", "Cochran df", paper.prose("cochran_df"), len(rows) - 1, f"{len(rows)} - 1")


def _fusion(paper: Paper) -> Iterator[Check]:
    """The caption of tab:dc: one math or well-posed cell below 0.05, none after Holm."""
    cells = [r for r in paper.rows("dc") if r["pool"] in ("math", "well-posed")]
    raw = [mcnemar_exact(int(r["rad_only"]), int(r["dc_only"])) for r in cells]
    name, adjusted = "math and well-posed", holm(raw)
    yield compare("dc", name, "least p", paper.prose("dc_nominal_p"), min(raw), "", f"least of {len(raw)} McNemar p")
    below, source = sum(p < 0.05 for p in raw), f"so many of {len(raw)} McNemar p are below 0.05"
    yield compare("dc", name, "below 0.05", paper.prose("dc_nominal"), below, "", source)
    survive, source = int((adjusted < 0.05).sum()), f"so many after Holm; the least is {adjusted.min():.2f}"
    yield compare("dc", name, "survive Holm", paper.prose("dc_survive"), survive, "", source)


def _holm(p: Sequence[Span]) -> list[Span]:
    """Holm's adjustment rises with every p, so the ends of the spans give its ends."""
    ends = zip(*(holm([getattr(x, end) for x in p]) for end in ("value", "low", "high")), strict=True)
    return [Span(*map(float, triple)) for triple in ends]


def _steps(p: Sequence[Span]) -> list[str]:
    """The arithmetic of each adjusted p: its own step, or a larger one before it."""
    order = sorted(range(len(p)), key=lambda i: p[i].value)
    how, worst, source = [""] * len(p), 0.0, ""
    for rank, i in enumerate(order):
        step = (len(p) - rank) * p[i].value
        if step >= worst:
            worst, source = step, f"{len(p) - rank} x {p[i].value:.3f}"
        how[i] = f"min(1, {source})"
    return how
