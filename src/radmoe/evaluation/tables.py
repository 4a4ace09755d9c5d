"""Where the accuracy comes from: coverage, lift decomposition, paired tests, random envelope, dense wrong basins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from radmoe.evaluation.accuracy import CI, POOLED
from radmoe.evaluation.cohort.families import DOMAINS, WELL_POSED
from radmoe.evaluation.comparisons import compare, corrected, words_of_test
from radmoe.evaluation.records import Records
from radmoe.evaluation.scores import GROUPINGS, Collection, Draws, Scores
from radmoe.evaluation.stats import poisson_binomial_test, random_envelope
from radmoe.evaluation.table import Cell, Column, Row, Table, missing

PAIRS = (
    ("rad", "majority"),
    ("rad+dc", "rad"),
    ("rad+dc", "majority"),
    ("rad", "likelihood"),
    ("rad", "text-overlap"),
)
LEVELS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


def _columns(*titles: str) -> tuple[Column, ...]:
    """A title with [name] behind it has its intervals shown under that name."""
    parts = (title.removesuffix("]").partition("[") for title in titles)
    return tuple(Column(title, name) for title, _, name in parts)


def _by_dataset(pools: Collection, cells: Callable[[Scores], tuple[Cell, ...]]) -> Iterator[Row]:
    """For each group a row per data set, then a row per domain that puts several of them together; then all groups."""
    for group in pools.groups:
        shown = []
        for name, dataset, scores in pools.cells():
            if name == group:
                shown.append(scores.records)
                yield Row((Cell(dataset), *cells(scores)), group)
        yield from _by_domain(pools, group, cells, shown)
    if len(pools.groups) > 1:
        yield from _by_domain(pools, None, cells, [])


def _by_domain(
    pools: Collection,
    group: str | None,
    cells: Callable[[Scores], tuple[Cell, ...]],
    shown: list[tuple[Records, ...]],
) -> Iterator[Row]:
    """A row per domain, unless a row before it is of the same pools."""
    for domain in DOMAINS:
        scores = pools.domain(group, domain)
        if scores is not None and scores.records not in shown:
            shown.append(scores.records)
            name = domain if domain == WELL_POSED else f"all {domain}"  # a data set may be called as its domain is
            yield Row((Cell(name), *cells(scores)), POOLED if group is None else group)


def coverage_table(pools: Collection) -> Table:
    """App. "Delimiter-anchor location": (a) all rollouts located, (b) some, (c) fewer than two: RAD abstains."""

    def cells(scores: Scores) -> tuple[Cell, ...]:
        located, rollouts = scores.count("located"), scores.count("rollouts")
        few = located < 2
        whole = (located == rollouts) & ~few
        cases = (whole, ~whole & ~few, few)
        shares = (Cell(int(case.sum()), "count", note=f"{case.mean():.1%} of the problems") for case in cases)
        coverage = Cell(float((located / rollouts).mean()), "percent")
        return (Cell(len(scores), "count"), Cell(scores.decidable, "count"), coverage, *shares)

    columns = _columns("dataset", "n", "mixed", "located %", "(a) all", "(b) some", "(c) < 2")
    notes = (
        "mixed: problems with right and wrong rollouts, the only ones a selector can change.",
        "Problems by how many rollouts have the anchor; under (c) RAD abstains, which counts as wrong.",
    )
    return Table("coverage", "Anchor coverage", columns, tuple(_by_dataset(pools, cells)), notes, GROUPINGS[pools.by])


def lift_table(pools: Collection, draws: Draws) -> Table:
    """App. "Per-model decomposition": what locating gains, and what selecting gains on top."""

    def cells(scores: Scores) -> tuple[Cell, ...]:
        on = scores.eligible
        n = int(on.sum())
        reason = scores.why_not("rad") or ("" if n else "RAD abstains on every problem")
        if reason:
            return (Cell(n, "count"), *[missing(reason)] * 8)
        rad = scores.hits("rad")
        full, cohort, dens = scores.full[on].mean(), scores.cohort[on].mean(), rad[on].mean()
        test = poisson_binomial_test(scores.cohort[on], rad[on])
        stars = next((stars for level, stars in LEVELS if test.p < level), "")
        bounds = scores.bounds(rad, draws, scores.cohort, on=on) | {"note": f"PB-exact p = {test.p:.3g}"}
        headroom = 1.0 - cohort
        share = missing("no headroom: every located rollout is right")
        if headroom > 0:
            share = Cell(float((dens - cohort) / headroom), "percent")
        vote = scores.why_not("majority")
        return (
            Cell(n, "count"),
            Cell(float(full), "percent"),
            Cell(float(cohort), "percent"),
            missing(vote) if vote else Cell(float(scores.hits("majority")[on].mean()), "percent"),
            Cell(float(dens), "percent"),
            Cell(float(cohort - full), "points"),
            Cell(float(dens - cohort), "points", stars=stars, **bounds),
            Cell(float(dens - full), "points"),
            share,
        )

    columns = _columns("dataset", "n", "avg@full", "avg@coh", "maj", "dens", "Δanc", "Δsel", "Δfull", "Δsel/HR")
    notes = (
        "n: problems with two located rollouts. Δanc = avg@coh - avg@full, Δsel = dens - avg@coh, Δfull = their sum.",
        "Δsel/HR: share of the headroom 1 - avg@coh. Stars: Poisson-binomial exact, one-sided, p < 0.05, 0.01, 0.001, each row "
        "by itself.",
    )
    return Table(
        "lift", "Where RAD's lift comes from", columns, tuple(_by_dataset(pools, cells)), notes, GROUPINGS[pools.by]
    )


def paired_table(pools: Collection, draws: Draws) -> Table:
    """Two methods on the same problems: bootstrap interval, exact test, Holm over all rows of the table."""
    compared: list[tuple[str, str, Cell]] = []  # section, label, difference
    reasons: dict[str, None] = {}
    for first, second in PAIRS:
        own: list[tuple[str, Scores]] = []
        for group, dataset, scores in pools.cells():
            reason = scores.why_not(second) or scores.why_not(first)
            if reason is None:
                own.append((f"{group} {dataset}" if len(pools.groups) > 1 else dataset, scores))
            else:
                reasons[reason] = None
        if len(own) > 1:
            own.append((POOLED, Scores([r for _, s in own for r in s.records])))
        for label, scores in own:
            section = f"{own[0][1].label(first)} - {own[0][1].label(second)}"
            compared.append((section, label, compare(scores, first, second, draws)))
    cells = corrected([cell for *_, cell in compared])
    rows = [
        Row((Cell(label), *_paired(cell)), section) for (section, label, _), cell in zip(compared, cells, strict=True)
    ]
    columns = _columns("problems", "n", f"gap[{CI}]", "first", "second", "p", "Holm p")
    notes = (
        f"gap in points; first, second: problems that only this one gets right; p: {words_of_test(cells)}; Holm over all "
        f"{len(rows)} rows.",
        *(f"left out: {reason}." for reason in reasons),
    )
    return Table("paired", "Paired on the same problems", columns, tuple(rows), notes, "comparison")


def _paired(cell: Cell) -> tuple[Cell, ...]:
    pair = cell.pair
    assert pair is not None
    counts = Cell(pair.first, "count"), Cell(pair.second, "count")
    return (Cell(cell.n, "count"), replace(cell, pair=None), *counts, Cell(pair.p, "p"), Cell(pair.adjusted, "p"))


def envelope_table(pools: Collection) -> Table:
    """App. "Exact random baselines": what one rollout at random gives, and how far above its upper line a method is."""

    def cells(scores: Scores) -> tuple[Cell, ...]:
        envelope = random_envelope(scores.full)
        out = [Cell(len(scores), "count"), Cell(envelope.mean, "percent", envelope.lower, envelope.upper)]
        for method in ("rad", "rad+dc"):
            reason = scores.why_not(method)
            if reason is not None:
                out += [missing(reason), missing(reason)]
                continue
            accuracy = float(scores.hits(method).mean())
            out += [Cell(accuracy, "percent"), Cell(accuracy - envelope.upper, "points")]
        return tuple(out)

    columns = _columns("dataset", "n", "random[envelope]", "RAD", "above", "RAD+DC", "above")
    notes = ("random: mean and 95% envelope of one rollout per problem; above: points over the envelope's upper end.",)
    return Table(
        "envelope",
        "Against random picks on these problems",
        columns,
        tuple(_by_dataset(pools, cells)),
        notes,
        GROUPINGS[pools.by],
    )


def basin_table(pools: Collection, draws: Draws) -> Table:
    """App. "Failure case studies", false consensus: the picked basin holds half of all rollouts, and is wrong."""

    def cells(scores: Scores) -> tuple[Cell, ...]:
        reason = scores.why_not("rad")
        if reason is not None:
            return (Cell(len(scores), "count"), *[missing(reason)] * 4)
        wrong = scores.hits("rad") == 0
        dense = (scores.count("basin") * 2 >= scores.count("rollouts")) & scores.eligible
        rate = (dense & wrong).astype(np.float64)
        return (
            Cell(len(scores), "count"),
            Cell(int(wrong.sum()), "count"),
            Cell(int(dense.sum()), "count"),
            Cell(int(rate.sum()), "count"),
            Cell(float(rate.mean()), "percent", **scores.bounds(rate, draws)),
        )

    columns = _columns("dataset", "n", "RAD wrong", "dense", "dense, wrong", f"rate %[{CI}]")
    notes = ("dense: RAD's basin holds at least half of the rollouts. Agreement is not truth: it can be wrong.",)
    return Table("basins", "Dense wrong basins", columns, tuple(_by_dataset(pools, cells)), notes, GROUPINGS[pools.by])
