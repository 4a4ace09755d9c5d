"""Panels put together: pools, clusters, and cells that never hold a number that is none."""

from __future__ import annotations

import numpy as np
import pytest

from planted_panels import panel
from radmoe.evaluation.table import Cell, Row
from radmoe_studies.pooling import (
    QWEN_THINKING,
    THINKING,
    Rows,
    adjusted,
    by_holm,
    clusters,
    configuration,
    groups,
    of_pool,
    others,
    shown,
    stack,
    stars_of,
)

MATH, CODE = panel(problems=5, n=4), panel(problems=3, n=4, kind="code", dataset="code")


def test_pools_are_domains_and_groups_keep_their_order() -> None:
    assert of_pool([MATH, CODE], "well-posed") == [MATH]
    assert of_pool([MATH, CODE], "code") == [CODE]
    other = panel(problems=5, n=4, style="instruct")
    assert list(groups([other, MATH, CODE], configuration)) == ["lab-qwen instruct", "lab-qwen thinking"]


def test_one_problem_is_one_cluster_in_every_configuration_but_not_in_another_set() -> None:
    other = panel(problems=5, n=4, style="instruct", seed=1)
    assert clusters(MATH) == clusters(other)
    assert not set(clusters(MATH)) & set(clusters(CODE))


def test_rows_without_any_number_are_left_out() -> None:
    rows = stack([MATH, CODE], lambda one: np.where(np.arange(len(one)) == 0, np.nan, 1.0))
    assert rows.table.shape == (6, 1)
    assert ("math-2", "math-2-000") not in rows.problems
    assert stack([], lambda one: np.zeros(len(one))).table.shape == (0, 1)


def test_a_column_that_has_no_number_at_all_gives_no_means() -> None:
    assert Rows(np.array([[1.0, np.nan]]), ["a"]).resampled(200, 0) is None
    assert Rows(np.empty((0, 1)), []).resampled(200, 0) is None
    result = Rows(np.array([[1.0], [0.0]]), ["a", "b"]).resampled(200, 0)
    assert result is not None
    assert result.estimate.tolist() == [0.5]


@pytest.mark.parametrize("value", [None, np.nan, np.inf])
def test_what_is_no_number_is_an_empty_cell_that_says_why(value: float | None) -> None:
    cell = shown(value, "percent", (0.0, 1.0), note="nobody answered")
    assert (cell.value, cell.low, cell.note) == (None, None, "nobody answered")


def test_an_interval_without_numbers_is_not_shown_and_stars_follow_p() -> None:
    assert shown(0.5, "percent", (np.nan, np.nan)).low is None
    assert [stars_of(p) for p in (0.2, 0.04, 0.009, 0.0001)] == ["", "*", "**", "***"]


def test_instruct_is_told_by_style_or_by_the_models_name_and_everything_else_is_thinking_class() -> None:
    styles = {style: panel(problems=2, n=4, style=style) for style in ("thinking", "instruct", "low", "high", "")}
    assert [name for name, one in styles.items() if THINKING.holds(one)] == ["thinking", "low", "high", ""]
    named = panel(problems=2, n=4, model="Qwen/Qwen3-30B-A3B-Instruct-2507", style="")
    assert not THINKING.holds(named)
    qwen = [panel(problems=2, n=4, model=model, style="thinking") for model in ("lab-qwen", "lab-next")]
    effort = panel(problems=2, n=4, model="lab-oss", style="high")
    assert [QWEN_THINKING.holds(one) for one in (*qwen, effort, styles["instruct"])] == [True, True, False, False]
    beside = others([*qwen, effort, styles["instruct"]], QWEN_THINKING)
    assert beside == {"other thinking-class configurations": [effort], "instruct configurations": [styles["instruct"]]}


def test_holm_is_over_the_p_values_that_there_are() -> None:
    rows = [Row((Cell(name), Cell(p, "p"))) for name, p in (("a", 0.01), ("b", None), ("c", 0.04))]
    assert adjusted([0.01, None, 0.04]) == [0.02, None, 0.04]
    assert [row.cells[1].value for row in by_holm(rows, 1)] == [0.02, None, 0.04]
    assert adjusted([None]) == [None]
    assert stars_of(None) == ""


def test_an_interval_without_width_is_none() -> None:
    assert (shown(0.0, "points", (0.0, 0.0)).low, shown(0.0, "points", (-0.1, 0.0)).low) == (None, -0.1)
    assert shown(0.0, "points", (np.nan, 0.1)).low is None
