"""The tables of a calibration: whether it is calibrated, its Brier scores, its curves, and risk by coverage."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from radmoe.evaluation.stats import cluster_bootstrap
from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe.selection.curves import Curve
from radmoe.system.printing import visible
from radmoe_studies.calibration.fit import (
    MEASURED,
    Bools,
    Calibrated,
    Floats,
    Forecast,
    brier,
    calibration_error,
    error_by_chance,
)

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
ALL = "all"
MOST_GAP = 0.05  # between mean probability and share of right picks, unless chance explains it
FEWEST_PICKS = 300  # that this gap is judged on
MOST_ERROR = 1.5  # times the error by chance
SMALL, MOST_RIGHT = 0.01, 0.03  # of picks with a smaller probability at most this share may be right


def tables(calibrated: Calibrated, *, resamples: int = 10_000, seed: int = 0) -> tuple[Table, ...]:
    """Every table of a calibration. Intervals resample problems."""
    return (
        _verdicts(calibrated, resamples, seed),
        _scores(calibrated, resamples, seed),
        _risks(calibrated, resamples, seed),
        _curves(calibrated),
    )


def pooled(calibrated: Calibrated, size: int) -> Iterator[tuple[str, Forecast]]:
    """The forecasts for one number of rollouts by kind, and all of them as one where there are several kinds."""
    own = [forecast.of(size) for forecast in calibrated.forecasts if (forecast.sizes == size).any()]
    for forecast in own:
        yield forecast.kind, forecast
    if len(own) > 1:
        yield ALL, together(own)


def together(forecasts: list[Forecast]) -> Forecast:
    """Several forecasts as one."""
    columns = zip(*((f.sizes, f.right, f.sure, f.base) for f in forecasts), strict=True)
    sizes, right, sure, base = map(np.concatenate, columns)
    return Forecast(forecasts[0].kind, sizes, right, tuple(name for f in forecasts for name in f.problems), sure, base)


def measured_on(calibrated: Calibrated) -> str:
    """Says on which picks the tables are measured."""
    return "On pools that were not fitted" if calibrated.checked else "Cross-validated over problems"


def risk(probability: Floats, right: Bools, count: int) -> float:
    """The share of wrong picks among the `count` surest. Of equally sure picks at the limit, the expected share counts."""
    level = np.sort(probability)[-count]
    above, tied = probability > level, probability == level
    wrong = float((~right[above]).sum()) + (count - int(above.sum())) * float((~right[tied]).mean())
    return wrong / count


def _clusters(forecast: Forecast) -> list[str]:
    return ["\0".join(problem) for problem in forecast.problems]


def _verdicts(calibrated: Calibrated, resamples: int, seed: int) -> Table:
    """Whether the probabilities of all kinds together pass three tests, for each number of rollouts."""
    rows = []
    for size in calibrated.sizes:
        f = list(pooled(calibrated, size))[-1][1]
        gap = cluster_bootstrap(f.sure, _clusters(f), y=f.right.astype(float), resamples=resamples, seed=seed)
        error, chance = calibration_error(f.sure, f.right), error_by_chance(f.sure)
        small = f.right[f.sure < SMALL]
        near = abs(gap.estimate) <= MOST_GAP or gap.low <= 0 <= gap.high
        few = "" if len(f.right) >= FEWEST_PICKS else " (few)"
        lines = (
            (
                "mean - right",
                len(f.right),
                Cell(gap.estimate, "points", gap.low, gap.high),
                Cell(f"{100 * MOST_GAP:.0f} or 0 in CI"),
                ("pass" if near else "FAIL") + few,
            ),
            (
                "10-bin error",
                len(f.right),
                Cell(error, "percent"),
                Cell(f"{100 * MOST_ERROR * chance:.1f}"),
                "pass" if error <= MOST_ERROR * chance else "FAIL",
            ),
            (
                f"right if < {SMALL}",
                len(small),
                Cell(float(small.mean()), "percent") if len(small) else Cell(None, note="no such pick"),
                Cell(f"{100 * MOST_RIGHT:.0f}"),
                "pass" if not len(small) or small.mean() <= MOST_RIGHT else "FAIL",
            ),
        )
        rows += [
            Row((Cell(name), Cell(count, "count"), value, most, Cell(verdict)), f"N = {size}")
            for name, count, value, most, verdict in lines
        ]
    columns = (Column("test"), Column("picks"), Column("value", "95% CI"), Column("at most"), Column("verdict"))
    notes = (
        f"{measured_on(calibrated)}, one pick of each problem among N random rollouts, all kinds together; in percent. The first "
        "test compares the mean probability with the share of right picks, the second allows "
        f"{MOST_ERROR} times the error that faultless probabilities show by chance, the third looks at picks below {SMALL}. "
        f"Fewer than {FEWEST_PICKS} picks are few.",
    )
    return Table(
        "verdicts",
        f"Is it calibrated: {visible(str(calibrated.calibration.origin))}",
        columns,
        tuple(rows),
        notes,
        "comparison",
    )


def _scores(calibrated: Calibrated, resamples: int, seed: int) -> Table:
    rows = []
    for size in calibrated.sizes:
        for name, f in pooled(calibrated, size):
            own = brier(f.sure, f.right)
            gap = cluster_bootstrap(own, _clusters(f), y=brier(f.base, f.right), resamples=resamples, seed=seed)
            rows.append(
                Row(
                    (
                        Cell(name),
                        Cell(len(f.right), "count"),
                        Cell(float(f.sure.mean()), "percent"),
                        Cell(float(f.right.mean()), "percent"),
                        Cell(calibration_error(f.sure, f.right), "percent"),
                        Cell(error_by_chance(f.sure), "percent"),
                        Cell(float(own.mean()), "percent"),
                        Cell(gap.estimate, "points", gap.low, gap.high),
                    ),
                    f"N = {size}",
                )
            )
    columns = (
        *map(Column, ("kind", "picks", "probability", "right", "error", "by chance", "Brier")),
        Column("- base rate's", "95% CI"),
    )
    notes = (
        f"{measured_on(calibrated)}, in percent. The calibration error is the mean gap between probability and share of right "
        "picks, in bins with as many picks each. Brier scores (times 100) are better when lower: a difference below 0 says that "
        "the calibration is better than giving every pick the share of right ones in its task.",
    )
    return Table("calibration", "How well probabilities are calibrated", columns, tuple(rows), notes, "comparison")


def _risks(calibrated: Calibrated, resamples: int, seed: int) -> Table:
    rows = []
    size = calibrated.sizes[-1]
    for name, f in pooled(calibrated, size):
        clusters = np.array(_clusters(f))
        order = np.argsort(-f.sure, kind="stable")
        for share in SHARES:
            count = max(1, round(share * len(f.right)))
            kept = order[:count]
            cell = Cell(float((~f.right[kept]).mean()), "percent")
            if len(set(clusters[kept])) > 1:
                wrong = cluster_bootstrap(~f.right[kept], clusters[kept], resamples=resamples, seed=seed)
                cell = Cell(wrong.estimate, "percent", wrong.low, wrong.high)
            rows.append(
                Row(
                    (
                        Cell(f"{share:.0%}"),
                        Cell(count, "count"),
                        Cell(float(f.sure[kept].min()), "percent"),
                        cell,
                        Cell(risk(f.base, f.right, count), "percent"),
                    ),
                    name,
                )
            )
    columns = (
        *map(Column, ("coverage", "picks", "probability from")),
        Column("wrong", "95% CI"),
        Column("by base rate"),
    )
    notes = (
        f"Percent wrong among the surest picks of {size} rollouts each: by the calibration's probability, and by the base rate "
        "of their tasks alone. With the probability of a row, --abstain-below keeps about that share of the picks.",
    )
    return Table("risk-coverage", "Risk by coverage", columns, tuple(rows), notes, "comparison")


def _curves(calibrated: Calibrated) -> Table:
    rows = []
    for kind, fit in calibrated.calibration.kinds.items():
        for curve in fit.curves:
            if curve.rollouts not in MEASURED and curve is not fit.curves[-1]:
                continue
            low, high = (1 - math.exp(-close) for close in (curve.low, curve.high))
            ends = [Cell(fit.probability(curve.rollouts, own), "percent") for own in (low, high)]
            similarities = (Cell(f"{low:.3f}"), Cell(f"{high:.3f}"))
            rows.append(
                Row((Cell(curve.rollouts, "count"), *similarities, *ends, *_dense(curve)), f"{kind}: {fit.what}")
            )
    columns = (
        *map(Column, ("N", "similarity from", "to", "probability from", "to ", "dense from", "dense picks")),
        Column("wrong", "95% CI"),
    )
    notes = (
        "The similarities of the fitted picks, and the probabilities at both ends. Dense picks are the third of the graded ones "
        "with the highest: those of them that are wrong are dense wrong basins, where rollouts share one error. Routing "
        "cannot tell these from right ones.",
    )
    return Table("curves", "What was fitted", columns, tuple(rows), notes, "comparison")


def _dense(curve: Curve) -> tuple[Cell, Cell, Cell]:
    dense = curve.dense
    return (
        Cell(f"{dense.density:.3f}"),
        Cell(dense.picks, "count"),
        Cell(dense.wrong / dense.picks, "percent", *dense.interval),
    )
