"""Rollouts one by one: the pick is that of the whole group, whatever their order, and stops follow the stated rule."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.errors import InputError
from radmoe.selection.online import Decision, OnlineSelector, Stopping
from radmoe.selection.rule import Rule
from radmoe.selection.selector import select
from radmoe.types import Fusion, Kernel, RolloutGroup, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted

N = 14


@cache
def groups() -> tuple[RolloutGroup, ...]:
    recipe = Planted(problems=3, rollouts=N, tokens=40, shape=RouterShape(5, 16, 3))
    return tuple(made.group for made in planted.groups(recipe))


def arriving(group: RolloutGroup, order: list[int], *, most: int = N, **options: object) -> list[Decision]:
    """What is decided after each rollout."""
    selector = OnlineSelector(group.shape, group.vocab, kind="math", most=most, **options)  # type: ignore[arg-type]
    return [selector.add(group.rollouts[i], rollout_index=i) for i in order]


@settings(deadline=None, max_examples=20)
@given(
    order=st.permutations(range(N)),
    place=st.integers(0, 2),
    options=st.one_of(
        st.fixed_dictionaries(
            {"fusion": st.sampled_from((None, *get_args(Fusion))), "kernel": st.sampled_from(get_args(Kernel))}
        ),
        st.fixed_dictionaries({"preset": st.sampled_from(("paper", "paper+dc", "strict", "best"))}),
    ),
)
def test_with_all_rollouts_added_in_any_order_the_selection_is_that_of_select(
    order: list[int], place: int, options: dict[str, Any]
) -> None:
    group = groups()[place]
    rule = Rule(confidence_window=16, **options)
    ours = arriving(group, order, rule=rule)[-1].selection
    whole = select(group, rule=rule)
    names = (
        "index",
        "rollout_index",
        "anchors",
        "basin",
        "neighbours",
        "k",
        "kind",
        "readout",
        "preset",
        "fusion",
        "confidence",
    )
    for name in names:
        assert getattr(ours, name) == getattr(whole, name), name
    assert np.array_equal([ours.margin], [whole.margin], equal_nan=True)
    for name in ("density", "score", "roots", "located"):
        assert np.array_equal(getattr(ours, name), getattr(whole, name), equal_nan=name != "located"), name


@settings(deadline=None, max_examples=25)
@given(order=st.permutations(range(N)), min_n=st.integers(1, N), patience=st.integers(1, 6), place=st.integers(0, 2))
def test_a_stop_comes_by_the_rule_and_never_before_the_fewest(
    order: list[int], min_n: int, patience: int, place: int
) -> None:
    group = groups()[place]
    located = select(group).located
    decisions = arriving(group, order, stopping=Stopping(min_n, patience))
    survived, picked = 0, None
    for n, (decision, i) in enumerate(zip(decisions, order, strict=True), 1):
        pick = decision.selection.rollout_index
        if located[i] and picked is not None:
            survived = survived + 1 if pick == picked else 0
        picked = pick
        settled = n >= min_n and survived >= patience and pick is not None
        assert (decision.finished, decision.survived) == (n, survived)
        assert decision.stop == (settled or n == N)
        assert decision.reason == ("at the limit" if n == N else "settled" if settled else "going on")


@settings(deadline=None, max_examples=15)
@given(order=st.permutations(range(N)), min_n=st.integers(1, N), patience=st.integers(1, 6))
def test_no_stop_comes_before_as_many_rollouts_as_are_said_to_be_needed(
    order: list[int], min_n: int, patience: int
) -> None:
    decisions = arriving(groups()[0], order, stopping=Stopping(min_n, patience))
    for n, decision in enumerate(decisions):
        assert (decision.needed == 0) == decision.stop
        assert not any(later.stop for later in decisions[n + 1 : n + decision.needed])


def test_rollouts_that_are_all_the_same_stop_at_the_fewest() -> None:
    group = groups()[0]
    same = int(np.flatnonzero(select(group).located)[0])
    selector = OnlineSelector(group.shape, group.vocab, kind="math", most=64, stopping=Stopping(min_n=5, patience=50))
    decisions = [selector.add(group.rollouts[same]) for _ in range(5)]
    assert [decision.stop for decision in decisions] == [False] * 4 + [True]
    assert decisions[-1].reason == "all the same"
    assert decisions[-1].selection.index == 0


def test_rollouts_without_the_marker_challenge_nobody() -> None:
    group = groups()[0]
    blank = next(r for g in groups() for r, here in zip(g.rollouts, select(g).located, strict=True) if not here)
    selector = OnlineSelector(group.shape, group.vocab, kind="math", most=64, stopping=Stopping(min_n=1, patience=1))
    decisions = [selector.add(blank) for _ in range(12)]
    assert not any(decision.stop for decision in decisions)
    assert decisions[-1].selection.abstained
    assert decisions[-1].needed == 3  # two for a pick, one to challenge it


def test_no_text_of_a_decision_hides_what_it_is() -> None:
    decision = arriving(groups()[0], list(range(N)))[-1]
    assert str(decision).startswith(f"at the limit after {N} rollouts: rollout {decision.selection.rollout_index}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"most": 1}, "must be 2 or more"),
        ({"stopping": (0, 8)}, "min_n must be a whole number of rollouts from 1 up, got 0"),
        ({"stopping": (8, 2.5)}, "patience must be a whole number of rollouts from 1 up, got 2.5"),
        ({"readout": "rand@16"}, "rand@16 depends on the whole group"),
        ({"readout": "trajectory:so#shared@16"}, "depends on the whole group"),
        ({"fusion": "half"}, "unknown fusion 'half'"),
        ({"confidence": "hope"}, "unknown confidence 'hope'"),
        ({"preset": "worst"}, "unknown preset 'worst'"),
        ({"preset": "best+text"}, r"preset best\+text compares routing\+text: use preset best"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(options: dict[str, object], message: str) -> None:
    group = groups()[0]
    with pytest.raises(InputError, match=message):
        if isinstance(rule := options.get("stopping"), tuple):
            options = options | {"stopping": Stopping(*rule)}
        elif "most" not in options:
            options = {"rule": Rule(**options)}  # type: ignore[arg-type]
        OnlineSelector(group.shape, group.vocab, **({"kind": "math", "most": 8} | options))  # type: ignore[arg-type]


def test_a_rollout_is_taken_once() -> None:
    group = groups()[0]
    selector = OnlineSelector(group.shape, group.vocab, kind="math", most=8, problem_id="p")
    selector.add(group.rollouts[0], rollout_index=3)
    with pytest.raises(InputError, match="rollout_index 3 of problem 'p' is negative or was added before"):
        selector.add(group.rollouts[1], rollout_index=3)
    assert selector.add(group.rollouts[1]).selection.located.tolist() == select(group).located[:2].tolist()
