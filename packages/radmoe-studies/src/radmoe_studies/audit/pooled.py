"""Rows that pool other rows: counts, discordant counts and accuracies must add up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from radmoe_studies.audit.check import Check, compare, terms
from radmoe_studies.audit.mcnemar import PAIRED
from radmoe_studies.audit.paper import POOLS, Paper, Row
from radmoe_studies.audit.spans import count, plus, read, total, weighted

EFFORTS = ("Low", "Medium", "High")


def checks(paper: Paper) -> Iterator[Check]:
    for table in ("dc", "dc-fusion"):
        yield from _groups(paper, table)
    yield from _per_model(paper)
    yield from _kernels(paper)
    yield from _domains(paper)


def _groups(paper: Paper, table: str) -> Iterator[Check]:
    """The two sizes of gpt-oss make the pooled efforts; math and GPQA make the well-posed pool."""
    first, second, *only = PAIRED[table]
    for pool in POOLS:
        for effort in EFFORTS:
            parts = [paper.row(table, pool=pool, group=f"OSS-{size}-{effort}") for size in ("20B", "120B")]
            whole = paper.row(table, pool=pool, group=f"OSS-pooled-{effort}")
            yield from _sums(table, f"{pool} {whole['group']}", whole, parts, only, (first, second))
    for whole in paper.rows(table, pool="well-posed"):
        parts = [paper.row(table, pool=pool, group=whole["group"]) for pool in POOLS["well-posed"]]
        yield from _sums(table, f"well-posed {whole['group']}", whole, parts, only, (first, second))


def _sums(
    table: str, name: str, whole: Row, parts: Sequence[Row], numbers: Sequence[str], shares: Sequence[str]
) -> Iterator[Check]:
    """The counts of a pooled row are sums, and its accuracies are sums of right answers over the sum of n."""
    for column in ("n", *numbers):
        values = [int(p[column]) for p in parts]
        yield compare(table, name, column, whole[column], sum(values), " + ".join(map(str, values)))
    n = sum(int(p["n"]) for p in parts)
    for column in shares:
        if whole[column]:
            correct = [count(p[column], int(p["n"])) for p in parts]
            how = f"100 ({plus(correct)}) / {n}"
            yield compare(table, name, column, whole[column], total(correct) * (100 / n), how)


def _per_model(paper: Paper) -> Iterator[Check]:
    table = "per-model"
    for whole in paper.rows(table, pool="well-posed"):
        name = f"well-posed {whole['model']}"
        parts = [paper.row(table, pool=pool, model=whole["model"]) for pool in POOLS["well-posed"]]
        yield from _sums(table, name, whole, parts, (), ("maj", "dens"))
        sizes = [int(p["n"]) for p in parts]
        for column in ("avg_full", "avg_coh"):
            values = [p[column] for p in parts]
            how = f"({terms(sizes, values)}) / {sum(sizes)}"
            yield compare(table, name, column, whole[column], weighted([read(v) for v in values], sizes), how)
    for pool, name in (("well-posed", "eligible_wp"), ("code", "eligible_code")):
        sizes = [int(r["n"]) for r in paper.rows(table, pool=pool)]
        yield compare(table, f"{pool}, all models", "n", paper.prose(name), sum(sizes), " + ".join(map(str, sizes)))


def _kernels(paper: Paper) -> Iterator[Check]:
    """Three categories make an anchor mode, four modes make the pooled row."""
    for whole in paper.rows("wjja-main"):
        mode = whole["mode"]
        parts = (
            [r for r in paper.rows("wjja-main") if r is not whole]
            if mode == "Pooled"
            else paper.rows("wjja-cat", mode=mode)
        )
        yield from _sums("wjja-main", mode, whole, parts, ("b", "c"), ("ja", "wj"))


def _domains(paper: Paper) -> Iterator[Check]:
    """Check the lift of the whole pool against the lifts by domain, weighted by problems."""
    table = "rollout-scaling"
    for anchor in ("boundary", "delimiter"):
        n = [int(r["n"]) for r in paper.rows("rollout-domain", anchor=anchor, method="RAD")]
        whole = paper.row(table, anchor=anchor, m="64")
        source = "tab:rollout-domain"
        yield compare(table, anchor, "n", paper.prose(f"n_{anchor}"), sum(n), " + ".join(map(str, n)), source)
        for method, column in (("RAD", "rad"), ("DC", "dc"), ("RAD+DC", "rad_dc")):
            lifts = [r["lift"] for r in paper.rows("rollout-domain", anchor=anchor, method=method)]
            accuracy = weighted([read(x) for x in lifts], n) + read(whole["chance"])
            how = f"{whole['chance']} + ({terms(n, lifts)}) / {sum(n)}"
            yield compare(table, f"{anchor} m=64", column, whole[column], accuracy, how, source)
    rows = paper.rows("domain", quantity="boundary_full")
    n = [int(paper.row("wjja-cat", mode="boundary@16", category=r["domain"])["n"]) for r in rows]
    lifts = [r["value"] for r in rows]
    whole, how = paper.row("frontier", budget="32768", anchor="boundary"), f"({terms(n, lifts)}) / {sum(n)}"
    lift = weighted([read(x) for x in lifts], n)
    yield compare("frontier", "boundary 32768", "delta", whole["delta"], lift, how, "tab:domain, n of tab:wjja-cat")
