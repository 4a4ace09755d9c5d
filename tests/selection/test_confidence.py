"""DeepConf's scalars, against slow and obvious versions of themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from radmoe.errors import InputError
from radmoe.selection import confidence

TOKENS = npst.arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 30))


def windows(values: np.ndarray, width: int) -> list[float]:
    if len(values) < width:
        return [float(np.mean(values))]
    return [float(np.mean(values[i : i + width])) for i in range(len(values) - width + 1)]


def test_token_confidence_is_minus_the_mean_logprob() -> None:
    assert confidence.token_confidence(np.array([[-1.0, -3.0], [-2.0, -2.5]])) == pytest.approx([2.0, 2.25])


def test_candidates_of_probability_zero_do_not_count() -> None:
    assert confidence.token_confidence(np.array([[-1.0, -np.inf], [-np.inf, -np.inf]])) == pytest.approx([1.0, 0.0])


@given(TOKENS, st.integers(1, 20))
def test_window_scalars_equal_the_obvious_ones(values: np.ndarray, width: int) -> None:
    means = sorted(windows(values, width))
    count = max(1, int(0.1 * len(means)))
    assert confidence.bottom_window(values, width) == pytest.approx(np.mean(means[:count]), abs=1e-9)
    assert confidence.lowest_window(values, width) == pytest.approx(means[0], abs=1e-9)
    assert confidence.tail(values, width) == pytest.approx(np.mean(values[-width:]))
    assert confidence.mean(values) == pytest.approx(np.mean(values))


def test_a_rollout_shorter_than_the_window_uses_its_plain_mean() -> None:
    logprobs = -np.random.default_rng(0).random((300, 20))
    expected = float(np.mean(-logprobs.mean(axis=1)))
    for scalar in ("mean", "tail", "bottom-window", "lowest-window"):
        assert confidence.rollout_confidence(logprobs, scalar) == pytest.approx(expected)


def test_the_default_window_is_deepconfs() -> None:
    """Recipe: deepconf 0.1.0, calculate_bottom_window_confidence: 2,048-token windows, lowest tenth."""
    values = np.concatenate([np.full(2048, 4.0), np.full(2048, 2.0)])
    ramp = np.linspace(4.0, 2.0, 2049)
    lowest = np.sort(ramp)[:204]
    assert confidence.bottom_window(values) == pytest.approx(lowest.mean())


@pytest.mark.parametrize(
    ("logprobs", "message"),
    [
        (np.zeros((0, 3)), "not empty"),
        (np.zeros(4), r"got shape \(4,\)"),
        (np.array([[np.nan]]), "NaN"),
    ],
)
def test_unusable_logprobs_are_refused(logprobs: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        confidence.token_confidence(logprobs)


def test_an_unknown_scalar_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="use one of mean, tail, bottom-window, lowest-window"):
        confidence.rollout_confidence(np.zeros((3, 3)), "median")


@pytest.mark.parametrize("tokens", [1, 100, 2047, 2048, 2049, 4000])
def test_every_scalar_is_each_scalar(tokens: int) -> None:
    of = np.random.default_rng(tokens).gamma(2.0, 1.0, tokens)
    assert confidence.every_scalar(of) == {
        name: scalar(of, confidence.WINDOW) for name, scalar in confidence.SCALARS.items()
    }
