"""Sub-cohorts: drawn fairly and reproducibly, and every pick is the one that selection would make in them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import hypergeom

from planted_panels import panel
from radmoe.errors import InputError
from radmoe.evaluation.baselines import most_frequent
from radmoe.selection.readout import Reading
from radmoe.selection.selector import choose
from radmoe_studies.evidence import Panel, Read, Request
from radmoe_studies.subcohorts import (
    ANY,
    CHANCE,
    DC,
    FUSED,
    MAJORITY,
    ORACLE,
    RAD,
    SubcohortCell,
    SubcohortProblem,
    hit_rates,
    problem_key,
)

DELIMITER = Request("delimiter@16")
SAMPLES = 25


def small(**options: object) -> Panel:
    return panel(problems=5, n=24, requests=(DELIMITER,), **options)  # type: ignore[arg-type]


def prepared(one: Panel, row: int) -> tuple[SubcohortProblem, NDArray[np.bool_]]:
    read = one.read(DELIMITER)
    inside = read.located[row]
    S = read.values[row][np.ix_(inside, inside)]
    return SubcohortProblem.of(
        S, one.correct[row, inside], one.answer[row, inside], one.scalars["cbw"][row, inside]
    ), inside


def by_selection(one: Panel, row: int, cell: SubcohortCell) -> dict[int, float]:
    """What each selector scores in the same sub-cohorts, by `radmoe.selection.selector` and plain NumPy."""
    problem, inside = prepared(one, row)
    numbers = np.flatnonzero(inside)
    confidence = one.scalars["cbw"][row]
    hits: dict[int, list[float]] = {RAD: [], DC: [], FUSED: [], MAJORITY: []}
    for sample in range(SAMPLES):
        drawn = numbers[problem.members(cell, sample, problem_key(one, row), 3)]
        S = one.read(DELIMITER).values[row][np.ix_(drawn, drawn)]
        group = SimpleNamespace(rollout_indices=tuple(range(len(drawn))), rollouts=drawn, vocab=None)
        reading = Reading(S, np.ones(len(drawn), bool), (None,) * len(drawn))
        for method, way in ((RAD, None), (FUSED, "conf50")):
            pick = choose(group, S, reading, replace(one.setting, fusion=way), confidence=confidence[drawn])  # type: ignore[arg-type]
            hits[method].append(one.correct[row, drawn[pick.index]])
        hits[DC].append(one.correct[row, drawn[np.argmax(confidence[drawn])]])
        tied = most_frequent([None if a < 0 else str(a) for a in one.answer[row, drawn]])
        hits[MAJORITY].append(float(np.mean(one.correct[row, drawn[list(tied)]])) if len(tied) else 0.0)
    return {method: float(np.mean(own)) for method, own in hits.items()}


@pytest.mark.parametrize(
    "cell",
    [
        SubcohortCell(2),
        SubcohortCell(3),
        SubcohortCell(8),
        SubcohortCell(16),
        SubcohortCell(8, 3),
        SubcohortCell(6, 0),
        SubcohortCell(7, 1),
    ],
)
@pytest.mark.parametrize("signal", [0.0, 0.2])
def test_every_pick_is_that_of_selection_in_the_same_subcohort(cell: SubcohortCell, signal: float) -> None:
    one = small(signal=signal, located=0.9, confidence=0.5, right=0.5)
    one.answer[:, ::7] = -1
    rates = hit_rates(one, DELIMITER, [cell], samples=SAMPLES, seed=3)
    for row in range(len(one)):
        for method, rate in by_selection(one, row, cell).items():
            assert rates[row, 0, method] == pytest.approx(rate), (row, method)


def test_ties_are_broken_as_selection_breaks_them() -> None:
    one = small(signal=0.0)
    read = one.read(DELIMITER)
    coarse = np.round(read.values * 4) / 4 + np.float32(1e-8) * np.arange(24, dtype=np.float32)
    tied = replace(one, reads={DELIMITER: Read(coarse.astype(np.float32), read.start)})
    tied.scalars["cbw"][:] = np.round(tied.scalars["cbw"])
    rates = hit_rates(tied, DELIMITER, [SubcohortCell(9)], samples=SAMPLES, seed=3)
    for row in range(len(tied)):
        for method, rate in by_selection(tied, row, SubcohortCell(9)).items():
            assert rates[row, 0, method] == pytest.approx(rate), (row, method)


def test_all_rollouts_are_one_subcohort_and_chance_and_oracle_are_exact() -> None:
    one = small(right=0.1)
    rates = hit_rates(one, DELIMITER, [SubcohortCell(24), SubcohortCell(6)], samples=SAMPLES)
    assert set(np.unique(rates[:, 0, [RAD, DC, FUSED]])) <= {0.0, 1.0}
    assert rates[:, :, CHANCE] == pytest.approx(np.repeat(one.correct.mean(1)[:, None], 2, 1))
    assert rates[:, 1, ORACLE] == pytest.approx([hypergeom.sf(0, 24, row.sum(), 6) for row in one.correct])


def test_results_depend_on_the_seed_and_not_on_threads_order_or_neighbours() -> None:
    one = small(signal=0.1)
    cells = [SubcohortCell(4), SubcohortCell(12)]
    rates = hit_rates(one, DELIMITER, cells, samples=SAMPLES)
    assert np.array_equal(rates, hit_rates(one, DELIMITER, cells, samples=SAMPLES, threads=3))
    assert np.array_equal(rates[:, 1:], hit_rates(one, DELIMITER, cells[1:], samples=SAMPLES))
    only = np.arange(5) == 3
    assert np.array_equal(rates[3], hit_rates(one, DELIMITER, cells, samples=SAMPLES, problems=only)[3])
    assert not np.array_equal(rates, hit_rates(one, DELIMITER, cells, samples=SAMPLES, seed=1))


@pytest.mark.parametrize("cell", [SubcohortCell(5), SubcohortCell(6, 2)])
def test_draws_are_distinct_have_the_right_ones_asked_for_and_are_fair(cell: SubcohortCell) -> None:
    correct = np.arange(12) < 4
    problem = SubcohortProblem.of(np.eye(12), correct, np.zeros(12, np.int64), None)
    draws = np.array([problem.members(cell, sample, 7, 0) for sample in range(6_000)])
    assert draws.shape == (6_000, cell.m)
    assert (np.diff(draws, axis=1) > 0).all()
    expected = np.full(12, cell.m / 12)
    if cell.right != ANY:
        assert (correct[draws].sum(1) == cell.right).all()
        expected = np.where(correct, cell.right / 4, (cell.m - cell.right) / 8)
    shares = np.bincount(draws.ravel(), minlength=12) / 6_000
    assert np.abs(shares - expected).max() < 5 * np.sqrt(0.25 / 6_000)
    pairs = np.array([np.isin([0, 1], row).all() for row in draws]).mean()
    both = 5 * 4 / (12 * 11) if cell.right == ANY else 1 / 6
    assert abs(pairs - both) < 5 * np.sqrt(0.25 / 6_000)


def test_what_is_not_there_is_no_number() -> None:
    one = small(located=0.3)
    without = replace(one, scalars={}, missing={"cbw": "no top-k logprobs"})
    rates = hit_rates(without, DELIMITER, [SubcohortCell(2), SubcohortCell(20)], samples=5)
    assert np.isnan(rates[:, 1]).all()
    assert np.isnan(rates[:, 0, [DC, FUSED]]).all()
    assert np.isfinite(rates[:, 0, [CHANCE, RAD, MAJORITY, ORACLE]]).all()
    code = panel(problems=2, n=8, requests=(DELIMITER,), kind="code")
    assert np.isnan(hit_rates(code, DELIMITER, [SubcohortCell(4)], samples=5)[:, 0, MAJORITY]).all()
    nowhere = panel(problems=2, n=8, requests=(DELIMITER,), located=0.0)
    assert np.isnan(hit_rates(nowhere, DELIMITER, [SubcohortCell(2), SubcohortCell(4, 1)], samples=5)).all()


@pytest.mark.parametrize("cell", [SubcohortCell(1), SubcohortCell(4, 5)])
def test_an_impossible_cell_is_refused(cell: SubcohortCell) -> None:
    with pytest.raises(InputError, match="2 or more rollouts"):
        hit_rates(small(), DELIMITER, [cell])
