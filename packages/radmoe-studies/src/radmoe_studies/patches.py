"""Study 28's issues and tables: what every selector of patches does on them. (Tab. "swebench"; App. "Agentic best-of-N".)

A problem is an issue, a rollout a trajectory, and right is what the hidden tests pass. Only issues whose trajectories split
can tell selectors apart: they are the mixed ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from radmoe.evaluation.stats import poisson_binomial_test
from radmoe.evaluation.table import Cell, Column, Row, Table, missing
from radmoe_studies.base import Options
from radmoe_studies.evidence import Floats, Panel
from radmoe_studies.paper_tables import percent, printed
from radmoe_studies.pooling import HOLM, by_holm, clusters, shown
from radmoe_studies.report.figures import Chart, Line, Plot, Series
from radmoe_studies.resample import Resampled, resample
from radmoe_studies.trajectories import NEIGHBOURS, SIZES, MeasuredIssue, hit, measure, share

SELECTORS = {
    "rad": "RAD",
    "random, patch": "a random one of those with a patch",
    "rad, patch": "RAD among those with a patch",
    "medoid": "medoid",
    "likelihood": "likelihood",
    "likelihood, patch": "likelihood among those with a patch",
    "cbw": "DeepConf scalar",
    "fewest-steps": "fewest steps",
    "most-steps": "most steps",
    "fewest-steps, patch": "fewest steps among those with a patch",
    "most-steps, patch": "most steps among those with a patch",
    "shortest": "fewest tokens",
    "longest": "most tokens",
    "patch": "overlap of the patches",
    "transcript": "overlap of the transcripts",
    "rad+likelihood": "RAD + likelihood",
    "rad+cbw": "RAD + DeepConf scalar",
    "rad+patch": "RAD + patches",
    "rad+transcript": "RAD + transcripts",
}
DRAWN = "random, patch"  # no selector: what chance gives once trajectories without a patch are left out
PATCHED = ("rad", "rad, patch", "likelihood, patch", "fewest-steps, patch", "most-steps, patch", "patch", "rad+patch")
ADDED = ("likelihood", "cbw", "patch", "transcript")  # what is summed with RAD
ABLATIONS = {
    "rad": "every boundary, as a set",
    "weighted": "every boundary, weighted",
    "first": "the first boundary",
    "last": "the last boundary",
    "matched": "as many boundaries of each trajectory",
    "anchors": "every anchor (so, now, wait, paragraphs)",
    "random": "as many random rows",
    "all": "every row",
    **{f"k={number}": f"k = {number}" for number in NEIGHBOURS},
}


@dataclass(frozen=True, eq=False)
class Issues:
    """The issues of one configuration: hits of every selector [P], rates of right trajectories, and what was measured."""

    name: str
    problems: list[Hashable]
    rate: Floats
    oracle: Floats
    hits: dict[str, Floats]
    missing: dict[str, str]
    within: Floats  # the correlation of |S| with being right in each issue; NaN where there is none
    measured: list[MeasuredIssue]
    correct: list[NDArray[np.bool_]]

    @property
    def mixed(self) -> NDArray[np.bool_]:
        return (self.rate > 0) & (self.rate < 1)


def issues_of(name: str, panels: list[Panel]) -> Issues:
    measured: list[MeasuredIssue] = []
    correct: list[NDArray[np.bool_]] = []
    for panel in panels:
        measured += panel.map(measure, few=2_000)
        correct += [np.array(marks.correct, bool) for marks in panel.marks.values()]
    names = [one for one in {**SELECTORS, **ABLATIONS} if all(one in m.scores for m in measured)]
    hits = {
        one: np.array(
            [(share if one == DRAWN else hit)(m.scores[one], right) for m, right in zip(measured, correct, strict=True)]
        )
        for one in names
    }
    reasons = {one: why for m in measured for one, why in m.missing.items() if one not in hits}
    return Issues(
        name,
        [problem for panel in panels for problem in clusters(panel)],
        np.array([right.mean() for right in correct]),
        np.array([float(right.any()) for right in correct]),
        hits,
        reasons,
        np.array([correlation(m.facts["fired"], right) for m, right in zip(measured, correct, strict=True)]),
        measured,
        correct,
    )


def pooled(parts: list[Issues]) -> Issues:
    names = [name for name in parts[0].hits if all(name in part.hits for part in parts)]
    reasons = {name: why for part in parts for name, why in part.missing.items()}
    return Issues(
        "all",
        [problem for part in parts for problem in part.problems],
        np.concatenate([part.rate for part in parts]),
        np.concatenate([part.oracle for part in parts]),
        {name: np.concatenate([part.hits[name] for part in parts]) for name in names},
        reasons,
        np.concatenate([part.within for part in parts]),
        [one for part in parts for one in part.measured],
        [one for part in parts for one in part.correct],
    )


def correlation(x: Floats, right: NDArray[np.bool_]) -> float:
    """Pearson's r of a number and being right; NaN where one of them does not vary."""
    known = np.isfinite(x)
    a, b = x[known], right[known].astype(float)
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def over_mixed(issues: Issues, columns: Mapping[str, Floats], options: Options) -> Resampled | None:
    """Means of columns over the mixed issues; None where there is none, or a column has no number."""
    table = np.column_stack(list(columns.values()))[issues.mixed]
    if not len(table) or not np.isfinite(table).any(0).all():
        return None
    inside = [problem for problem, mixed in zip(issues.problems, issues.mixed, strict=True) if mixed]
    return resample(table, inside, resamples=options.draws, seed=options.seed)


def main_table(every: list[Issues], options: Options) -> Table:
    rows = []
    for one in every:
        columns = {
            "avg": one.rate,
            "rad": one.hits["rad"],
            "lift": one.hits["rad"] - one.rate,
            "floor": one.hits[DRAWN],
        }
        result = over_mixed(one, columns, options)
        mixed, means = one.mixed, (None,) * 4 if result is None else tuple(map(float, result.estimate))
        test = poisson_binomial_test(one.rate[mixed], one.hits["rad"][mixed]) if mixed.any() else None
        average, rad = float(one.rate.mean()), float(one.hits["rad"].mean())
        rows.append(
            Row(
                (
                    Cell(one.name),
                    Cell(len(one.rate), "count"),
                    Cell(int(mixed.sum()), "count"),
                    shown(means[0], "percent"),
                    shown(means[3], "percent"),
                    shown(means[1], "percent"),
                    shown(means[2], "points", None if result is None else result.interval(2)),
                    missing("no issue is mixed") if test is None else Cell(test.p, "p"),
                    Cell(average, "percent"),
                    Cell(rad, "percent"),
                    Cell(rad - average, "points"),
                    Cell(float(one.oracle.mean()), "percent"),
                ),
                "here",
            )
        )
    oracles = {"Qwen3.6-35B-A3B": 0.698, "gpt-oss-120B": 0.758, "gpt-oss-20B": 0.688}
    for row in printed("swebench"):
        values = [percent(row[name]) for name in ("mix_avg", "mix_rad", "mix_delta", "all_avg", "all_rad", "all_delta")]
        floor = missing("not printed")
        mixed_cells = (shown(values[0], "percent"), floor, shown(values[1], "percent"), shown(values[2], "points"))
        all_cells = (shown(values[3], "percent"), shown(values[4], "percent"), shown(values[5], "points"))
        counts = (Cell(500, "count"), Cell(int(row["n_mix"]), "count"))
        oracle = shown(oracles.get(row["model"]), "percent")
        name = Cell(row["model"])
        rows.append(Row((name, *counts, *mixed_cells, missing("not printed"), *all_cells, oracle), "the paper, N = 16"))
    heads = (
        *(Column("configuration"), Column("issues"), Column("mixed"), Column("Avg, mixed")),
        *(Column("with a patch, mixed"), Column("RAD, mixed")),
        *(
            Column("lift, mixed", "95% CI"),
            Column("Holm p"),
            Column("Avg, all"),
            Column("RAD, all"),
            Column("lift, all"),
        ),
        Column("oracle"),
    )
    notes = (
        "The lift over all issues is that on mixed ones times their share, up to issues on which RAD abstains: the others "
        "do not depend on who is picked. Beside the average of all stands that of those with a patch. p is the Poisson-binomial test on the mixed issues, exact and one-sided.",
        HOLM,
    )
    return Table("agent", "One patch of N: mixed issues and all", heads, by_holm(rows, 7), notes, "comparison")


def selector_table(every: list[Issues], options: Options, names: Mapping[str, str], key: str, title: str) -> Table:
    rows = []
    for one in every:
        for name, words in names.items():
            if name not in one.hits:
                why = one.missing.get(name, "not measured")
                rows.append(Row((Cell(words), *[missing(why)] * 4), one.name))
                continue
            own = one.hits[name]
            columns = {"hit": own, "lift": own - one.rate, "rad": own - one.hits["rad"]}
            result, mixed = over_mixed(one, columns, options), one.mixed
            test = poisson_binomial_test(one.rate[mixed], own[mixed]) if mixed.any() and name != DRAWN else None
            values = (None,) * 3 if result is None else tuple(map(float, result.estimate))
            intervals = (None,) * 3 if result is None else tuple(result.interval(i) for i in range(3))
            cells = (
                shown(values[0], "percent"),
                shown(values[1], "points", intervals[1]),
                missing("no issue is mixed" if name != DRAWN else "a mean") if test is None else Cell(test.p, "p"),
                missing("itself") if name == "rad" else shown(values[2], "points", intervals[2]),
            )
            rows.append(Row((Cell(words), *cells), one.name))
    heads = (
        Column("selector"),
        Column("right"),
        Column("lift", "95% CI"),
        Column("Holm p"),
        Column("minus RAD", "95% CI"),
    )
    note = f"p is the Poisson-binomial test, exact and one-sided. {HOLM}"
    return Table(key, title, heads, by_holm(rows, 3), (note,))


def patched_table(every: list[Issues], options: Options) -> Table:
    """What selectors gain over a random trajectory that has a patch."""
    rows = []
    for one in every:
        for name in PATCHED:
            if name not in one.hits:
                why = one.missing.get(name, "not measured")
                rows.append(Row((Cell(SELECTORS[name]), *[missing(why)] * 2), one.name))
                continue
            result = over_mixed(one, {"hit": one.hits[name], "gain": one.hits[name] - one.hits[DRAWN]}, options)
            values = (None,) * 2 if result is None else tuple(map(float, result.estimate))
            gain = shown(values[1], "points", None if result is None else result.interval(1))
            rows.append(Row((Cell(SELECTORS[name]), shown(values[0], "percent"), gain), one.name))
    heads = (Column("selector"), Column("right"), Column("minus a random one with a patch", "95% CI"))
    return Table("agent-patched", "Is it more than leaving a patch? Mixed issues", heads, tuple(rows))


def added_table(every: list[Issues], options: Options) -> Table:
    """What RAD adds to each selector that reads no routing: their rank sum minus the selector alone."""
    rows = []
    for one in every:
        for other in ADDED:
            both = f"rad+{other}"
            if both not in one.hits:
                rows.append(
                    Row((Cell(SELECTORS[other]), *[missing(one.missing.get(both, "not measured"))] * 3), one.name)
                )
                continue
            columns = {"alone": one.hits[other], "both": one.hits[both], "added": one.hits[both] - one.hits[other]}
            result = over_mixed(one, columns, options)
            values = (None,) * 3 if result is None else tuple(map(float, result.estimate))
            cells = (shown(values[0], "percent"), shown(values[1], "percent"))
            added = shown(values[2], "points", None if result is None else result.interval(2))
            rows.append(Row((Cell(SELECTORS[other]), *cells, added), one.name))
    heads = (Column("without routing"), Column("alone"), Column("with RAD"), Column("RAD adds", "95% CI"))
    return Table("agent-added", "Does routing add to what is free? Mixed issues, ranks added", heads, tuple(rows))


def length_table(every: list[Issues], options: Options) -> Table:
    rows = []
    for one in every:
        facts = {name: np.concatenate([m.facts[name] for m in one.measured]) for name in ("fired", "steps", "without")}
        right = np.concatenate(one.correct)
        steps = [one.hits[name] - one.rate for name in ("fewest-steps", "most-steps")]
        result = over_mixed(one, {"r": one.within, "rad": one.hits["rad"] - one.rate}, options)
        best = max((float(own[one.mixed].mean()) for own in steps), default=np.nan) if one.mixed.any() else None
        cells = (
            shown(_pearson(facts["fired"], facts["steps"]), "number"),
            shown(correlation(facts["fired"], right), "number"),
            shown(None if result is None else float(result.estimate[0]), "number"),
            shown(best, "points"),
            shown(None if result is None else float(result.estimate[1]), "points"),
            Cell(int(facts["without"].sum()), "count"),
        )
        rows.append(Row((Cell(one.name), *cells), "here"))
    for row in printed("swe-length"):
        numbers = (Cell(float(row[name]), "number") for name in ("r_step", "r_pooled", "r_within"))
        lifts = (shown(percent(row[name]), "points") for name in ("step_lift", "rad_lift"))
        rows.append(Row((Cell(row["model"]), *numbers, *lifts, missing("not printed")), "the paper"))
    heads = ("configuration", "r(|S|, steps)", "r(|S|, right)", "within issues", "better of steps", "RAD")
    columns = tuple(map(Column, (*heads, "steps without a boundary")))
    notes = ("|S| is the number of (layer, expert) pairs of a fingerprint. Lifts are on mixed issues.",)
    return Table("agent-lengths", "Is it the length?", columns, tuple(rows), notes, "comparison")


def _pearson(x: Floats, y: Floats) -> float:
    known = np.isfinite(x) & np.isfinite(y)
    if known.sum() < 3 or np.ptp(x[known]) == 0 or np.ptp(y[known]) == 0:
        return float("nan")
    return float(np.corrcoef(x[known], y[known])[0, 1])


def size_table(every: list[Issues], options: Options) -> Table:
    rows = []
    for one in every:
        cells = []
        for size in SIZES:
            rates = np.array([m.rates[size] for m in one.measured])
            result = over_mixed(one, {"lift": rates - one.rate}, options)
            value = None if result is None else float(result.estimate[0])
            cells.append(shown(value, "points", None if result is None else result.interval(0), note="too few"))
        rows.append(Row((Cell(one.name), *cells)))
    columns = (Column("configuration"), *(Column(f"N = {size}", "95% CI") for size in SIZES))
    notes = ("Over random sub-cohorts of the located trajectories of mixed issues, k = 4.",)
    return Table(
        "agent-sizes", "Lift over a random trajectory by the number of trajectories", columns, tuple(rows), notes
    )


def charts(every: list[Issues], options: Options) -> tuple[Chart, ...]:
    series = []
    for one in every:
        names = [name for name in SELECTORS if name in one.hits]
        result = over_mixed(one, {name: one.hits[name] - one.rate for name in names}, options)
        if result is not None:
            low, high = zip(*(result.interval(i) for i in range(len(names))), strict=True)
            values, words = (100 * result.estimate).tolist(), [SELECTORS[name] for name in names]
            series.append(Series(one.name, words, values, [100 * x for x in low], [100 * x for x in high]))
    if not series:
        return ()
    zero = Line(0.0, "random", "x")
    plot = Plot("rows", x="lift over a random trajectory (points)", series=series, lines=(zero,))
    return (Chart("agent", "Which selector picks patches that pass?", (plot,)),)
