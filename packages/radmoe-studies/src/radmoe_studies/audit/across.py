"""Figures that two tables print for the same thing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from radmoe_studies.audit.averages import floor
from radmoe_studies.audit.check import Check, compare, terms
from radmoe_studies.audit.granularity import problems
from radmoe_studies.audit.paper import POOLS, Config, Paper, Row
from radmoe_studies.audit.spans import Span, again, count, plus, total, weighted

CATEGORIES = {"math": "math", "science": "gpqa", "code": "code"}


def checks(paper: Paper) -> Iterator[Check]:
    yield from _selectors(paper)
    yield from _families(paper)
    yield from _kernels(paper)
    yield from _floors(paper)
    yield from _thinking(paper)


def _same(table: str, row: str, figure: str, published: str, other: str, where: str) -> Check:
    return compare(table, row, figure, published, again(published, other), "", where)


def _selectors(paper: Paper) -> Iterator[Check]:
    """RAD of tab:dc is dens of tab:per-model; RAD+DC of tab:dc is conf50 of tab:dc-fusion."""
    for config in paper.configs:
        for pool in POOLS:
            cell = paper.row("dc", pool=pool, group=config.group)
            model = paper.row("per-model", pool=pool, model=config.model)
            name = f"{pool} {config.group}"
            yield _same("dc", name, "n", cell["n"], model["n"], "tab:per-model")
            yield _same("dc", name, "rad", cell["rad"], model["dens"], "tab:per-model dens")
    for cell in paper.rows("dc"):
        fused = paper.row("dc-fusion", pool=cell["pool"], group=cell["group"])
        name = f"{cell['pool']} {cell['group']}"
        yield _same("dc-fusion", name, "n", fused["n"], cell["n"], "tab:dc")
        yield _same("dc-fusion", name, "conf50", fused["conf50"], cell["rad_dc"], "tab:dc RAD+DC")


def _families(paper: Paper) -> Iterator[Check]:
    """The families of tab:main follow from single models; a problem without two located rollouts counts as wrong."""
    sources = {"RAD": ("dc", "rad"), "RAD+DC": ("dc", "rad_dc"), "Cons@64": ("per-model", "maj")}
    for family in dict.fromkeys(c.family for c in paper.configs):
        configs = paper.family(family)
        for method, (table, column) in sources.items():
            for pool, heading in (("gpqa", "GPQA"), ("well-posed", "Avg"), ("code", "Code")):
                cells = [_cell(paper, table, c, pool) for c in configs]
                n = len(configs) * problems(paper, heading)
                if not cells[0][column] or (method == "Cons@64" and sum(int(c["n"]) for c in cells) < n):
                    continue  # a vote needs no anchor: it may be right where RAD abstains
                correct = [count(c[column], int(c["n"])) for c in cells]
                row = paper.row("main", family=family, method=method, column=heading)
                how, source = f"100 ({plus(correct)}) / {n}", f"tab:{table} {pool}"
                yield compare(
                    "main", f"{family} {method}", heading, row["value"], total(correct) * (100 / n), how, source
                )


def _cell(paper: Paper, table: str, config: Config, pool: str) -> Row:
    key = {"dc": {"group": config.group}, "per-model": {"model": config.model}}[table]
    return paper.row(table, pool=pool, **key)


def _kernels(paper: Paper) -> Iterator[Check]:
    """tab:wjja-cat pools eight models: delimiter@16 is tab:per-model, delimiter@marker is tab:marker-only."""
    thinkers = [c for c in paper.configs if c.thinks]
    for category, pool in CATEGORIES.items():
        cells = [_cell(paper, "per-model", c, pool) for c in thinkers]
        n = sum(int(c["n"]) for c in cells)
        for mode in ("delimiter@16", "delimiter@marker"):
            row = paper.row("wjja-cat", mode=mode, category=category)
            how = " + ".join(c["n"] for c in cells)
            yield compare("wjja-cat", f"{mode} {category}", "n", row["n"], n, how, "tab:per-model")
        correct = [count(c["dens"], int(c["n"])) for c in cells]
        yield _kernel(paper, "delimiter@16", category, correct, n, "tab:per-model")
        correct = [
            total(count(_marker(paper, c, d)["value"], size) for d, size in paper.columns(pool).items())
            for c in thinkers
        ]
        yield _kernel(paper, "delimiter@marker", category, correct, n, "tab:marker-only")
    whole, full = paper.row("wjja-main", mode="boundary@marker"), paper.row("layer-deciles", decile="full")
    where = "tab:wjja-main boundary@marker"
    yield _same("layer-deciles", "full", "accuracy", full["accuracy"], whole["wj"], f"{where} WJ")
    yield _same("layer-deciles", "all", "n", paper.prose("decile_n"), whole["n"], f"{where} n")


def _kernel(paper: Paper, mode: str, category: str, correct: Sequence[Span], n: int, source: str) -> Check:
    row = paper.row("wjja-cat", mode=mode, category=category)
    how = f"100 ({plus(correct)}) / {n}"
    return compare("wjja-cat", f"{mode} {category}", "wj", row["wj"], total(correct) * (100 / n), how, source)


def _marker(paper: Paper, config: Config, column: str) -> Row:
    match = {"family": config.family, "variant": config.variant, "column": column}
    return paper.row("marker-only", method="RAD", **match)


def _floors(paper: Paper) -> Iterator[Check]:
    """avg@full of tab:per-model is Avg@64 wherever no problem was left out."""
    for config in paper.configs:
        for pool in POOLS:
            cell, sets = _cell(paper, "per-model", config, pool), paper.columns(pool)
            if int(cell["n"]) == sum(sets.values()):
                floors = [floor(paper, config, d) for d in sets]
                sizes = list(sets.values())
                how = f"({terms(sizes, [f'{f.value:.2f}' for f in floors])}) / {cell['n']}"
                mean, source = weighted(floors, sizes), "floors of tab:marker-only"
                yield compare("per-model", f"{pool} {config.model}", "avg_full", cell["avg_full"], mean, how, source)


def _thinking(paper: Paper) -> Iterator[Check]:
    """tab:think-instruct repeats four models of tab:per-model."""
    table = "think-instruct"
    for row in paper.rows(table):
        family, variant = row["model"].rsplit(" ", 1)
        config = next(c for c in paper.configs if c.family.startswith(family) and variant.startswith(c.variant))
        math = _cell(paper, "per-model", config, "math")
        for column, source in (("avg64", "avg_full"), ("avg_coh", "avg_coh"), ("sel_math", "d_sel"), ("rad", "dens")):
            yield _same(table, row["model"], column, row[column], math[source], "tab:per-model math")
        for column, pool in (("sel_gpqa", "gpqa"), ("sel_wp", "well-posed")):
            cell = _cell(paper, "per-model", config, pool)
            yield _same(table, row["model"], column, row[column], cell["d_sel"], f"tab:per-model {pool}")
