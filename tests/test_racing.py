"""The race of rollouts: what the bar is, who falls below it and when."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.errors import InputError
from radmoe.racing import Bar, Racing, running_likelihood

logprobs = st.lists(st.floats(-20, 0, width=32), min_size=1, max_size=30).map(lambda x: np.array(x, np.float32))


def test_likelihood_so_far_is_the_mean_of_the_tokens_so_far_and_stays_behind_the_end() -> None:
    running = running_likelihood([np.array([-1, -3, -2], np.float32), np.array([-4], np.float32)])
    assert running.tolist() == [[-1, -2, -2], [-4, -4, -4]]


def test_the_bar_is_the_median_at_the_same_place_from_a_share_of_the_median_length_on() -> None:
    warm_up = [np.array(x, np.float32) for x in ([-1] * 8, [-2] * 8, [-9] * 8, [-3, -1] * 6)]
    bar = Racing(warm_up=4, after=0.3).bar(warm_up)
    assert bar.start == 3  # 0.3 of 8 tokens is 2.4
    assert bar.least.tolist() == pytest.approx([np.median([-1, -2, -9, x]) for x in running_likelihood(warm_up)[3]])
    assert bar.padded(4).tolist() == [-np.inf, -np.inf, bar.least[2], bar.least[3]]
    assert bar.padded(20)[-1] == bar.least[-1]


def test_a_rollout_is_given_up_at_the_first_token_that_puts_it_below() -> None:
    bar = Bar(2, np.full(10, -1.0))
    assert bar.given_up(np.array([-9, 0, 0, 0, 0], np.float32)) == 2  # before, nobody looks
    assert bar.given_up(np.array([-1, -1, -1.5, -1, -9], np.float32)) == 3
    assert bar.given_up(np.array([-1, -1, -1, -9], np.float32)) is None  # its last token: it has finished
    assert bar.given_up(np.array([-9], np.float32)) is None


@given(st.lists(logprobs, min_size=2, max_size=9), logprobs, st.floats(0, 1))
def test_who_is_given_up_was_below_at_that_token_and_never_before(
    warm_up: list[np.ndarray], one: np.ndarray, after: float
) -> None:
    rule = Racing(after=after)
    bar = rule.bar(warm_up)
    cut = bar.given_up(one)
    below = [
        bool(np.mean(one[:t], dtype=np.float64) < np.median([np.mean(w[:t], dtype=np.float64) for w in warm_up]) - 1e-9)
        for t in range(1, len(one))
    ]
    if cut is not None:
        assert rule.start([len(w) for w in warm_up]) <= cut < len(one)
        assert not any(below[bar.start - 1 : cut - 1])
    else:
        assert not any(below[bar.start - 1 :])


@given(st.lists(logprobs, min_size=2, max_size=9))
def test_at_every_token_half_of_the_warm_up_is_at_the_bar_or_above(warm_up: list[np.ndarray]) -> None:
    bar = Racing().bar(warm_up)
    above = (running_likelihood(warm_up) >= bar.least - 1e-9).sum(axis=0)
    assert (2 * above >= len(warm_up)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warm_up": 1}, "warm_up must be a whole number of rollouts from 2 up, got 1"),
        ({"patience": 0}, "patience must be a whole number of rollouts from 1 up, got 0"),
        ({"warm_up": True}, "got True"),
        ({"after": 1.5}, r"after must lie in \[0, 1\]: it is a share of a rollout's length, got 1.5"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Racing(**options)  # type: ignore[arg-type]
