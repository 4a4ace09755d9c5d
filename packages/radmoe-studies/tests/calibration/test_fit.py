"""Fitting how sure a pick is: planted probabilities are found again, and only by problems that were not fitted."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planted_pools import graded_pool
from radmoe.errors import InputError
from radmoe.grading.labels import Label, write_labels
from radmoe.pool import Pool, open_pool
from radmoe.selection.calibration import agreement
from radmoe.selection.rule import Rule
from radmoe.selection.selector import select, similarity
from radmoe.types import RolloutGroup, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.calibration.fit import (
    brier,
    calibrate,
    calibration_error,
    cross_validated,
    error_by_chance,
    fit,
    held_out,
    logistic,
    measures,
)
from radmoe_studies.calibration.picks import Graded, Name
from radmoe_studies.calibration.tables import risk, tables

SHAPE = RouterShape(4, 16, 2)
SHIFTS = {8: 0.0, 16: 0.5, 64: 1.0}  # by which picks among more rollouts are denser, and no more often right


def graded(n: int = 600, seed: int = 0, slope: float = 1.5, shift: float = 0.4) -> Graded:
    """Picks that are right with a known probability: the logistic function of their closeness among so many rollouts."""
    rng = np.random.default_rng(seed)
    columns: list[Any] = []
    for size, own in SHIFTS.items():
        close = rng.normal(2.0, 0.4, n)
        right = rng.random(n) < truth(close, slope, shift)
        columns.append((np.full(n, size), np.zeros(n, np.int64), 1 - np.exp(-close - own), right))
    sizes, draws, density, marks = (np.concatenate(own) for own in zip(*columns, strict=True))
    return Graded(sizes, draws, density, marks, tuple(Name("set", str(i)) for i in range(n)) * len(SHIFTS))


def truth(close: Any, slope: float = 1.5, shift: float = 0.4) -> Any:
    return 1 / (1 + np.exp(-(shift + slope * (close - 2.0) / 0.4)))


def agreeing(pool: Pool, n: int) -> dict[str, float]:
    """How much the n rollouts of each problem agree before their marker."""
    setting = replace(Rule().settle("math", n), readout="pre-delim@32")
    return {group.problem_id: agreement(similarity(group, setting)[0]) for group in pool.groups()}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = Planted(problems=40, rollouts=16, tokens=20, shape=SHAPE)
    return graded_pool(tmp_path_factory.mktemp("graded") / "pool", list(planted.groups(recipe)), task="sums")


def test_a_planted_curve_is_found_again_for_every_number_of_rollouts() -> None:
    fitted = fit(graded(4000))
    assert [curve.rollouts for curve in fitted.curves] == list(SHIFTS)
    for size, own in SHIFTS.items():
        for close in (1.3, 2.0, 2.7):
            found = fitted.probability(size, float(1 - np.exp(-close - own)))
            assert found == pytest.approx(truth(close), abs=0.04)


def test_picks_among_fewer_rollouts_are_judged_by_picks_among_as_few() -> None:
    # What shipped once had log2(N) for a feature, fitted at N = 63 and 64: at 16 it said 6.6e-70.
    picks = graded(2000)
    few, fitted = picks.where(picks.sizes == 16), fit(picks)
    sure = [fitted.probability(16, float(own)) for own in few.similarity]
    assert abs(np.mean(sure) - few.right.mean()) < 0.01
    assert min(sure) > 0.001


def test_a_density_that_would_lower_the_probability_has_no_slope() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2000)
    assert logistic(x, rng.random(2000) < 1 / (1 + np.exp(x))).slope == 0
    assert logistic(x, rng.random(2000) < 1 / (1 + np.exp(-x))).slope == pytest.approx(1.0, abs=0.2)
    assert logistic(np.ones(50), rng.random(50) < 0.5).slope == 0


def test_a_problem_with_many_draws_counts_once() -> None:
    x, y = np.array([0.0, 1.0] * 50), np.array([False, True] * 50)
    once, thrice = logistic(x, y), logistic(np.repeat(x, 3), np.repeat(y, 3), np.full(300, 1 / 3))
    assert thrice == pytest.approx(once, abs=1e-4)


def test_picks_that_are_all_right_are_not_said_to_be_certain() -> None:
    picks = graded(100)
    fitted = fit(picks._replace(right=np.ones(len(picks.right), bool)))
    assert 0.95 < fitted.probability(64, 0.95) <= 1 - 1 / 102
    nobody = fit(picks._replace(right=np.zeros(len(picks.right), bool)))
    assert 1 / 102 <= nobody.probability(64, 0.95) < 0.05


@pytest.mark.slow
def test_forecasts_beat_the_base_rate_where_there_is_something_to_know() -> None:
    measured = measures(cross_validated("math", graded(1500)))
    assert measured["brier"] < measured["brier_base"] - 0.03
    assert measured["error"] < 0.05


def test_forecasts_of_noise_do_not_beat_the_base_rate() -> None:
    measured = measures(cross_validated("math", graded(300, slope=0.0)))
    assert measured["brier"] > measured["brier_base"] - 0.005


def test_the_base_rate_is_that_of_each_task() -> None:
    easy, hard = graded(200, slope=0.0, shift=2.0), graded(200, seed=1, slope=0.0, shift=-2.0)
    hard = hard._replace(problems=tuple(Name("hard", name.problem_id) for name in hard.problems))
    both = Graded(
        *(np.concatenate(own) for own in list(zip(easy, hard, strict=True))[:4]), easy.problems + hard.problems
    )  # type: ignore[arg-type]
    base = held_out("math", both, both).base
    assert ((base > 0.8) == np.array([name.task == "set" for name in both.problems])).all()
    assert ((base > 0.8) | (base < 0.2)).all()


@pytest.mark.slow
def test_a_problem_that_pools_share_is_in_one_fold() -> None:
    picks = graded(100)
    arrays = [np.concatenate([values] * 2) for values in picks[:4]]
    twice = Graded(*arrays, picks.problems * 2)  # type: ignore[arg-type]
    forecast = cross_validated("math", twice)
    seen: dict[tuple[object, ...], set[float]] = {}
    for name, size, sure in zip(forecast.problems, forecast.sizes.tolist(), forecast.sure.tolist(), strict=True):
        seen.setdefault((name, size), set()).add(round(sure, 9))
    assert {len(own) for own in seen.values()} == {1}  # both by the curves that saw neither


def test_the_calibration_error_of_perfect_probabilities_is_what_chance_shows() -> None:
    rng = np.random.default_rng(1)
    sure = rng.random(5000)
    right = rng.random(5000) < sure
    assert calibration_error(sure, right) < 2 * error_by_chance(sure)
    assert calibration_error(np.clip(sure + 0.2, 0, 1), right) > 0.1
    assert calibration_error(np.ones(50), np.ones(50, bool)) == 0
    assert brier(np.array([0.25]), np.array([True])).tolist() == [0.5625]


@pytest.mark.slow
def test_probabilities_that_say_nothing_are_called_so(pool: Path, tmp_path: Path) -> None:
    path = graded_pool(tmp_path / "p", list(planted.groups(Planted(problems=40, rollouts=8, tokens=20, shape=SHAPE))))
    opened = open_pool(path)
    # Picks are right where rollouts agree least, at the answer and before it, which a model that rises with agreement cannot say.
    sums = {p: a + float(np.nanmax(select(opened.group(p)).density)) for p, a in agreeing(opened, 8).items()}
    middle = np.median(list(sums.values()))
    write_labels(path, [Label(p, i, "1", sums[p] < middle) for p in opened.problems for i in range(8)])
    assert any("are no better than" in note for note in calibrate([path]).notes)
    assert not any("are no better than" in note for note in calibrate([pool]).notes)


def test_risk_is_that_of_the_surest_and_ties_share_theirs() -> None:
    sure, right = np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, False, True, False])
    assert [risk(sure, right, n) for n in (1, 2, 3, 4)] == pytest.approx([0, 0.25, 1 / 3, 0.5])
    for shuffled in (np.array([3, 2, 1, 0]), np.array([2, 0, 3, 1])):
        assert risk(sure[shuffled], right[shuffled], 2) == 0.25


@pytest.mark.slow
def test_a_pool_is_calibrated_by_picks_among_all_rollouts_and_among_random_subsets(pool: Path) -> None:
    made = calibrate([pool], rule=Rule(k=4))
    assert made.calibration.rule == Rule(preset="paper", k=4)
    assert made.calibration.origin.model == "planted"
    assert made.calibration.tasks == ("sums",)
    fitted = made.calibration.kinds["math"]
    assert [curve.rollouts for curve in fitted.curves] == [8, 9, 10, 11, 12, 14, 16]
    assert made.sizes == [8, 16]
    picks = [select(group, k=4) for group in open_pool(pool).groups()]
    densities = np.array([pick.density[pick.index] for pick in picks if pick.index is not None])
    whole = fitted.near(16)
    assert whole.dense.picks == (densities >= whole.dense.density).sum() >= len(densities) // 3
    assert fitted.problems == len(densities)
    assert calibrate([pool], rule=Rule(k=4)).calibration == made.calibration


@pytest.mark.slow
@pytest.mark.parametrize("rollouts", [8, 11, 13, 16])
def test_a_subset_of_a_pool_has_a_probability_near_its_share_of_right_picks(pool: Path, rollouts: int) -> None:
    calibration = calibrate([pool]).calibration
    truths = {
        made.group.problem_id: made
        for made in planted.groups(Planted(problems=40, rollouts=16, tokens=20, shape=SHAPE))
    }
    sure, right = [], []
    for group in open_pool(pool).groups():
        part = RolloutGroup(group.problem_id, group.rollouts[:rollouts], group.shape, group.vocab, group.kind)
        pick = calibration.select(part)
        if pick.probability is not None:
            assert pick.index is not None
            made = truths[group.problem_id]
            sure.append(pick.probability)
            right.append(made.answers[pick.index] == made.truth)
    assert len(sure) > 20
    assert abs(np.mean(sure) - np.mean(right)) < 0.15
    assert min(sure) >= 1 / 42
    small = [RolloutGroup(g.problem_id, g.rollouts[:5], g.shape, g.vocab, g.kind) for g in open_pool(pool).groups()]
    assert {calibration.select(group).probability for group in small} == {None}


@pytest.mark.slow
def test_every_table_says_what_cross_validation_found(pool: Path) -> None:
    made = calibrate([pool])
    verdicts, scores, risks, curves = tables(made, resamples=200)
    assert [row.section for row in verdicts.rows] == ["N = 8"] * 3 + ["N = 16"] * 3
    assert {str(row.cells[-1].value).split()[0] for row in verdicts.rows} <= {"pass", "FAIL"}
    assert [row.cells[0].value for row in scores.rows] == ["math", "math"]
    forecast = made.forecasts[0].of(16)
    gap, error, small = verdicts.rows[3:]
    assert gap.cells[2].value == pytest.approx(forecast.sure.mean() - forecast.right.mean())
    assert str(gap.cells[-1].value).endswith("(few)")
    assert error.cells[2].value == pytest.approx(calibration_error(forecast.sure, forecast.right))
    assert small.cells[1].value == (forecast.sure < 0.01).sum()
    assert scores.rows[1].cells[3].value == pytest.approx(forecast.right.mean())
    assert len(risks.rows) == 10
    assert risks.rows[0].cells[3].value == pytest.approx(1 - forecast.right.mean())
    assert [row.cells[0].value for row in curves.rows] == [8, 16]


@pytest.mark.slow
def test_probabilities_that_are_too_high_fail_the_check() -> None:
    from radmoe.selection.calibration import Calibration
    from radmoe.selection.origin import Origin
    from radmoe_studies.calibration.fit import Calibrated

    picks = graded(8000)
    honest = held_out("math", picks, graded(600, seed=3))
    calibration = Calibration(Origin("m"), Rule(), {"math": fit(picks)})
    low = replace_sure(honest, np.full(len(honest.sure), 0.005))
    for forecast, verdicts in (
        (honest, ["pass"] * 3),
        (replace_sure(honest, np.clip(honest.sure + 0.2, 0, 1)), ["FAIL", "FAIL", "pass"]),
        (low, ["FAIL"] * 3),
    ):
        (table, *_) = tables(Calibrated(calibration, (forecast,)), resamples=200)
        assert [row.cells[-1].value for row in table.rows] == verdicts * len(SHIFTS)


def replace_sure(forecast: Any, sure: Any) -> Any:
    return forecast._replace(sure=sure)


@pytest.mark.slow
def test_a_calibration_is_checked_on_pools_it_was_not_fitted_on(pool: Path, tmp_path: Path) -> None:
    recipe = Planted(problems=30, rollouts=16, tokens=20, shape=SHAPE, seed=5)
    fresh = graded_pool(tmp_path / "fresh", list(planted.groups(recipe)), task="others")
    made, alone = calibrate([pool], check=[fresh]), calibrate([pool])
    assert made.calibration == alone.calibration
    forecast = made.forecasts[0].of(16)
    fit_of = replace(made.calibration.kinds["math"], located=0.0)
    calibration = replace(made.calibration, kinds={"math": fit_of})
    picks = [pick for group in open_pool(fresh).groups() if (pick := calibration.select(group)).probability is not None]
    assert forecast.sure.tolist() == pytest.approx([pick.probability for pick in picks], abs=1e-5)
    assert {name.task for name in forecast.problems} == {"others"}
    with pytest.raises(InputError):
        calibrate([pool], check=[pool])


@pytest.mark.slow
def test_what_tells_most_on_problems_that_were_not_fitted_is_taken(pool: Path, tmp_path: Path) -> None:
    # Every rollout of a problem is right where the rollouts agree before their answer, which the density of a pick does not say.
    path = tmp_path / "pool"
    shutil.copytree(pool, path)
    opened, plain = open_pool(path), calibrate([pool]).calibration
    agrees = agreeing(opened, 16)
    middle = np.median(list(agrees.values()))
    write_labels(
        path, [Label(p, i, "1", agrees[p] > middle) for p in opened.problems for i in opened.rollout_indices(p)]
    )
    made = calibrate([path])
    assert plain.kinds["math"].evidence == ""
    assert made.calibration.kinds["math"].evidence == "pre-delim@32"
    assert made.calibration.kinds["math"].tells
    shown = made.forecasts[0].of(16)
    group = next(iter(opened.groups()))
    sure = made.calibration.select(group).probability
    assert shown.sure.mean() == pytest.approx(0.5, abs=0.1)
    assert sure is None or (sure > 0.5) == (agrees[group.problem_id] > middle)


def test_too_few_picks_and_several_models_are_refused(pool: Path, tmp_path: Path) -> None:
    few = graded_pool(tmp_path / "few", list(planted.groups(Planted(problems=5, rollouts=4, tokens=20, shape=SHAPE))))
    with pytest.raises(InputError, match="5 problems with a pick are too few, 20 are needed"):
        calibrate([few])
    other = graded_pool(
        tmp_path / "other", list(planted.groups(Planted(problems=2, rollouts=4, seed=1, shape=SHAPE))), model="other"
    )
    with pytest.raises(
        InputError,
        match="it was fitted for planted, these rollouts are of other",
    ):
        calibrate([pool, other])
    with pytest.raises(InputError, match="2 folds or more, got 1"):
        calibrate([pool], folds=1)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            {"provenance": {"checkpoint": "a" * 64}},
            {"provenance": {"checkpoint": "b" * 64}},
            r"planted \(bbbbbbbbbbbb\)",
        ),
        ({"style": "low"}, {"style": "high"}, "fitted for style low, these rollouts have style high"),
        ({"sampling": {"top_p": 1.0}}, {"sampling": {"top_p": 0.9}}, "top-p 1, these rollouts have top-p 0.9"),
    ],
)
def test_pools_of_different_weights_styles_or_sampling_are_refused(
    first: dict[str, Any], second: dict[str, Any], message: str, tmp_path: Path
) -> None:
    paths = [
        graded_pool(
            tmp_path / name,
            list(planted.groups(Planted(problems=2, rollouts=4, seed=seed, tokens=20, shape=SHAPE))),
            **options,
        )
        for seed, (name, options) in enumerate((("a", first), ("b", second)))
    ]
    with pytest.raises(InputError, match=message):
        calibrate(paths)
