"""By kind of answer: every method on math, choice, code and text, and RAD against each baseline on the same problems.

Sections are the configurations, the families that pool several of them, and everything together, which is always last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from radmoe.evaluation.pools import GradedPool
from radmoe.evaluation.scores import GROUPINGS, Collection, Draws, Scores, compare, corrected, differ, words_of_test
from radmoe.evaluation.table import Cell, Column, Row, Table, missing, p_text
from radmoe.evaluation.tables import POOLED, mark_best, readouts, unmeasured
from radmoe.types import KINDS, Kind

NAMES = {  # the methods of the table by their names in the registry, and what a newcomer calls them
    "average": "a random rollout",
    "majority": "majority of answers",
    "deepconf": "DeepConf",
    "likelihood": "likelihood",
    "text-overlap": "text overlap",
    "rad": "RAD",
    "rad+dc": "RAD+DC",
    "strict": "RAD, marker only",
    "preset:best": "preset best",
    "preset:best+text": "preset best+text",
    "oracle": "oracle (best of all)",
}
BASELINES = ("majority", "deepconf", "likelihood", "text-overlap")  # none of them reads routing
LEGEND = "RAD minus the baseline in points (problems that only RAD : only the baseline gets right, p)."
APART = 2  # a kind of so many data sets shows each of them, too; with more the table would be too wide


class Cut(NamedTuple):
    """A column: the problems of a kind, or those of one of its data sets.

    Every method of a column has the same problems. Where RAD can be used on some pools only (answers in free words of a
    model that does not think have no marker), the others are left out, `left_out` has them, and `counted_wrong` says what
    RAD's gain is with them.
    """

    title: str
    kind: Kind | None
    dataset: str | None = None

    def scores(self, pools: Sequence[GradedPool]) -> Scores | None:
        """The problems of these pools that stand in the column; None where there are none."""
        own = self._own(pools)
        usable = [r for r in own if "rad" in r.outcomes.hits]
        return Scores(usable or own) if own else None

    def left_out(self, pools: Sequence[GradedPool]) -> list[GradedPool]:
        """The pools that could stand in the column, but on which RAD cannot be used."""
        own = self._own(pools)
        without = [r for r in own if "rad" not in r.outcomes.hits]
        return without if len(without) < len(own) else []

    def counted_wrong(self, pools: Sequence[GradedPool], draws: Draws) -> Cell | None:
        """RAD on all problems of the column, wrong on those that are left out, as the paper counts an abstention.

        None where nothing is left out.
        """
        return _measured(Scores(self._own(pools)), "rad", draws) if self.left_out(pools) else None

    def _own(self, pools: Sequence[GradedPool]) -> list[GradedPool]:
        return [r for r in pools if r.kind == self.kind and self.dataset in (None, r.dataset)]


def kind_tables(collection: Collection, draws: Draws) -> tuple[Table, Table]:
    """Methods by kinds, with what follows from the numbers in sentences below, and RAD minus each baseline by kinds."""
    cuts, reasons = _cuts(collection), dict[str, None]()
    method_rows: list[Row] = []
    baseline_rows: list[Row] = []
    for section, pools in _sections(collection):
        parts = [cut.scores(pools) for cut in cuts]
        counts = (missing("not measured") if scores is None else Cell(len(scores), "count") for scores in parts)
        method_rows.append(Row((Cell("n"), *counts), section))
        body = [
            [unmeasured(scores, method, reasons) or _measured(scores, method, draws) for scores in parts]
            for method in NAMES
        ]
        for name, cells in zip(NAMES.values(), mark_best(tuple(NAMES), body), strict=True):
            method_rows.append(Row((Cell(name), *cells), section))
        gains = dict(zip(cuts, body[list(NAMES).index("rad")], strict=True))
        gaps = _against(cuts, parts, draws)
        baseline_rows += [Row((Cell(NAMES[name]), *cells.values()), section) for name, cells in gaps.items()]
    wrong = {cut: cell for cut in cuts if (cell := cut.counted_wrong(collection.pools, draws)) is not None}
    conclusions = sentences(gains, gaps, wrong)
    methods = Table(
        "kinds",
        f"By kind of answer; RAD reads {readouts(collection)}",
        _columns("method", cuts),
        tuple(method_rows),
        (
            "Percent right (gain over a random rollout in points [95% interval of the gain]).",
            *_counting(collection),
            *_left_out(collection, cuts, wrong),
            *(f"--: {reason}." for reason in reasons),
            *conclusions,
        ),
        GROUPINGS[collection.by],
    )
    baselines = Table(
        "against",
        "RAD against baselines that read no routing",
        _columns("baseline", cuts),
        tuple(baseline_rows),
        (LEGEND, note_on_tests(baseline_rows)),
        GROUPINGS[collection.by],
    )
    return methods, baselines


def note_on_tests(rows: Sequence[Row]) -> str:
    """Which test the p-values of rows of `against` come from, and what they are corrected for."""
    tested = words_of_test(cell for row in rows for cell in row.cells)
    return f"p: {tested}; corrected for all comparisons of a section (Holm)." if tested else "Nothing was tested."


def sentences(
    gains: Mapping[Cut, Cell], gaps: Mapping[str, Mapping[Cut, Cell]], wrong: Mapping[Cut, Cell]
) -> tuple[str, ...]:
    """Where RAD is above a random rollout, where a baseline beats it, where they are level, and where RAD wins.

    `gains` has RAD's cells by column, `gaps` those of RAD minus each baseline, and `wrong` RAD's with what a column leaves out
    counted wrong. Only whole kinds are spoken of. RAD and a baseline differ if p stays below 0.05 under Holm's correction over
    all comparisons of `gaps`, data sets included. The p that is said is the corrected one.
    """
    by_kind: dict[str, dict[str, list[str]]] = {"lost": {}, "level": {}, "won": {}}
    for cut in gains:
        for baseline, cells in gaps.items():
            gap, pair = cells[cut].value, cells[cut].pair
            if cut.dataset is None and isinstance(gap, float) and pair is not None and pair.adjusted is not None:
                outcome = "level" if not differ(cells[cut]) else "won" if gap > 0 else "lost"
                size = f"{100 * gap:+.1f}" if outcome == "level" else f"by {abs(100 * gap):.1f}"
                text = f"{NAMES[baseline]} {size}, {p_text(pair.adjusted)}"
                by_kind[outcome].setdefault(_name(cut.kind), []).append(text)
    starts = {
        "lost": "A baseline that reads no routing beats RAD on",
        "level": "No difference between RAD and a baseline that reads no routing is shown on",
        "won": "RAD beats a baseline that reads no routing on",
    }
    texts = [_above_random(gains, wrong)]
    for outcome, kinds in by_kind.items():
        if kinds:
            lists = (f"{kind} ({'; '.join(ones)})" for kind, ones in kinds.items())
            texts.append(f"{starts[outcome]} {_listed(list(lists))}.")
    if any(by_kind.values()):
        family = [cell for cells in gaps.values() for cell in cells.values() if cell.pair is not None]
        texts.append(
            f"In these sentences p is that of {words_of_test(family)}, corrected for all {len(family)} comparisons of RAD with "
            "a baseline, by kind and by data set (Holm)."
        )
    return tuple(text for text in texts if text)


def _above_random(gains: Mapping[Cut, Cell], wrong: Mapping[Cut, Cell]) -> str:
    """A sentence that lists the kinds on which RAD is above a random rollout, by the interval of its gain, and the others.

    Where problems of a kind were left out, the gain with these counted as wrong is added. The sentence is empty if there is no gain at all.
    """
    above: list[str] = []
    rest: list[str] = []
    for cut, cell in gains.items():
        if cut.dataset is None and cell.gain is not None:
            sure = cell.gain_low is not None and cell.gain_low > 0
            with_all = f"; {_points(wrong[cut])} with what is left out counted wrong" if cut in wrong else ""
            (above if sure else rest).append(f"{_name(cut.kind)} ({_points(cell)}{with_all})")
    parts = []
    if above:
        parts.append(f"RAD is above a random rollout on {_listed(above)}")
    if rest:
        parts.append(f"{'it' if above else 'RAD'} is not shown to be above a random rollout on {_listed(rest)}")
    return f"{'; '.join(parts)}." if parts else ""


def _points(cell: Cell) -> str:
    """A gain in points with its interval."""
    assert cell.gain is not None
    if cell.gain_low is None or cell.gain_high is None:
        return f"{100 * cell.gain:+.1f} points"
    return f"{100 * cell.gain:+.1f} points [{100 * cell.gain_low:+.1f}, {100 * cell.gain_high:+.1f}]"


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _name(kind: Kind | None) -> str:
    return kind or "any kind"


def _sections(collection: Collection) -> list[tuple[str, tuple[GradedPool, ...]]]:
    """Configurations, the families that pool several of them, and everything; none that repeats an earlier one."""
    sections = [
        (name, tuple(r for r in collection.pools if collection.group_of(r) == name)) for name in collection.groups
    ]
    if collection.by == "configuration":
        families = dict.fromkeys(r.family for r in collection.pools)
        sections += [(f"all {name}", tuple(r for r in collection.pools if r.family == name)) for name in families]
    shown: dict[tuple[int, ...], tuple[str, tuple[GradedPool, ...]]] = {}
    for name, pools in [*sections, (POOLED, collection.pools)]:
        shown.setdefault(tuple(map(id, pools)), (name, pools))
    return list(shown.values())


def _cuts(collection: Collection) -> list[Cut]:
    cuts = []
    for kind in (*KINDS, None):
        datasets = dict.fromkeys(r.dataset for r in collection.pools if r.kind == kind)
        apart = len(datasets) == APART
        if datasets:
            cuts.append(Cut(f"all {_name(kind)}" if apart else _name(kind), kind))
            cuts += [Cut(dataset, kind, dataset) for dataset in datasets if apart]
    return cuts


def _columns(first: str, cuts: Sequence[Cut]) -> tuple[Column, ...]:
    return (Column(first), *(Column(cut.title) for cut in cuts))


def _measured(scores: Scores | None, method: str, draws: Draws) -> Cell:
    """How right a method is, and its gain over a random rollout; it is wrong on pools on which it cannot be used."""
    assert scores is not None
    n, hits = len(scores), scores.hits(method, absent=0.0)
    bounds = scores.bounds(hits, draws)
    if method == "average":
        return Cell(float(hits.mean()), "percent", n=n, **bounds)
    gain = scores.interval(hits, draws, scores.full)
    return Cell(
        float(hits.mean()),
        "percent",
        gain=float(hits.mean() - scores.full.mean()),
        gain_low=None if gain is None else gain.low,
        gain_high=None if gain is None else gain.high,
        n=n,
        **bounds,
    )


def _against(cuts: Sequence[Cut], parts: Sequence[Scores | None], draws: Draws) -> dict[str, dict[Cut, Cell]]:
    """RAD minus each baseline in every column. All of these are printed together: Holm's correction is over all of them."""
    cells: list[Cell] = []
    for baseline in BASELINES:
        for scores in parts:
            if scores is None:
                cells.append(missing("not measured"))
            elif (reason := scores.why_not(baseline) or scores.why_not("rad")) is not None:
                cells.append(missing(reason))
            else:
                cells.append(compare(scores, "rad", baseline, draws))
    family = iter(corrected(cells))
    return {baseline: {cut: next(family) for cut in cuts} for baseline in BASELINES}


def _left_out(collection: Collection, cuts: Sequence[Cut], wrong: Mapping[Cut, Cell]) -> list[str]:
    """Notes on the pools that a pooled column leaves out, one for each kind and reason, and RAD's accuracy with them counted."""
    notes = []
    for cut in cuts:
        left = cut.left_out(collection.pools) if cut.dataset is None else []
        pools_by_reason: dict[str, list[str]] = {}
        for r in left:
            pools_by_reason.setdefault(r.outcomes.missing["rad"], []).append(f"{r.configuration} on {r.dataset}")
        notes += [f"{cut.title} leaves out {_listed(names)}: {why}." for why, names in pools_by_reason.items()]
        if left:
            cell = wrong[cut]
            assert isinstance(cell.value, float)
            assert cell.gain is not None
            notes.append(
                f"With RAD counted wrong on the {sum(map(len, left)):,} of {cell.n:,} that {cut.title} leaves out, as the paper "
                f"counts an abstention, RAD is right on {100 * cell.value:.1f}% and a random rollout on "
                f"{100 * (cell.value - cell.gain):.1f}%: {_points(cell)}."
            )
    return notes


def _counting(collection: Collection) -> tuple[str, ...]:
    """What n counts, where configurations share problems."""
    scores = Scores(collection.pools)
    problems, configurations = len(set(scores.clusters.tolist())), len({r.configuration for r in collection.pools})
    if problems == len(scores):
        return ()
    return (
        f"n counts a problem once for each configuration that was asked it: {problems:,} problems, {configurations} "
        "configurations. Intervals resample a problem with all its entries.",
    )
