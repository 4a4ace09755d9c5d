"""Fitting how sure a pick is: planted probabilities are found again, and only by problems that were not fitted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planted_pools import graded_pool
from radmoe.certainty import FEATURES, features
from radmoe.errors import InputError
from radmoe.evaluation.calibrate import (
    Graded,
    brier,
    calibrate,
    calibration_error,
    cross_validated,
    error_by_chance,
    fit,
    logistic,
    measures,
)
from radmoe.evaluation.coverage import risk, tables
from radmoe.grading.labels import Label, write_labels
from radmoe.lab import planted
from radmoe.lab.planted import Planted
from radmoe.pool import open_pool
from radmoe.selector import select
from radmoe.types import RouterShape

SHAPE = RouterShape(4, 16, 2)


def graded(n: int = 600, seed: int = 0, weights: tuple[float, ...] = (1.5, 0, 0.5, 0, 0)) -> Graded:
    """Picks that are right with a known probability: the logistic function of their features."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, len(FEATURES)))
    right = rng.random(n) < 1 / (1 + np.exp(-(0.4 + values @ np.array(weights))))
    return Graded(values, right, tuple(("set", str(i)) for i in range(n)))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = Planted(problems=40, rollouts=8, tokens=20, shape=SHAPE)
    return graded_pool(tmp_path_factory.mktemp("graded") / "pool", list(planted.groups(recipe)), task="sums")


def test_a_planted_model_is_found_again() -> None:
    picks = graded(4000)
    model = logistic(picks.values, picks.right)
    assert model.weights / model.scales == pytest.approx([1.5, 0, 0.5, 0, 0], abs=0.15)
    truth = 1 / (1 + np.exp(-(0.4 + picks.values @ np.array([1.5, 0, 0.5, 0, 0]))))
    assert np.abs(model(picks.values) - truth).max() < 0.1


def test_a_feature_that_would_lower_the_probability_has_no_weight() -> None:
    picks = graded(2000, weights=(1.0, -2.0, 0, 0, 0))
    weights = logistic(picks.values, picks.right).weights
    assert weights[1] == 0
    assert weights[0] > 0.5
    assert (weights >= 0).all()


def test_a_constant_feature_has_no_weight() -> None:
    picks = graded(200)
    values = picks.values.copy()
    values[:, -1] = 6.0
    fitted = fit(picks._replace(values=values))
    assert fitted.weights[-1] == 0
    assert fitted.rollouts == (64, 64)
    assert 0 < fitted.probability(values[0]) < 1


def test_forecasts_beat_the_base_rate_where_there_is_something_to_know() -> None:
    measured = measures(cross_validated("math", graded(1500)))
    assert measured["brier"] < measured["brier_base"] - 0.03
    assert measured["brier"] < measured["brier_share"] - 0.03
    assert measured["error"] < 0.05


def test_forecasts_of_noise_do_not_beat_the_base_rate() -> None:
    measured = measures(cross_validated("math", graded(300, weights=(0, 0, 0, 0, 0))))
    assert measured["brier"] > measured["brier_base"] - 0.005


def test_a_problem_that_pools_share_is_in_one_fold() -> None:
    picks = graded(100)
    twice = Graded(
        np.concatenate([picks.values] * 2), np.concatenate([picks.right] * 2), (*picks.problems, *picks.problems)
    )
    forecast = cross_validated("math", twice)
    assert np.allclose(forecast.sure[:100], forecast.sure[100:])  # both by the model that saw neither


def test_the_calibration_error_of_perfect_probabilities_is_what_chance_shows() -> None:
    rng = np.random.default_rng(1)
    sure = rng.random(5000)
    right = rng.random(5000) < sure
    assert calibration_error(sure, right) < 2 * error_by_chance(sure)
    assert calibration_error(np.clip(sure + 0.2, 0, 1), right) > 0.1
    assert calibration_error(np.ones(50), np.ones(50, bool)) == 0
    assert brier(np.array([0.25]), np.array([True])).tolist() == [0.5625]


def test_probabilities_that_say_nothing_are_called_so(pool: Path, tmp_path: Path) -> None:
    path = graded_pool(tmp_path / "p", list(planted.groups(Planted(problems=40, rollouts=4, tokens=20, shape=SHAPE))))
    opened = open_pool(path)
    density = {group.problem_id: features(select(group))[0] for group in opened.groups()}
    middle = np.median(list(density.values()))
    labels = [Label(p, i, "1", density[p] < middle) for p in opened.problems for i in opened.rollout_indices(p)]
    write_labels(path, labels)  # dense picks are wrong ones, which a model that rises with density cannot say
    assert any("do not rely on them" in note for note in calibrate([path]).notes)
    assert not any("do not rely on them" in note for note in calibrate([pool]).notes)


def test_risk_is_that_of_the_surest_and_ties_share_theirs() -> None:
    sure, right = np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, False, True, False])
    assert [risk(sure, right, n) for n in (1, 2, 3, 4)] == pytest.approx([0, 0.25, 1 / 3, 0.5])
    for shuffled in (np.array([3, 2, 1, 0]), np.array([2, 0, 3, 1])):
        assert risk(sure[shuffled], right[shuffled], 2) == 0.25


def test_a_pool_is_calibrated_by_its_own_picks(pool: Path) -> None:
    made = calibrate([pool], options={"k": 4, "readout": None})
    assert made.calibration.options == {"k": 4}
    assert made.calibration.model == "planted"
    assert made.calibration.checkpoint is None
    fitted = made.calibration.kinds["math"]
    picks = [select(group, k=4) for group in open_pool(pool).groups()]
    assert fitted.picks == sum(pick.index is not None for pick in picks)
    densities = np.array([features(pick)[0] for pick in picks if pick.index is not None])
    assert fitted.dense.picks == (densities >= fitted.dense.density).sum() >= len(densities) // 3
    for group in open_pool(pool).groups():
        assert made.calibration.select(group).index == select(group, k=4).index
    again = calibrate([pool], options={"k": 4})
    assert again.calibration == made.calibration


def test_every_table_says_what_cross_validation_found(pool: Path) -> None:
    made = calibrate([pool])
    scores, risks, weights = tables(made, resamples=200)
    assert [row.cells[0].value for row in scores.rows] == ["math"]
    forecast = made.forecasts[0]
    assert scores.rows[0].cells[2].value == pytest.approx(forecast.right.mean())
    assert len(risks.rows) == 10
    assert risks.rows[0].cells[3].value == pytest.approx(1 - forecast.right.mean())
    assert [cell.value for cell in weights.rows[0].cells[1:6]] == list(made.calibration.kinds["math"].weights)


def test_a_calibration_is_checked_on_pools_it_was_not_fitted_on(pool: Path, tmp_path: Path) -> None:
    recipe = Planted(problems=30, rollouts=8, tokens=20, shape=SHAPE, seed=5)
    fresh = graded_pool(tmp_path / "fresh", list(planted.groups(recipe)), task="others")
    made, alone = calibrate([pool], check=[fresh]), calibrate([pool])
    assert made.calibration == alone.calibration
    (forecast,) = made.forecasts
    picks = [pick for group in open_pool(fresh).groups() if (pick := made.calibration.select(group)).index is not None]
    assert forecast.sure.tolist() == pytest.approx([pick.probability for pick in picks])
    assert {dataset for dataset, _ in forecast.problems} == {"others"}
    assert set(forecast.base) == {made.calibration.kinds["math"].right / made.calibration.kinds["math"].picks}
    assert "On pools that were not fitted" in tables(made, resamples=200)[0].notes[0]
    with pytest.raises(InputError, match="is given twice"):
        calibrate([pool], check=[pool])


@pytest.mark.parametrize(("right", "message"), [(True, "40 picks are right"), (False, "0 of ")])
def test_picks_that_are_all_right_or_all_wrong_cannot_be_fitted(
    right: bool, message: str, pool: Path, tmp_path: Path
) -> None:
    recipe = Planted(problems=40, rollouts=4, tokens=20, shape=SHAPE)
    path = graded_pool(tmp_path / "p", list(planted.groups(recipe)))
    opened = open_pool(path)
    write_labels(path, [Label(p, i, "1", right) for p in opened.problems for i in opened.rollout_indices(p)])
    with pytest.raises(InputError, match=r"nothing to fit: .* a fit needs 3 right and 3 wrong ones"):
        calibrate([path])


def test_too_few_picks_and_several_models_are_refused(pool: Path, tmp_path: Path) -> None:
    few = graded_pool(tmp_path / "few", list(planted.groups(Planted(problems=5, rollouts=4, tokens=20, shape=SHAPE))))
    with pytest.raises(InputError, match="5 picks are too few, 20 are needed"):
        calibrate([few])
    other = graded_pool(
        tmp_path / "other", list(planted.groups(Planted(problems=2, rollouts=4, seed=1, shape=SHAPE))), model="other"
    )
    with pytest.raises(InputError, match="a calibration is for one model, the pools are of planted, other"):
        calibrate([pool, other])
    with pytest.raises(InputError, match="2 folds or more, got 1"):
        calibrate([pool], folds=1)


def test_pools_of_one_name_and_different_weights_are_refused(tmp_path: Path) -> None:
    paths = [
        graded_pool(
            tmp_path / name,
            list(planted.groups(Planted(problems=2, rollouts=4, seed=seed, tokens=20, shape=SHAPE))),
            provenance={"checkpoint": name * 64},
        )
        for seed, name in enumerate("ab")
    ]
    with pytest.raises(InputError, match=r"planted with different weights \(aaaaaaaaaaaa, bbbbbbbbbbbb\)"):
        calibrate(paths)
