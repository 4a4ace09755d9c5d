"""By kind of answer: every method on math, choice, code and text, and RAD against each baseline on the same problems.

Sections are the configurations, the families that pool several of them, and everything together, which is always last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from radmoe.evaluation.accuracy import POOLED, mark_best, readouts, unmeasured
from radmoe.evaluation.records import Records
from radmoe.evaluation.scores import GROUPINGS, Collection, Draws, Scores
from radmoe.evaluation.table import Cell, Column, Pair, Row, Table, missing
from radmoe.evaluation.wording import SURE, p_text
from radmoe.stats import holm, mcnemar
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
APART = 2  # a kind of so many data sets shows each of them, too; with more the table would be too wide


class Cut(NamedTuple):
    """A column: the problems of a kind, or those of one of its data sets.

    Every method of a column has the same problems. Where RAD can be used on some pools only (answers in free words of a
    model that does not think have no marker), the others are left out, and `left_out` has them.
    """

    title: str
    kind: Kind | None
    dataset: str | None = None

    def scores(self, records: Sequence[Records]) -> Scores | None:
        """The problems of these records that stand in the column; None where there are none."""
        own = self._own(records)
        usable = [r for r in own if "rad" in r.hits]
        return Scores(usable or own) if own else None

    def left_out(self, records: Sequence[Records]) -> list[Records]:
        """The records that could stand in the column, but on which RAD cannot be used."""
        own = self._own(records)
        without = [r for r in own if "rad" not in r.hits]
        return without if len(without) < len(own) else []

    def _own(self, records: Sequence[Records]) -> list[Records]:
        return [r for r in records if r.setting.kind == self.kind and self.dataset in (None, r.dataset)]


def kind_tables(pools: Collection, draws: Draws) -> tuple[Table, Table]:
    """Methods by kinds, with what follows from the numbers in sentences below, and RAD minus each baseline by kinds."""
    cuts, reasons = _cuts(pools), dict[str, None]()
    method_rows: list[Row] = []
    baseline_rows: list[Row] = []
    for section, records in _sections(pools):
        parts = [cut.scores(records) for cut in cuts]
        counts = (missing("not measured") if scores is None else Cell(len(scores), "count") for scores in parts)
        method_rows.append(Row((Cell("n"), *counts), section))
        body = [[_cell(scores, method, draws, reasons) for scores in parts] for method in NAMES]
        for name, cells in zip(NAMES.values(), mark_best(tuple(NAMES), body), strict=True):
            method_rows.append(Row((Cell(name), *cells), section))
        gains = dict(zip(cuts, body[list(NAMES).index("rad")], strict=True))
        gaps = {baseline: _against(cuts, parts, baseline, draws) for baseline in BASELINES}
        baseline_rows += [Row((Cell(NAMES[baseline]), *cells), section) for baseline, cells in gaps.items()]
    conclusions = sentences(gains, {baseline: dict(zip(cuts, cells, strict=True)) for baseline, cells in gaps.items()})
    methods = Table(
        "kinds",
        f"By kind of answer; RAD reads {readouts(pools)}",
        _columns("method", cuts),
        tuple(method_rows),
        (
            "Percent right (gain over a random rollout in points [95% interval of the gain]).",
            *_counting(pools),
            *_left_out(pools, cuts),
            *(f"--: {reason}." for reason in reasons),
            *conclusions,
        ),
        GROUPINGS[pools.by],
    )
    baselines = Table(
        "against",
        "RAD against baselines that read no routing",
        _columns("baseline", cuts),
        tuple(baseline_rows),
        ("RAD minus the baseline in points (problems that only RAD : only the baseline gets right, exact McNemar p).",),
        GROUPINGS[pools.by],
    )
    return methods, baselines


def sentences(gains: Mapping[Cut, Cell], gaps: Mapping[str, Mapping[Cut, Cell]]) -> tuple[str, ...]:
    """Where RAD is above a random rollout, where a baseline beats it, where they are level, and where RAD wins.

    `gains` has RAD's cells by column, and `gaps` those of RAD minus each baseline. Only whole kinds are spoken of. RAD and
    a baseline differ if the exact McNemar p stays below 0.05 under Holm's correction over the kinds, and the interval,
    which resamples a problem with all its configurations, leaves out 0. The p that is said is the corrected one.
    """
    by_kind: dict[str, dict[str, list[str]]] = {"lost": {}, "level": {}, "won": {}}
    for cut in gains:
        for baseline, cells in gaps.items():
            gap, pair = cells[cut].value, cells[cut].pair
            if isinstance(gap, float) and pair is not None and pair.adjusted is not None:
                outcome = "level" if not differ(cells[cut]) else "won" if gap > 0 else "lost"
                size = f"{100 * gap:+.1f}" if outcome == "level" else f"by {abs(100 * gap):.1f}"
                text = f"{NAMES[baseline]} {size}, {p_text(pair.adjusted)}"
                by_kind[outcome].setdefault(_name(cut.kind), []).append(text)
    starts = {
        "lost": "A baseline that reads no routing beats RAD on",
        "level": "No difference between RAD and a baseline that reads no routing is shown on",
        "won": "RAD beats a baseline that reads no routing on",
    }
    texts = [_above_random(gains)]
    for outcome, kinds in by_kind.items():
        if kinds:
            lists = (f"{kind} ({'; '.join(ones)})" for kind, ones in kinds.items())
            texts.append(f"{starts[outcome]} {_listed(list(lists))}.")
    if any(by_kind.values()):
        texts.append("In these sentences p is exact McNemar, corrected for the number of kinds (Holm).")
    return tuple(text for text in texts if text)


def _above_random(gains: Mapping[Cut, Cell]) -> str:
    """On which kinds RAD is above a random rollout, and on which not; empty where it is nowhere measured."""
    above: list[str] = []
    rest: list[str] = []
    for cut, cell in gains.items():
        if cut.dataset is None and cell.gain is not None:
            sure = cell.gain_low is not None and cell.gain_low > 0
            (above if sure else rest).append(f"{_name(cut.kind)} ({100 * cell.gain:+.1f} points)")
    parts = []
    if above:
        parts.append(f"RAD is above a random rollout on {_listed(above)}")
    if rest:
        parts.append(f"{'it' if above else 'RAD'} is not shown to be above a random rollout on {_listed(rest)}")
    return f"{'; '.join(parts)}." if parts else ""


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _name(kind: Kind | None) -> str:
    return kind or "any kind"


def differ(cell: Cell) -> bool:
    """Whether a tested difference is one: the corrected p is small, and the interval leaves out 0."""
    if cell.pair is None or cell.pair.adjusted is None or cell.low is None or cell.high is None:
        return False
    return cell.pair.adjusted < SURE and not cell.low <= 0 <= cell.high


def _sections(pools: Collection) -> list[tuple[str, tuple[Records, ...]]]:
    """Configurations, the families that pool several of them, and everything; none that repeats an earlier one."""
    sections = [(name, tuple(r for r in pools.records if pools.group_of(r) == name)) for name in pools.groups]
    if pools.by == "configuration":
        families = dict.fromkeys(r.family for r in pools.records)
        sections += [(f"all {name}", tuple(r for r in pools.records if r.family == name)) for name in families]
    shown: dict[tuple[int, ...], tuple[str, tuple[Records, ...]]] = {}
    for name, records in [*sections, (POOLED, pools.records)]:
        shown.setdefault(tuple(map(id, records)), (name, records))
    return list(shown.values())


def _cuts(pools: Collection) -> list[Cut]:
    cuts = []
    for kind in (*KINDS, None):
        datasets = dict.fromkeys(r.dataset for r in pools.records if r.setting.kind == kind)
        apart = len(datasets) == APART
        if datasets:
            cuts.append(Cut(f"all {_name(kind)}" if apart else _name(kind), kind))
            cuts += [Cut(dataset, kind, dataset) for dataset in datasets if apart]
    return cuts


def _columns(first: str, cuts: Sequence[Cut]) -> tuple[Column, ...]:
    return (Column(first), *(Column(cut.title) for cut in cuts))


def _cell(scores: Scores | None, method: str, draws: Draws, reasons: dict[str, None]) -> Cell:
    if (empty := unmeasured(scores, method, reasons)) is not None:
        return empty
    assert scores is not None
    hits, n = scores.hits(method), len(scores)
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


def _against(cuts: Sequence[Cut], parts: Sequence[Scores | None], baseline: str, draws: Draws) -> list[Cell]:
    """RAD minus a baseline in every column. Holm's correction is over the kinds, not over their data sets."""
    cells: list[Cell] = []
    for scores in parts:
        reason = "not measured" if scores is None else scores.why_not(baseline) or scores.why_not("rad")
        if scores is None or reason is not None:
            cells.append(missing(reason or ""))
            continue
        x, y = scores.hits("rad"), scores.hits(baseline)
        test = mcnemar(x, y)
        cells.append(
            Cell(test.gap, "points", n=test.n, pair=Pair(test.b, test.c, test.p), **scores.bounds(x, draws, y))
        )
    tested = [(at, cells[at].pair) for at, cut in enumerate(cuts) if cut.dataset is None]
    family = {at: pair for at, pair in tested if pair is not None}
    if family:
        for (at, pair), adjusted in zip(family.items(), holm([pair.p for pair in family.values()]), strict=True):
            cells[at] = replace(cells[at], pair=replace(pair, adjusted=float(adjusted)))
    return cells


def _left_out(pools: Collection, cuts: Sequence[Cut]) -> list[str]:
    """Which pools have no part in the columns over several, one note for each kind and reason."""
    pools_by_reason: dict[tuple[str, str], list[str]] = {}
    for cut in cuts:
        for r in cut.left_out(pools.records) if cut.dataset is None else ():
            pools_by_reason.setdefault((cut.title, r.missing["rad"]), []).append(f"{r.model} on {r.dataset}")
    return [f"{title} leaves out {_listed(names)}: {why}." for (title, why), names in pools_by_reason.items()]


def _counting(pools: Collection) -> tuple[str, ...]:
    """What n counts, where configurations share problems."""
    scores = Scores(pools.records)
    problems, configurations = len(set(scores.clusters.tolist())), len({r.model for r in pools.records})
    if problems == len(scores):
        return ()
    return (
        f"n counts a problem once for each configuration that was asked it: {problems:,} problems, {configurations} "
        "configurations. Intervals resample a problem with all its entries.",
    )
