"""Numbers with their bootstrap draws, for rules, and as cells of tables and points of figures without NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from radmoe.evaluation.table import Cell, missing
from radmoe_studies.base import Options
from radmoe_studies.decision import FEWEST
from radmoe_studies.evidence import Floats, Panel
from radmoe_studies.pooling import configuration, groups, problems_of
from radmoe_studies.report.figures import Series
from radmoe_studies.resample import Quantity, Resampled, interval, resample

ALL = "all"
DRAWS = 100  # finite draws that a rule needs
Number = Literal["percent", "points", "number", "p"]


def by_configuration(panels: Sequence[Panel]) -> dict[str, list[Panel]]:
    """The panels of each configuration, in order, and all of them."""
    return groups(panels, configuration) | {ALL: list(panels)}


def pooled(panels: Sequence[Panel], tables: Mapping[Panel, Floats], options: Options) -> Resampled | None:
    """Means of the columns of tables [P, C] over all problems of the panels; None where no problem has a number.

    A problem that several configurations answered is one cluster, and a problem without a number is none.
    """
    if not panels:
        return None
    rows = np.concatenate([tables[panel] for panel in panels])
    known = np.isfinite(rows).any(1)
    if not known.any():
        return None
    own = [problem for problem, inside in zip(problems_of(panels), known, strict=True) if inside]
    return resample(rows[known], own, resamples=options.draws, seed=options.seed)


def usable(quantity: Quantity) -> Quantity | None:
    """A quantity with its finite draws alone; None where there are too few problems or draws for a rule."""
    finite = quantity.draws[np.isfinite(quantity.draws)]
    enough = len(finite) >= max(DRAWS, len(quantity.draws) // 2) and np.isfinite(quantity.estimate)
    return replace(quantity, draws=finite) if enough and quantity.n >= FEWEST else None


def mean_of(resampled: Resampled | None, column: int) -> Quantity | None:
    """The mean of a column; None where there are too few problems or draws for a rule."""
    return None if resampled is None else usable(resampled.mean(column))


def number(value: float, unit: Number = "number", draws: Floats | None = None, why: str = "no problem has one") -> Cell:
    """A cell with a number and the interval of its draws; where there is no number, the cell says why."""
    if not np.isfinite(value):
        return missing(why)
    finite = np.empty(0) if draws is None else draws[np.isfinite(draws)]
    if len(finite) < DRAWS:
        return Cell(float(value), unit)
    return Cell(float(value), unit, *interval(finite))


def mean_cell(
    resampled: Resampled | None, column: int, unit: Number = "number", why: str = "no problem has one"
) -> Cell:
    """A column's mean with its interval."""
    if resampled is None:
        return missing(why)
    return number(float(resampled.estimate[column]), unit, resampled.draws[:, column], why)


def series(name: str, x: Sequence[float | str], cells: Sequence[Cell], scale: float = 1.0) -> Series:
    """Cells as points of a figure, with their intervals; a cell without a number is left out."""
    points = [
        (place, cell.value, cell.low, cell.high)
        for place, cell in zip(x, cells, strict=True)
        if isinstance(cell.value, float)
    ]
    return Series(
        name,
        [place for place, *_ in points],
        [scale * value for _, value, _, _ in points],
        [scale * (value if low is None else low) for _, value, low, _ in points],
        [scale * (value if high is None else high) for _, value, _, high in points],
    )
