"""Is it the routing? What it gives instead of, and in addition to, what is free: by kind of answer and by regime.

A regime is a part of the problems of one kind: a data set, a configuration, problems that few or many rollouts get right,
problems whose rollouts agree more or less, and, where pools were evaluated with fewer rollouts too, the number of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe.evaluation.pools import GradedPool
from radmoe.evaluation.report import Report
from radmoe.evaluation.scores import Draws, Scores, compare, corrected, differ, words_of_test
from radmoe.evaluation.table import Cell, Column, Row, Table, missing, p_text
from radmoe.types import KINDS, Kind

Mask = NDArray[np.bool_]


class Comparison(NamedTuple):
    """Two methods on the same problems, by their names in the registry, and what the column is called."""

    first: str
    second: str
    title: str


_RIVALS = {
    "likelihood": "likelihood",
    "self-certainty": "self-certainty",
    "text-overlap": "text overlap",
    "edit-distance": "edit distance",
    "behaviour": "behaviour",
    "majority": "majority",
}
INSTEAD = tuple(Comparison("best-routing", rival, title) for rival, title in _RIVALS.items())
_TO = {
    "likelihood": "likelihood",
    "self-certainty": "self-certainty",
    "text-overlap": "text overlap",
    "behaviour": "behaviour",
    "text-overlap+likelihood": "text overlap + likelihood",
    "behaviour+text-overlap+likelihood": "behaviour + text overlap + likelihood",
}
ADDED = tuple(Comparison(f"best-routing+{free}", free, title) for free, title in _TO.items())
STRICT = tuple(Comparison("strict", rival, title) for rival, title in _RIVALS.items())
PRESETS = (
    Comparison("preset:best", "preset:paper", "best - paper"),
    Comparison("preset:best", "likelihood", "best - likelihood"),
    Comparison("preset:best", "text-overlap+likelihood", "best - (text overlap + likelihood)"),
    Comparison("preset:best", "majority", "best - majority"),
    Comparison("preset:best+text", "text-overlap+likelihood", "best+text - (text overlap + likelihood)"),
    Comparison("preset:best+text", "preset:best", "best+text - best"),
    Comparison("best-routing", "preset:paper", "best without likelihood - paper"),
)

THIRDS = ("under 1/3", "1/3 to 2/3", "over 2/3")


class Regime(NamedTuple):
    """A named part of the problems: pools, each with a mask of its problems."""

    title: str
    parts: tuple[tuple[GradedPool, Mask], ...]


def rivals_report(
    pools: Sequence[GradedPool], fewer: Mapping[int, Sequence[GradedPool]] | None = None, draws: Draws | None = None
) -> Report:
    """Compare routing with each rival, by kind and regime: instead of it, and in addition to it.

    Strict readouts are compared in the same way, and so are the presets that use routing.

    `fewer` has the same pools with fewer rollouts, by their number.
    """
    if not pools:
        raise InputError("no pool to compare on: give at least one")
    draws = draws or Draws()
    by_kind = {
        kind: list(regimes([r for r in pools if r.kind == kind], fewer or {}))
        for kind in KINDS
        if any(r.kind == kind for r in pools)
    }
    instead = _table("instead", "Routing alone, minus a method that reads none", INSTEAD, by_kind, draws)
    added = _table("added", "A method with routing added, minus the method alone", ADDED, by_kind, draws)
    strict = _table(
        "strict", "Routing before any word of the answer, minus a method that reads none", STRICT, by_kind, draws
    )
    presets = _table("presets", "Presets, minus what they compete with", PRESETS, by_kind, draws)
    return Report(tuple(pools), draws, (presets, instead, added, strict), _verdict(added))


def regimes(own: Sequence[GradedPool], fewer: Mapping[int, Sequence[GradedPool]]) -> Iterator[Regime]:
    """The regimes of pools of one kind, all of their problems first."""
    kind = own[0].kind
    yield Regime(f"all {kind}", _whole(own))
    for names in ([r.dataset for r in own], [r.configuration for r in own]):
        distinct = dict.fromkeys(names)
        for name in distinct if len(distinct) > 1 else ():
            yield Regime(name, _whole([r for r, other in zip(own, names, strict=True) if other == name]))
    for what, part, of in (("right", "right", "rollouts"), ("in the basin", "basin", "located")):
        for third, words in enumerate(THIRDS):
            parts = tuple((r, _third(r.outcomes.counts[part], r.outcomes.counts[of]) == third) for r in own)
            if any(mask.any() for _, mask in parts):
                yield Regime(f"{words} {what}", parts)
    for n, cut in sorted(fewer.items()):
        if some := [r for r in cut if r.kind == kind]:
            yield Regime(f"N = {n}", _whole(some))


def _whole(pools: Sequence[GradedPool]) -> tuple[tuple[GradedPool, Mask], ...]:
    return tuple((r, np.ones(len(r), bool)) for r in pools)


def _third(part: NDArray[np.int64], of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Into which third a share falls: 0, 1 or 2; -1 where it is a share of nothing. Whole numbers are exact at the limits."""
    return np.where(of > 0, (3 * part >= of).astype(np.int64) + (3 * part > 2 * of), -1)


def _table(
    key: str, title: str, comparisons: Sequence[Comparison], by_kind: Mapping[Kind, Sequence[Regime]], draws: Draws
) -> Table:
    rows: list[Row] = []
    whole: list[int] = []  # the first row of every kind: all its problems
    for kind, own in by_kind.items():
        whole.append(len(rows))
        body = [[_cell(regime, comparison, draws) for regime in own] for comparison in comparisons]
        for at, regime in enumerate(own):
            problems = Cell(_problems(regime), "count")
            rows.append(Row((Cell(regime.title), problems, *(cells[at] for cells in body)), kind))
    family = corrected([cell for i in whole for cell in rows[i].cells])
    width = len(comparisons) + 2
    for place, i in enumerate(whole):
        rows[i] = replace(rows[i], cells=tuple(family[place * width : (place + 1) * width]))
    heads = (Column("regime"), Column("problems"), *(Column(c.title, "95% CI") for c in comparisons))
    notes = (
        "Difference in points, with an interval that resamples a problem with all its configurations (problems that only the "
        f"first : only the second gets right, p). Whole kinds are tested: {words_of_test(family) or 'nothing to test'}, "
        "corrected for all of them in this table (Holm). Other rows are looked at and have an interval alone.",
        "Right and in the basin: the share of a problem's rollouts that are right, and that of RAD's pick's basin among "
        "those located. Problems are counted once however many configurations were asked them.",
    )
    return Table(key, title, heads, tuple(rows), notes, "kind")


def _problems(regime: Regime) -> int:
    """Problems, each counted once however many configurations were asked it."""
    return len({(r.dataset, p) for r, mask in regime.parts for p, on in zip(r.problem_ids, mask, strict=True) if on})


def _cell(regime: Regime, comparison: Comparison, draws: Draws) -> Cell:
    """The difference on the pools of a regime where both methods can be used."""
    usable = [(r, mask) for r, mask in regime.parts if mask.any() and _why_not(r, comparison) is None]
    if not usable:
        return missing(next((why for r, _ in regime.parts if (why := _why_not(r, comparison))), "not measured"))
    scores, on = Scores([r for r, _ in usable]), np.concatenate([mask for _, mask in usable])
    return compare(scores, comparison.first, comparison.second, draws, on=on)


def _why_not(pool: GradedPool, comparison: Comparison) -> str | None:
    reasons = (Scores([pool]).why_not(name) for name in (comparison.first, comparison.second))
    return next((reason for reason in reasons if reason is not None), None)


def _verdict(added: Table) -> str:
    """Where routing adds to something that is free, and where it does not, over whole kinds."""
    outcomes: dict[str, list[str]] = {"adds": [], "takes": [], "level": []}
    for row in added.rows:
        for column, cell in zip(added.columns[2:], row.cells[2:], strict=True):
            if not isinstance(cell.value, float) or cell.pair is None or cell.pair.adjusted is None:
                continue
            outcome = "level" if not differ(cell) else "adds" if cell.value > 0 else "takes"
            outcomes[outcome].append(
                f"{column.title} on {row.section} ({100 * cell.value:+.1f} points, {p_text(cell.pair.adjusted)})"
            )
    starts = {
        "adds": "Routing adds to",
        "takes": "Routing takes from",
        "level": "Routing adds nothing that is shown to",
    }
    sentences = [f"{starts[outcome]} {'; '.join(texts)}." for outcome, texts in outcomes.items() if texts]
    if not sentences:
        return "Nothing could be compared."
    tested = words_of_test(
        cell for row in added.rows for cell in row.cells if cell.pair and cell.pair.adjusted is not None
    )
    return " ".join((*sentences, f"p: {tested}; corrected for all comparisons of whole kinds in the table (Holm)."))
