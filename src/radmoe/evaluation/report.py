"""All tables of some pools, and the one sentence that a reader came for."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from radmoe import __version__
from radmoe.errors import InputError
from radmoe.evaluation import cache
from radmoe.evaluation.kinds import BASELINES, NAMES, kind_tables
from radmoe.evaluation.pools import GradedPool
from radmoe.evaluation.scores import Collection, Draws, Scores, compare, corrected, differ
from radmoe.evaluation.stats import Interval, poisson_binomial_test
from radmoe.evaluation.table import SURE, Cell, Table, p_text
from radmoe.evaluation.tables import (
    basin_table,
    coverage_table,
    envelope_table,
    lift_table,
    main_table,
    other_table,
    paired_table,
    strict_table,
)


@dataclass(frozen=True)
class Report:
    """What was evaluated, the tables, and whether selection helped."""

    pools: tuple[GradedPool, ...]
    draws: Draws
    tables: tuple[Table, ...]
    verdict: str

    def to_json(self) -> dict[str, Any]:
        return {
            "pools": [
                {
                    "pool": str(r.path),
                    "checksum": cache.checksum(r.path),
                    "model": r.configuration,
                    "family": r.family,
                    "dataset": r.dataset,
                    "problems": len(r),
                    "rollouts": int(r.here.sum()),
                    **asdict(r.setting),
                    "domain": None if r.kind is None else r.domain,
                    "strict": r.setting.strict,
                    "missing": r.outcomes.missing,
                    "notes": list(r.notes),
                    "inferred": r.inferred,
                }
                for r in self.pools
            ],
            "versions": {"radmoe": __version__, "python": platform.python_version(), "numpy": np.__version__},
            "intervals": asdict(self.draws),
            "tables": [table.to_json() for table in self.tables],
            "verdict": self.verdict,
        }


def build_report(pools: Sequence[GradedPool], draws: Draws | None = None, *, by: str = "configuration") -> Report:
    """Every table that applies to these pools, with rows grouped by configuration (model and style) or by family."""
    if not pools:
        raise InputError("no pool to report on: give at least one")
    draws = draws or Draws()
    if draws.resamples < 1:
        raise InputError(f"resamples must be at least 1, got {draws.resamples}")
    collection = Collection(tuple(pools), by)
    tables = (
        main_table(collection, draws),
        strict_table(collection, draws),
        coverage_table(collection),
        lift_table(collection, draws),
        paired_table(collection, draws),
        envelope_table(collection),
        basin_table(collection, draws),
        other_table(collection, draws),
        *kind_tables(collection, draws),
    )
    shown = tuple(table for table in tables if table is not None and table.rows)
    return Report(collection.pools, draws, shown, verdict(collection, draws))


def verdict(collection: Collection, draws: Draws) -> str:
    """Whether RAD did better than a random rollout, by how much, how sure that is, and how it compares with a vote and with
    the best baseline that reads no routing."""
    scores = collection.scores()
    assert scores is not None
    every, reason = scores, scores.why_not("rad")
    if reason is not None:
        usable = collection.scores(lambda r: "rad" in r.outcomes.hits)
        if usable is None:
            return f"Nothing was selected here: {reason}."
        scores = usable
    if not scores.decidable:
        return f"Selection could not matter here: in each of the {_problems(scores)} the rollouts are all right or all wrong."
    hits = scores.hits("rad")
    test = poisson_binomial_test(scores.full, hits)
    low_tail = poisson_binomial_test(1 - scores.full, 1 - hits)
    gap = float(hits.mean() - scores.full.mean())
    interval = scores.interval(hits, draws, scores.full)
    helped = "Selection helped" if test.p < SURE else "Selection hurt" if low_tail.p < SURE else "No help shown"
    chance = low_tail.p if helped == "Selection hurt" else test.p
    compared = _compared(collection, scores, draws)
    vote, best = _against_vote(collection, compared, draws), _against_best(scores, compared, draws)
    sentence = (
        f"{helped}: on {_problems(scores)} RAD is right {_percent(hits.mean())} of the time and a random rollout "
        f"{_percent(scores.full.mean())}, {_gap(gap, interval)}, and random picks do as "
        f"{'badly' if helped == 'Selection hurt' else 'well'} with Poisson-binomial {p_text(chance)}"
        f"{vote}{_left_out(every, scores)}."
    )
    return f"{sentence} {best}"


def _compared(collection: Collection, scores: Scores, draws: Draws) -> list[tuple[Scores, str, Cell]]:
    """RAD minus each baseline that can be used on all problems, and minus a vote where one is well-posed, by Holm over all."""
    parts = [(scores, name) for name in BASELINES if scores.why_not(name) is None]
    voting = collection.votable()
    if voting is not None and voting.pools != scores.pools and not _no_vote(voting):
        parts.append((voting, "majority"))
    cells = corrected([compare(own, "rad", name, draws) for own, name in parts])
    return [(own, name, cell) for (own, name), cell in zip(parts, cells, strict=True)]


def _no_vote(scores: Scores) -> str | None:
    """Why RAD and a vote cannot be compared; None where they can."""
    return scores.why_not("majority") or scores.why_not("rad")


def _by_holm(compared: Sequence[tuple[Scores, str, Cell]], cell: Cell) -> str:
    """The corrected p of one of the comparisons, and what follows from it."""
    assert cell.pair is not None
    assert cell.pair.adjusted is not None
    several = "" if len(compared) == 1 else f" (Holm over {len(compared)} comparisons)"
    sure = "a difference" if differ(cell) else "no difference these problems can show"
    return f"{p_text(cell.pair.adjusted)}{several}: {sure}"


def _against_best(scores: Scores, compared: Sequence[tuple[Scores, str, Cell]], draws: Draws) -> str:
    """How RAD compares with the baseline that does best of those that read no routing and can be used on all problems."""
    usable = {name: cell for own, name, cell in compared if own is scores}
    if not usable:
        return "No baseline that reads no routing can be used on all of them."
    best = max(usable, key=lambda name: scores.hits(name).mean())
    gap = usable[best].value
    assert isinstance(gap, float)
    interval = scores.interval(scores.hits("rad"), draws, scores.hits(best))
    return (
        f"The best baseline that reads no routing is {NAMES[best]}, right {_percent(scores.hits(best).mean())} of the time: "
        f"RAD is {_gap(gap, interval)} against it, {_by_holm(compared, usable[best])}."
    )


def _left_out(every: Scores, used: Scores) -> str:
    """What the accuracies are where problems on which RAD cannot be used count as wrong; empty where there are none."""
    absent = len(every) - len(used)
    if not absent:
        return ""
    hits = every.hits("rad", absent=0.0)
    return (
        f"; with RAD counted wrong on the other {absent:,} of {len(every):,}, where it cannot be used, it has "
        f"{_percent(hits.mean())} and a random rollout {_percent(every.full.mean())}"
    )


def _against_vote(collection: Collection, compared: Sequence[tuple[Scores, str, Cell]], draws: Draws) -> str:
    voting = collection.votable()
    if voting is None:
        return "; a vote over exact strings has nothing to count here"
    if (reason := _no_vote(voting)) is not None:
        return f"; no comparison with a majority vote ({reason})"
    scores, cell = next((own, cell) for own, name, cell in compared if name == "majority" and own.pools == voting.pools)
    size = "" if len(scores) == sum(map(len, collection.pools)) else f" on {_problems(scores)} where one is well-posed"
    assert cell.pair is not None
    assert isinstance(cell.value, float)
    if cell.pair.first == cell.pair.second == 0:
        return f"; a majority vote{size} is right on exactly the same problems"
    gap = _gap(cell.value, scores.interval(scores.hits("rad"), draws, scores.hits("majority")))
    name = {"mcnemar": "exact McNemar", "sign-flip": "exact sign flips of problems"}[cell.pair.test]
    return f"; against a majority vote{size} it is {gap}, {name} {_by_holm(compared, cell)}"


def _problems(scores: Scores) -> str:
    """How many problems, each counted once, and how often they were asked where that is more."""
    count = len(set(scores.clusters.tolist()))
    words = "1 problem" if count == 1 else f"{count:,} problems"
    return words if count == len(scores) else f"{words} ({len(scores):,} counting every configuration)"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _gap(gap: float, interval: Interval | None) -> str:
    if interval is None:
        return f"{100 * gap:+.1f} points (nothing to resample, so no interval)"
    return f"{100 * gap:+.1f} points (95% CI {100 * interval.low:+.1f} to {100 * interval.high:+.1f})"
