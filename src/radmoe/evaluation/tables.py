"""The tables of a report: accuracy by data set, and where it comes from (coverage, lift, paired tests, random envelope,
dense wrong basins)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from radmoe.evaluation.families import DOMAINS, WELL_POSED
from radmoe.evaluation.methods import METHODS
from radmoe.evaluation.methods.registry import READS
from radmoe.evaluation.pools import GradedPool
from radmoe.evaluation.scores import GROUPINGS, Collection, Draws, Scores, compare, corrected, words_of_test
from radmoe.evaluation.stats import holm, poisson_binomial_test, random_envelope
from radmoe.evaluation.table import Cell, Column, Row, Table, missing

MAIN = ("average", "majority", "majority-split", "deepconf", "rad", "rad+dc")
STRICT = ("average", "strict", "strict+dc")
POOLED = "all"
CI = "95% CI"


def main_table(collection: Collection, draws: Draws) -> Table:
    """The paper's Table 1, and majority with its ties split."""
    return _accuracy(
        "accuracy", f"Accuracy (%), gain over Avg@N; RAD reads {readouts(collection)}", MAIN, collection, draws
    )


def strict_table(collection: Collection, draws: Draws) -> Table | None:
    """Marker-only readouts: no row is conditioned on answer content. None where no pool has one."""
    names = list(dict.fromkeys(r.setting.strict for r in collection.pools if r.setting.strict is not None))
    if not names:
        return None
    return _accuracy("strict", f"Strict, marker-only RAD (%): {', '.join(names)}", STRICT, collection, draws)


def other_table(collection: Collection, draws: Draws) -> Table:
    """Every other method of the registry, by what it reads; the oracle is last."""
    others = [method for method in METHODS.values() if method.name not in (*MAIN, *STRICT)]
    others.sort(key=lambda method: max(map(READS.index, method.reads)))
    names = ("average", *(method.name for method in others))
    return _accuracy("baselines", "Other methods (%), gain over Avg@N", names, collection, draws)


def readouts(collection: Collection) -> str:
    """The readouts that RAD uses on these pools."""
    return ", ".join(dict.fromkeys(r.setting.readout for r in collection.pools))


def _accuracy(key: str, title: str, methods: Sequence[str], collection: Collection, draws: Draws) -> Table:
    together = collection.domain(None, WELL_POSED)
    well = list(dict.fromkeys(r.dataset for r in together.pools)) if together is not None else []
    rest = [dataset for dataset in collection.datasets if dataset not in well]
    wanted: list[str | None] = [*well, *([None] if len(well) > 1 else []), *rest]  # None: the well-posed ones together

    def cut(group: str | None, dataset: str | None) -> Scores | None:
        return collection.domain(group, WELL_POSED) if dataset is None else collection.cell(group, dataset)

    columns = [Column("method"), Column("reads", text=True)]
    for dataset in wanted:
        sizes = {len(scores) for group in collection.groups if (scores := cut(group, dataset)) is not None}
        n = sizes.pop() if len(sizes) == 1 else None
        columns.append(Column(dataset or "Avg.", CI, n))
    rows, reasons = [], dict[str, None]()
    for group in [*collection.groups, *([None] if len(collection.groups) > 1 else [])]:
        parts = [cut(group, dataset) for dataset in wanted]
        whole = collection.scores(lambda r, group=group: group in (None, collection.group_of(r)))  # type: ignore[misc]
        assert whole is not None
        body = [
            [unmeasured(scores, method, reasons) or _cell(scores, method, draws) for scores in parts]
            for method in methods
        ]
        for method, cells in zip(methods, mark_best(methods, body), strict=True):
            names = Cell(whole.label(method)), Cell(", ".join(METHODS[method].reads))
            rows.append(Row((*names, *cells), POOLED if group is None else group))
    notes = []
    if len(well) > 1:
        notes.append(f"Avg. weighs every problem of the well-posed sets alike: {', '.join(well)}.")
    notes += [f"--: {reason}." for reason in reasons]
    notes += [f"{r.dataset}: {note}." for r in collection.pools for note in r.notes]
    return Table(key, title, tuple(columns), tuple(rows), tuple(dict.fromkeys(notes)), GROUPINGS[collection.by])


def unmeasured(scores: Scores | None, method: str, reasons: dict[str, None]) -> Cell | None:
    """The empty cell of a method that has no result there, whose reason joins `reasons`; None where it has one."""
    if scores is None:
        return missing("not measured")
    reason = scores.why_not(method)
    if reason is None:
        return None
    reasons[reason] = None
    return missing(reason)


def _cell(scores: Scores | None, method: str, draws: Draws) -> Cell:
    assert scores is not None
    hits = scores.hits(method)
    gain = None if method == "average" else float(hits.mean() - scores.full.mean())
    return Cell(float(hits.mean()), "percent", gain=gain, n=len(hits), **scores.bounds(hits, draws))


def mark_best(methods: Sequence[str], body: list[list[Cell]]) -> list[list[Cell]]:
    """Mark the best method of each column; the average and what reads the truth do not compete."""
    fair = [i for i, name in enumerate(methods) if name != "average" and "truth" not in METHODS[name].reads]
    for at in range(len(body[0])):
        values = [float(v) for i in fair if isinstance(v := body[i][at].value, int | float)]
        for i in fair:
            if len(values) > 1 and body[i][at].value == max(values) > min(values):
                body[i][at] = replace(body[i][at], best=True)
    return body


PAIRS = (
    ("rad", "majority"),
    ("rad+dc", "rad"),
    ("rad+dc", "majority"),
    ("rad", "likelihood"),
    ("rad", "text-overlap"),
)
LEVELS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


def _columns(*titles: str) -> tuple[Column, ...]:
    """Columns with these titles. What stands in brackets behind a title is the heading of the column's intervals."""
    parts = (title.removesuffix("]").partition("[") for title in titles)
    return tuple(Column(title, name) for title, _, name in parts)


def _table(
    key: str,
    title: str,
    columns: tuple[Column, ...],
    collection: Collection,
    cells: Callable[[Scores], tuple[Cell, ...]],
    notes: tuple[str, ...],
) -> Table:
    return Table(key, title, columns, tuple(_by_dataset(collection, cells)), notes, GROUPINGS[collection.by])


def _by_dataset(collection: Collection, cells: Callable[[Scores], tuple[Cell, ...]]) -> Iterator[Row]:
    """For each group a row per data set, then a row per domain that puts several of them together; then all groups."""
    for group in collection.groups:
        shown = []
        for name, dataset, scores in collection.cells():
            if name == group:
                shown.append(scores.pools)
                yield Row((Cell(dataset), *cells(scores)), group)
        yield from _by_domain(collection, group, cells, shown)
    if len(collection.groups) > 1:
        yield from _by_domain(collection, None, cells, [])


def _by_domain(
    collection: Collection,
    group: str | None,
    cells: Callable[[Scores], tuple[Cell, ...]],
    shown: list[tuple[GradedPool, ...]],
) -> Iterator[Row]:
    """A row per domain, unless a row before it is of the same pools."""
    for domain in DOMAINS:
        scores = collection.domain(group, domain)
        if scores is not None and scores.pools not in shown:
            shown.append(scores.pools)
            name = domain if domain == WELL_POSED else f"all {domain}"  # a data set may be called as its domain is
            yield Row((Cell(name), *cells(scores)), POOLED if group is None else group)


def coverage_table(collection: Collection) -> Table:
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
    return _table("coverage", "Anchor coverage", columns, collection, cells, notes)


def lift_table(collection: Collection, draws: Draws) -> Table:
    """App. "Per-model decomposition": what locating gains, and what selecting gains on top."""
    tests: list[float] = []  # of the rows that have one, in their order

    def cells(scores: Scores) -> tuple[Cell, ...]:
        on = scores.eligible
        n = int(on.sum())
        reason = scores.why_not("rad") or ("" if n else "RAD abstains on every problem")
        if reason:
            return (Cell(n, "count"), *[missing(reason)] * 8)
        rad = scores.hits("rad")
        full, cohort, dens = scores.full[on].mean(), scores.cohort[on].mean(), rad[on].mean()
        tests.append(poisson_binomial_test(scores.cohort[on], rad[on]).p)
        bounds = scores.bounds(rad, draws, scores.cohort, on=on)
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
            Cell(float(dens - cohort), "points", **bounds),
            Cell(float(dens - full), "points"),
            share,
        )

    columns = _columns("dataset", "n", "avg@full", "avg@coh", "maj", "dens", "Δanc", "Δsel", "Δfull", "Δsel/HR")
    notes = (
        "n: problems with two located rollouts. Δanc = avg@coh - avg@full, Δsel = dens - avg@coh, Δfull = their sum.",
        "Δsel/HR: share of the headroom 1 - avg@coh. Stars: Poisson-binomial exact, one-sided, p < 0.05, 0.01, 0.001, by Holm "
        "over all rows.",
    )
    table = _table("lift", "Where RAD's lift comes from", columns, collection, cells, notes)
    adjusted = iter(holm(tests).tolist())
    at = [column.title for column in columns].index("Δsel")
    rows = (row if row.cells[at].value is None else _starred(row, at, next(adjusted)) for row in table.rows)
    return replace(table, rows=tuple(rows))


def _starred(row: Row, at: int, p: float) -> Row:
    """The row with the stars of a corrected p at one of its cells."""
    stars = next((stars for level, stars in LEVELS if p < level), "")
    cell = replace(row.cells[at], stars=stars, note=f"PB-exact, Holm p = {p:.3g}")
    return replace(row, cells=(*row.cells[:at], cell, *row.cells[at + 1 :]))


def paired_table(collection: Collection, draws: Draws) -> Table:
    """Two methods on the same problems: bootstrap interval, exact test, Holm over all rows of the table."""
    compared: list[tuple[str, str, Cell]] = []  # section, label, difference
    reasons: dict[str, None] = {}
    for first, second in PAIRS:
        own: list[tuple[str, Scores]] = []
        for group, dataset, scores in collection.cells():
            reason = scores.why_not(second) or scores.why_not(first)
            if reason is None:
                own.append((f"{group} {dataset}" if len(collection.groups) > 1 else dataset, scores))
            else:
                reasons[reason] = None
        if len(own) > 1:
            own.append((POOLED, Scores([r for _, s in own for r in s.pools])))
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


def envelope_table(collection: Collection) -> Table:
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
    return _table("envelope", "Against random picks on these problems", columns, collection, cells, notes)


def basin_table(collection: Collection, draws: Draws) -> Table:
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
    return _table("basins", "Dense wrong basins", columns, collection, cells, notes)
