"""Rules support a claim, refute it, or say why neither; corrections for the number of claims stand beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.errors import InputError
from radmoe.evaluation.stats import benjamini_hochberg, holm
from radmoe_studies.decision import (
    ALPHA,
    Claim,
    ClaimDecision,
    ClaimVerdict,
    above,
    all_of,
    all_within,
    below,
    changed,
    corrected,
    within,
)
from radmoe_studies.resample import Quantity

CLAIM = Claim("a.b", "Something is above one.", "+1", "Sec. 1", "above 1")
DRAWS = np.random.default_rng(0).normal(0.0, 1.0, 2_000)
one_up = partial(above, CLAIM, unit="points", threshold=1.0)


def known(estimate: float, spread: float = 1.0, n: int = 50) -> Quantity:
    return Quantity(estimate, DRAWS * spread + estimate, frozenset(range(n)))


def interval(low: float, estimate: float, high: float, n: int = 300) -> Quantity:
    """A quantity whose 95% interval is about the one given."""
    half = (high - low) / 2
    return Quantity(estimate, (low + high) / 2 + DRAWS / np.quantile(np.abs(DRAWS), 0.95) * half, frozenset(range(n)))


@pytest.mark.parametrize(
    ("estimate", "verdict"), [(5.0, ClaimVerdict.SUPPORTS), (1.5, ClaimVerdict.UNDECIDED), (-3.0, ClaimVerdict.REFUTES)]
)
def test_above_a_smallest_effect(estimate: float, verdict: ClaimVerdict) -> None:
    made = one_up(known(estimate))
    assert made.verdict == verdict
    assert made.low < made.estimate < made.high
    assert made.n == 50


def test_a_rule_without_a_smallest_effect_is_refused() -> None:
    for rule in (above, below):
        with pytest.raises(
            InputError, match=r"claim 'a\.b': a rule names the smallest effect that it asks for, and 0 is none"
        ):
            rule(CLAIM, known(0.0), unit="points", threshold=0.0)


def test_nothing_at_all_does_not_support_that_something_is_there() -> None:
    """+0.0 [0, 0] had p = .002 for "above 0" where one draw in five hundred was not 0."""
    draws = np.zeros(500)
    draws[0] = 1e-9
    assert one_up(Quantity(0.0, draws, frozenset(range(50)))).verdict is ClaimVerdict.REFUTES


def test_below_is_above_turned_round() -> None:
    up, down = (rule(CLAIM, known(5.0), unit="points", threshold=1.0) for rule in (above, below))
    assert (up.p_for, up.p_against) == (down.p_against, down.p_for)
    assert down.verdict == ClaimVerdict.REFUTES


@pytest.mark.parametrize(
    ("estimate", "spread", "verdict"),
    [
        (0.0, 0.1, ClaimVerdict.SUPPORTS),
        (0.0, 2.0, ClaimVerdict.UNDECIDED),
        (3.0, 0.5, ClaimVerdict.REFUTES),
        (-3.0, 0.5, ClaimVerdict.REFUTES),
        (1.1, 0.2, ClaimVerdict.AT_THE_MARGIN),
    ],
)
def test_zero_up_to_a_margin_needs_a_narrow_interval(estimate: float, spread: float, verdict: ClaimVerdict) -> None:
    assert within(CLAIM, known(estimate, spread), unit="points", margin=1.0).verdict == verdict


def test_an_interval_wholly_outside_the_margin_refutes_whatever_the_number_of_claims() -> None:
    """RAD+DC - majority: -3.3 [-5.1, -1.6] against a margin of 1 read "cannot tell" after Holm over 77 claims."""
    found = within(CLAIM, interval(-5.1, -3.3, -1.6), unit="points", margin=1.0)
    others = [within(CLAIM, known(0.0, 2.0), unit="points", margin=1.0)] * 76
    judged = corrected([found, *others])[0]
    assert judged.verdict is ClaimVerdict.REFUTES
    assert (judged.low, judged.high) == (pytest.approx(-5.1, abs=0.1), pytest.approx(-1.6, abs=0.1))


@pytest.mark.parametrize(
    ("quantity", "margin", "verdict"),
    [
        (interval(0.7, 1.2, 1.8), 1.0, ClaimVerdict.AT_THE_MARGIN),  # the kernel's: at most a margin from the margin
        (interval(0.09, 0.10, 0.11), 0.1, ClaimVerdict.AT_THE_MARGIN),
        (interval(-2.6, -1.3, -0.1), 1.0, ClaimVerdict.UNDECIDED),  # reaches 1.6 beyond a margin of 1
    ],
)
def test_a_narrow_interval_at_the_threshold_is_told_apart_from_a_wide_one(
    quantity: Quantity, margin: float, verdict: ClaimVerdict
) -> None:
    assert within(CLAIM, quantity, unit="points", margin=margin).verdict is verdict


def test_an_undecided_claim_says_how_many_problems_would_decide_it() -> None:
    made = within(CLAIM, interval(-2.6, -1.35, -0.1), unit="points", margin=1.0)
    assert made.needed == pytest.approx(2 * 300 * (1.25 / 0.35) ** 2, rel=0.05)
    assert one_up(known(1.0)).needed is None  # the estimate is the threshold


def test_so_many_problems_do_decide_it_four_times_in_five() -> None:
    """A mean of 2 with a standard deviation of 12, of which 100 problems were seen: is it above 1?"""
    rng = np.random.default_rng(1)
    spread = 12 / np.sqrt(100)
    needed = above(CLAIM, Quantity(2.0, 2 + spread * DRAWS, frozenset(range(100))), unit="r", threshold=1.0).needed
    assert needed is not None
    decided = 0
    for _ in range(300):
        error = 12 / np.sqrt(needed)
        decided += 2 + error * rng.standard_normal() - 1.96 * error > 1
    assert 0.7 < decided / 300 < 0.9


def test_a_claim_that_pools_cannot_express_is_no_test_of_it() -> None:
    good, bad = one_up(known(5.0)), replace(one_up(known(-3.0)), inexpressible="every rollout finishes")
    first, second = corrected([good, bad])
    assert second.verdict is ClaimVerdict.NOT_EXPRESSIBLE
    assert second.holm is second.bh is None
    assert first.holm == (good.p_for, 1.0)  # a family of one
    assert first.outlasts(first.holm)
    assert not second.outlasts(second.holm)


def test_an_order_holds_only_if_every_part_does() -> None:
    strong, weak, wrong = (one_up(known(estimate)) for estimate in (6.0, 1.5, -4.0))
    assert all_of(CLAIM, [strong, strong]).verdict == ClaimVerdict.SUPPORTS
    assert all_of(CLAIM, [strong, weak]).verdict == ClaimVerdict.UNDECIDED
    assert all_of(CLAIM, [strong, wrong]).verdict == ClaimVerdict.REFUTES


@given(st.lists(st.floats(-4, 6), min_size=1, max_size=8))
def test_corrections_stand_beside_verdicts_and_change_none(estimates: list[float]) -> None:
    raw = [one_up(known(estimate)) for estimate in estimates]
    made = corrected(raw)
    assert [one.verdict for one in made] == [one.verdict for one in raw]
    for name, correction in (("holm", holm), ("bh", benjamini_hochberg)):
        pairs = [getattr(one, name) for one in made]
        assert [a for a, _ in pairs] == pytest.approx(correction([one.p_for for one in raw]).tolist())
        assert [b for _, b in pairs] == pytest.approx(correction([one.p_against for one in raw]).tolist())
    for one in made:
        assert one.outlasts(one.holm) <= one.outlasts(one.bh)
        assert one.outlasts(one.bh) <= (one.verdict in (ClaimVerdict.SUPPORTS, ClaimVerdict.REFUTES))


def test_benjamini_hochberg_keeps_a_verdict_that_holm_does_not() -> None:
    sure, likely = one_up(known(6.0)), one_up(known(1.0 + 2.4))
    judged = corrected([sure, sure, sure, likely])[-1]
    assert likely.p_for < ALPHA
    assert judged.verdict is ClaimVerdict.SUPPORTS
    assert judged.bh is not None
    assert judged.holm is not None
    many = corrected([*[sure] * 3, likely, *[one_up(known(0.0))] * 2])[3]
    assert many.outlasts(many.bh)
    assert not many.outlasts(many.holm)


@pytest.mark.parametrize(
    "rule", [partial(above, threshold=1.0), partial(below, threshold=1.0), partial(within, margin=1.0)]
)
def test_a_handful_of_problems_decides_nothing(rule: Callable[..., ClaimDecision]) -> None:
    made = rule(CLAIM, known(5.0, n=9), unit="points")
    assert made.verdict == ClaimVerdict.UNDECIDED
    assert made.needed is not None
    assert made.needed >= 10


def test_a_rule_without_draws_is_refused() -> None:
    with pytest.raises(InputError, match="100 or more finite draws"):
        one_up(Quantity(1.0, np.array([1.0, np.nan]), frozenset("ab")))


def test_a_changed_rule_says_when_and_why() -> None:
    assert changed("it was wrong", "so was that") == (
        "Changed on 2026-11-18, because it was wrong; and because so was that."
    )


def quantities(estimates: np.ndarray, draws: np.ndarray) -> list[Quantity]:
    return [Quantity(float(e), d, frozenset(range(50))) for e, d in zip(estimates, draws.T, strict=True)]


def test_many_quantities_are_within_a_margin_only_if_each_is() -> None:
    rng = np.random.default_rng(0)
    noise = 0.002 * rng.standard_normal((500, 80))
    inside = np.zeros(80)
    made = all_within(CLAIM, quantities(inside, inside + noise), unit="points", margin=0.01)
    assert made.verdict is ClaimVerdict.SUPPORTS
    one = inside.copy()
    one[7] = -0.03
    made = all_within(CLAIM, quantities(one, one + noise), unit="points", margin=0.01)
    assert made.verdict is ClaimVerdict.REFUTES
    assert made.estimate == -0.03
    assert made.p_against == pytest.approx(1 / 501)  # Bonferroni over 80 could not refute with 500 draws


def test_noise_in_many_quantities_refutes_nothing() -> None:
    """The furthest of 80 noisy zeros is beyond the margin nearly always; that alone must not count against a claim."""
    rng = np.random.default_rng(1)
    refuted = 0
    for _ in range(40):
        estimates = 0.02 * rng.standard_normal(80)
        draws = estimates + 0.02 * rng.standard_normal((300, 80))
        made = all_within(CLAIM, quantities(estimates, draws), unit="points", margin=0.01)
        refuted += made.verdict is ClaimVerdict.REFUTES
    assert refuted <= 4
