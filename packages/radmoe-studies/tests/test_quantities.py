"""Pooling keeps problems as clusters, and nothing that is not a number reaches a table, a figure or a rule."""

from __future__ import annotations

import numpy as np

from planted_panels import panel
from radmoe.evaluation.table import Cell, missing
from radmoe_studies.base import Options
from radmoe_studies.quantities import by_configuration, mean_cell, mean_of, number, pooled, series, usable
from radmoe_studies.resample import Quantity

OPTIONS = Options(resamples=300)


def test_configurations_stand_in_their_order_and_all_of_them_last() -> None:
    one, other, again = panel(style="thinking"), panel(style="instruct"), panel(style="thinking", dataset="math-3")
    groups = by_configuration([one, other, again])
    assert list(groups) == ["lab-qwen thinking", "lab-qwen instruct", "all"]
    assert groups["lab-qwen thinking"] == [one, again]
    assert groups["all"] == [one, other, again]


def test_a_problem_of_two_configurations_is_one_cluster_and_one_without_a_number_is_none() -> None:
    one, other = panel(problems=20), panel(problems=20, style="instruct")
    table = np.arange(20.0)[:, None]
    table[:4] = np.nan
    made = pooled([one, other], {one: table, other: table}, OPTIONS)
    assert made is not None
    assert made.n == 16
    assert made.estimate[0] == np.arange(4, 20).mean()
    assert pooled([one], {one: np.full((20, 1), np.nan)}, OPTIONS) is None
    assert pooled([], {}, OPTIONS) is None


def test_a_rule_is_not_asked_about_few_problems_or_few_draws() -> None:
    draws, many = np.linspace(0, 1, 300), frozenset(range(40))
    assert usable(Quantity(0.5, draws, frozenset(range(4)))) is None
    assert usable(Quantity(np.nan, draws, many)) is None
    assert usable(Quantity(0.5, np.where(draws > 0.4, np.nan, draws), many)) is None
    kept = usable(Quantity(0.5, np.where(draws > 0.9, np.nan, draws), many))
    assert kept is not None
    assert np.isfinite(kept.draws).all()
    assert mean_of(None, 0) is None


def test_cells_and_figures_hold_numbers_alone() -> None:
    assert number(np.nan).value is None
    assert number(np.nan, why="nobody answered").note == "nobody answered"
    assert mean_cell(None, 0).value is None
    cell = number(0.5, draws=np.append(np.linspace(0.4, 0.6, 301), np.nan))
    assert cell.low is not None
    assert abs(cell.low - 0.405) < 1e-9
    points = series("one", [1, 2, 3], [cell, missing("none"), Cell(0.25, "percent")], 100.0)
    assert list(points.x) == [1, 3]
    assert list(points.y) == [50.0, 25.0]
    assert points.low is not None
    assert points.low[1] == 25.0  # no interval: the point itself
