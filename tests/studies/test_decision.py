"""Rules decide for a claim, against it, or not at all, and are corrected for their number."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.errors import InputError
from radmoe.studies.decision import Claim, Decision, Verdict, above, all_of, all_within, below, corrected, within

CLAIM = Claim("a.b", "Something is above zero.", "+1", "Sec. 1", "above 0")
DRAWS = np.random.default_rng(0).normal(0.0, 1.0, 2_000)


@pytest.mark.parametrize(
    ("shift", "verdict"), [(4.0, Verdict.SUPPORTS), (0.5, Verdict.CANNOT_TELL), (-4.0, Verdict.REFUTES)]
)
def test_above_zero(shift: float, verdict: Verdict) -> None:
    made = above(CLAIM, shift, DRAWS + shift, n=50, unit="points")
    assert made.verdict == verdict
    assert made.low < made.estimate < made.high


def test_below_is_above_turned_round() -> None:
    up, down = (rule(CLAIM, 4.0, DRAWS + 4.0, n=50, unit="points") for rule in (above, below))
    assert (up.p_for, up.p_against) == (down.p_against, down.p_for)
    assert down.verdict == Verdict.REFUTES


@pytest.mark.parametrize(
    ("shift", "spread", "verdict"),
    [(0.0, 0.1, Verdict.SUPPORTS), (0.0, 2.0, Verdict.CANNOT_TELL), (3.0, 0.5, Verdict.REFUTES)],
)
def test_zero_up_to_a_margin_needs_a_narrow_interval(shift: float, spread: float, verdict: Verdict) -> None:
    assert within(CLAIM, shift, DRAWS * spread + shift, n=50, unit="points", margin=1.0).verdict == verdict


def test_an_order_holds_only_if_every_part_does() -> None:
    strong, weak, wrong = (above(CLAIM, s, DRAWS + s, n=50, unit="r") for s in (5.0, 0.3, -5.0))
    assert all_of(CLAIM, [strong, strong]).verdict == Verdict.SUPPORTS
    assert all_of(CLAIM, [strong, weak]).verdict == Verdict.CANNOT_TELL
    assert all_of(CLAIM, [strong, wrong]).verdict == Verdict.REFUTES


@given(st.lists(st.floats(-4, 4), min_size=1, max_size=8))
def test_correction_never_makes_a_verdict_of_what_was_none(shifts: list[float]) -> None:
    raw = [above(CLAIM, s, DRAWS + s, n=50, unit="r") for s in shifts]
    for before, after in zip(raw, corrected(raw), strict=True):
        assert after.adjusted_for is not None
        assert after.adjusted_for >= before.p_for
        assert after.verdict in (before.verdict, Verdict.CANNOT_TELL)


@pytest.mark.parametrize("rule", [above, below, partial(within, margin=1.0)])
def test_a_handful_of_problems_decides_nothing(rule: Callable[..., Decision]) -> None:
    assert rule(CLAIM, 4.0, DRAWS + 4.0, n=9, unit="points").verdict == Verdict.CANNOT_TELL


def test_a_rule_without_draws_is_refused() -> None:
    with pytest.raises(InputError, match="100 or more finite draws"):
        above(CLAIM, 1.0, [1.0, np.nan], n=2, unit="r")


def test_many_quantities_are_within_a_margin_only_if_each_is() -> None:
    rng = np.random.default_rng(0)
    noise = 0.002 * rng.standard_normal((500, 80))
    inside = np.zeros(80)
    assert all_within(CLAIM, inside, inside + noise, n=50, unit="points", margin=0.01).verdict is Verdict.SUPPORTS
    one = inside.copy()
    one[7] = -0.03
    made = all_within(CLAIM, one, one + noise, n=50, unit="points", margin=0.01)
    assert made.verdict is Verdict.REFUTES
    assert made.estimate == -0.03
    assert made.p_against == pytest.approx(1 / 501)  # Bonferroni over 80 could not refute with 500 draws


def test_noise_in_many_quantities_refutes_nothing() -> None:
    """The furthest of 80 noisy zeros is beyond the margin nearly always; that alone must not count against a claim."""
    rng = np.random.default_rng(1)
    refuted = 0
    for _ in range(40):
        estimates = 0.02 * rng.standard_normal(80)
        draws = estimates + 0.02 * rng.standard_normal((300, 80))
        refuted += all_within(CLAIM, estimates, draws, n=50, unit="points", margin=0.01).verdict is Verdict.REFUTES
    assert refuted <= 4
