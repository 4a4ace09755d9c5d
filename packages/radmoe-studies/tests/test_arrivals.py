"""Orders of arrival: the picks and stops are those of the online selector, and every token is counted once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.selection.confidence import likelihood
from radmoe.selection.online import OnlineSelector, Stopping
from radmoe.selection.rule import Rule
from radmoe.selection.selector import similarity
from radmoe.types import RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted
from radmoe_studies.arrivals import arrive, consistent, orders, picks, settled, votes
from radmoe_studies.subcohorts import SubcohortProblem

LENGTHS = np.array([5, 1, 9, 4, 7, 2, 8, 3])


@pytest.mark.parametrize("k", [2, 10])
@pytest.mark.parametrize("rule", [Stopping(2, 1), Stopping(4, 3), Stopping(8, 4)])
def test_picks_and_stops_are_those_of_the_online_selector(k: int, rule: Stopping) -> None:
    n = 16
    for made in planted.groups(Planted(problems=2, rollouts=n, tokens=30, shape=RouterShape(4, 16, 2))):
        group = made.group
        S, reading = similarity(group, Rule().settle("math"))
        place = np.where(reading.located, np.cumsum(reading.located) - 1, -1)
        nobody = np.zeros(len(S), np.int64)
        begun = orders(n, 3, key=7, seed=0)
        mine = picks(SubcohortProblem.of(S, nobody.astype(bool), nobody, None), place, begun, begun, k)
        stops = settled(mine, reading.located[begun], rule)
        rollout = np.concatenate((np.flatnonzero(reading.located), [-1]))
        for order, own, stop in zip(begun, mine, stops, strict=True):
            selector = OnlineSelector(group.shape, group.vocab, kind="math", most=n, stopping=rule, rule=Rule(k=k))
            decisions = [selector.add(group.rollouts[i]) for i in order]
            theirs = [-1 if d.selection.index is None else order[d.selection.index] for d in decisions]
            assert rollout[own].tolist() == theirs
            assert stop == next(d.finished for d in decisions if d.stop)


def test_picks_by_a_preset_that_adds_ranks_are_those_of_the_online_selector() -> None:
    n = 16
    for made in planted.groups(Planted(problems=3, rollouts=n, tokens=30, shape=RouterShape(4, 16, 2))):
        group = made.group
        rules = [Rule(preset="best").settle("math", m) for m in range(1, n + 1)]
        S, reading = similarity(group, rules[-1])
        place = np.where(reading.located, np.cumsum(reading.located) - 1, -1)
        nobody = np.zeros(len(S), np.int64)
        rollout = np.concatenate((np.flatnonzero(reading.located), [-1]))
        confidence = np.array([likelihood(group.rollouts[i].sampled_logprobs) for i in rollout[:-1]])  # type: ignore[arg-type]
        begun = orders(n, 3, key=7, seed=0)
        k = np.array([rule.k for rule in rules])
        mine = picks(SubcohortProblem.of(S, nobody.astype(bool), nobody, None), place, begun, begun, k, confidence)
        for order, own in zip(begun, mine, strict=True):
            selector = OnlineSelector(group.shape, group.vocab, kind="math", most=n, rule=Rule(preset="best"))
            selections = [selector.add(group.rollouts[i]).selection for i in order]
            assert rollout[own].tolist() == [-1 if s.index is None else order[s.index] for s in selections]


def test_one_lane_runs_rollouts_one_after_the_other() -> None:
    begun = orders(8, 4, key=1, seed=0)
    arrivals = arrive(begun, LENGTHS, 1)
    assert np.array_equal(arrivals.rollouts, begun)
    assert np.array_equal(arrivals.spent[:, -1], np.full(4, LENGTHS.sum()))


@settings(max_examples=25, deadline=None)
@given(lanes=st.integers(1, 10), seed=st.integers(0, 5))
def test_lanes_run_side_by_side_and_every_token_is_counted(lanes: int, seed: int) -> None:
    """Against a simulation that goes token by token."""
    begun = orders(8, 1, key=3, seed=seed)
    arrivals = arrive(begun, LENGTHS, lanes)
    waiting, running, spent, seen = begun[0].tolist(), {}, 0, []
    while waiting or running:
        while waiting and len(running) < lanes:
            running[waiting.pop(0)] = 0
        for rollout in running:
            running[rollout] += 1
        spent += len(running)
        for rollout in [r for r, tokens in running.items() if tokens == LENGTHS[r]]:
            del running[rollout]
            seen.append((rollout, spent))
    assert arrivals.spent[0, -1] == LENGTHS.sum()
    if lanes == 1:
        assert list(zip(arrivals.rollouts[0].tolist(), arrivals.spent[0].tolist(), strict=True)) == seen
    assert sorted(arrivals.spent[0].tolist()) == arrivals.spent[0].tolist()
    assert sorted(s for _, s in seen) == sorted(arrivals.spent[0].tolist())
    assert {s: {r for r, at in seen if at == s} for _, s in seen} == {
        s: {int(r) for r, at in zip(arrivals.rollouts[0], arrivals.spent[0], strict=True) if at == s} for _, s in seen
    }


def test_all_at_once_the_shortest_arrive_first() -> None:
    arrivals = arrive(orders(8, 2, key=1, seed=0), LENGTHS, 64)
    for row in arrivals.rollouts:
        assert LENGTHS[row].tolist() == sorted(LENGTHS.tolist())


def test_orders_depend_on_the_problem_and_the_seed_alone() -> None:
    assert np.array_equal(orders(9, 5, 2**40 + 1, 3), orders(9, 5, 2**40 + 1, 3))
    assert not np.array_equal(orders(9, 5, 2**40 + 1, 3), orders(9, 5, 2**40 + 2, 3))
    assert np.array_equal(orders(9, 5, 1, 3)[:2], orders(9, 2, 1, 3))


def test_votes_lead_by_number_and_then_by_who_was_seen_first() -> None:
    answer, correct = np.array([1, 0, 0, -1, 1, 1]), np.array([True, False, False, False, True, True])
    cast = votes(answer, correct, np.array([[3, 1, 0, 2, 4, 5]]))
    assert cast.first[0].tolist() == [0, 1, 1, 2, 2, 3]
    assert cast.second[0].tolist() == [0, 0, 1, 1, 2, 2]
    assert cast.hit[0].tolist() == [0, 0, 0, 0, 0, 1]


def test_adaptive_consistency_stops_by_its_beta_criterion() -> None:
    # P(p1 > p2) after 4 votes to 0 is 1 - 1/2^5 = .969, after 3 to 0 .9375
    unanimous = votes(np.zeros(8, int), np.ones(8, bool), np.arange(8)[None])
    assert consistent(unanimous, 0.95).tolist() == [4]
    assert consistent(unanimous, 0.93).tolist() == [3]
    split = votes(np.array([0, 1] * 4), np.ones(8, bool), np.arange(8)[None])
    assert consistent(split, 0.95).tolist() == [8]
    nobody = votes(np.full(8, -1), np.zeros(8, bool), np.arange(8)[None])
    assert consistent(nobody, 0.0).tolist() == [8]
