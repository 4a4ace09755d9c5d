"""The pooled figures of captions, abstract and results: all ten configurations together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from radmoe_studies.audit.averages import SELECTORS, floor, right
from radmoe_studies.audit.check import Check, compare
from radmoe_studies.audit.paper import Paper
from radmoe_studies.audit.spans import Span, total


def checks(paper: Paper) -> Iterator[Check]:
    n, well = int(paper.prose("n_wp")), paper.columns("well-posed")
    main = {method: _main(paper, method, well) for method in SELECTORS}
    marker = {method: _marker(paper, method, well) for method in ("RAD", "RAD+DC")}
    for method, name in (("Cons@64", "cons_wp"), ("RAD", "rad_wp"), ("RAD+DC", "raddc_wp")):
        yield _percent(paper, "main", f"pooled {method}", "well-posed", name, main[method], n)
    for method, name in (("RAD", "rad_minus_cons"), ("RAD+DC", "raddc_minus_cons")):
        yield _gap(paper, "main", f"pooled {method}", "less Cons@64", name, main[method], main["Cons@64"], n)
    for method, name in (("RAD", "marker_rad_wp"), ("RAD+DC", "marker_raddc_wp")):
        yield _percent(paper, "marker-only", f"pooled {method}", "well-posed", name, marker[method], n)
        name = "marker_to_16"
        yield _gap(paper, "marker-only", f"pooled {method}", "@16 adds", name, main[method], marker[method], n)

    score = {c: (_main(paper, "RAD", [c]).value, _main(paper, "Cons@64", [c]).value) for c in well}
    how = "RAD:Cons@64 right, " + ", ".join(f"{c} {a:g}:{b:g}" for c, (a, b) in score.items())
    won = sum(a > b for a, b in score.values())
    yield compare("main", "pooled RAD", "datasets won", paper.prose("datasets_won"), won, f"{how}; RAD ahead")

    floors = total(floor(paper, c, d) * k for c in paper.configs for d, k in well.items())
    printed, how = paper.prose("marker_floor_wp"), f"{floors.value:.2f} / {n}"
    yield compare("marker-only", "pooled Avg@64", "well-posed", printed, floors / n, how, "floors weighted by problems")
    n, code = int(paper.prose("n_code")), _marker(paper, "RAD", ["Code"])
    yield _percent(paper, "marker-only", "pooled RAD", "code", "marker_rad_code", code, n)
    base = total(floor(paper, c, "Code") for c in paper.configs) / len(paper.configs)
    printed, how = paper.prose("marker_rad_code_gain"), f"{100 * code.value / n:.2f} - {base.value:.2f}"
    gain = code * (100 / n) - base
    yield compare("marker-only", "pooled RAD", "code gain", printed, gain, how, "the mean of ten floors")


def _percent(paper: Paper, table: str, row: str, figure: str, name: str, correct: Span, n: int) -> Check:
    source = {"main": "datasets of four families", "marker-only": "datasets of ten configurations"}[table]
    return compare(table, row, figure, paper.prose(name), correct * (100 / n), f"100 x {correct.value:g} / {n}", source)


def _gap(paper: Paper, table: str, row: str, figure: str, name: str, a: Span, b: Span, n: int) -> Check:
    how = f"100 ({a.value:g} - {b.value:g}) / {n}"
    return compare(table, row, figure, paper.prose(name), (a - b) * (100 / n), how)


def _main(paper: Paper, method: str, columns: Iterable[str]) -> Span:
    rows = [r for r in paper.rows("main", method=method) if r["column"] in columns]
    return total(right(paper, r, len(paper.family(r["family"]))) for r in rows)


def _marker(paper: Paper, method: str, columns: Iterable[str]) -> Span:
    return total(right(paper, r) for r in paper.rows("marker-only", method=method) if r["column"] in columns)
