"""What a calibration is worth, as tables: its error and Brier scores, its weights, and risk by coverage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from radmoe.certainty import FEATURES
from radmoe.evaluation.calibrate import Bools, Calibrated, Floats, Forecast, brier, calibration_error, error_by_chance
from radmoe.evaluation.table import Cell, Column, Row, Table
from radmoe.stats import cluster_bootstrap

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
ALL = "all"


def tables(calibrated: Calibrated, *, resamples: int = 10_000, seed: int = 0) -> tuple[Table, ...]:
    """Every table of a calibration. Intervals resample problems."""
    return (
        _scores(calibrated, resamples, seed),
        _risks(calibrated, resamples, seed),
        _weights(calibrated),
    )


def pooled(calibrated: Calibrated) -> Iterator[tuple[str, Forecast]]:
    """The forecasts by kind, and all of them as one where there are several kinds."""
    for forecast in calibrated.forecasts:
        yield forecast.kind, forecast
    if len(calibrated.forecasts) > 1:
        columns = zip(*((f.right, f.sure, f.share, f.base) for f in calibrated.forecasts), strict=True)
        right, sure, share, base = map(np.concatenate, columns)
        problems = tuple(problem for f in calibrated.forecasts for problem in f.problems)
        yield ALL, Forecast(calibrated.forecasts[0].kind, right, problems, sure, share, base)


def measured_on(calibrated: Calibrated) -> str:
    """Which picks the tables are of."""
    return "On pools that were not fitted" if calibrated.checked else "Cross-validated over problems"


def risk(probability: Floats, right: Bools, count: int) -> float:
    """The share of wrong ones among the `count` surest picks. Of equally sure ones, as many as fit, in expectation."""
    level = np.sort(probability)[-count]
    above, tied = probability > level, probability == level
    wrong = float((~right[above]).sum()) + (count - int(above.sum())) * float((~right[tied]).mean())
    return wrong / count


def _clusters(forecast: Forecast) -> list[str]:
    return ["\0".join(problem) for problem in forecast.problems]


def _scores(calibrated: Calibrated, resamples: int, seed: int) -> Table:
    rows = []
    for name, f in pooled(calibrated):
        own = brier(f.sure, f.right)
        gaps = [
            cluster_bootstrap(own, _clusters(f), y=brier(other, f.right), resamples=resamples, seed=seed)
            for other in (f.base, f.share)
        ]
        rows.append(
            Row(
                (
                    Cell(name),
                    Cell(len(f.right), "count"),
                    Cell(float(f.right.mean()), "percent"),
                    Cell(calibration_error(f.sure, f.right), "percent"),
                    Cell(error_by_chance(f.sure), "percent"),
                    Cell(float(own.mean()), "percent"),
                    *(Cell(gap.estimate, "points", gap.low, gap.high) for gap in gaps),
                )
            )
        )
    columns = (
        *map(Column, ("kind", "picks", "right", "error", "by chance", "Brier")),
        Column("- base rate's", "95% CI"),
        Column("- share's", "95% CI"),
    )
    notes = (
        f"{measured_on(calibrated)}, in percent. The calibration error is the mean gap between probability and share of "
        "right picks, in bins with as many picks each; by chance is what faultless probabilities would show at this size. "
        "Brier scores (times 100) are better when lower: a difference below 0 says that the calibration is better than the "
        "share of right picks alone (base rate), and than a model of the basin's share alone.",
    )
    return Table("calibration", "How well probabilities are calibrated", columns, tuple(rows), notes, "comparison")


def _risks(calibrated: Calibrated, resamples: int, seed: int) -> Table:
    rows = []
    for name, f in pooled(calibrated):
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
                        Cell(risk(f.share, f.right, count), "percent"),
                    ),
                    name,
                )
            )
    columns = (
        *map(Column, ("coverage", "picks", "probability from")),
        Column("wrong", "95% CI"),
        Column("by share alone"),
    )
    notes = (
        "Percent wrong among the surest picks: by the calibration's probability, and by the basin's share alone. With the "
        "probability of a row, --abstain-below keeps about that share of the picks.",
    )
    return Table("risk-coverage", "Risk by coverage", columns, tuple(rows), notes, "comparison")


def _weights(calibrated: Calibrated) -> Table:
    rows: Sequence[Row] = [
        Row(
            (
                Cell(kind),
                *(Cell(weight, "number") for weight in fit.weights),
                Cell(f"{fit.dense.density:.3f}"),
                Cell(fit.dense.picks, "count"),
                Cell(fit.dense.wrong / fit.dense.picks, "percent", *fit.dense.interval),
            )
        )
        for kind, fit in calibrated.calibration.kinds.items()
    ]
    columns = (
        *map(Column, ("kind", *FEATURES, "dense from", "dense picks")),
        Column("wrong", "95% CI"),
    )
    notes = (
        "Weights are per standard deviation of a feature, and none is negative. Dense picks are the densest third of the "
        "graded ones: those of them that are wrong are dense wrong basins, where rollouts share one error. Routing cannot "
        "tell these from right ones.",
    )
    return Table("weights", "What the probability is made of", columns, tuple(rows), notes, "comparison")
