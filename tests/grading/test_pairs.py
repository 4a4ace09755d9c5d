"""The figures that the grader must reach on pairs of answers made for it: no wrong merge, at most one wrong split in twenty."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from pairs import FIRST, SECOND, Outcome, ask, held_out, read_pairs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the algebra process needs POSIX")


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return ask(read_pairs(FIRST))


def reaches_the_figures(outcomes: Sequence[Outcome]) -> None:
    equal = [outcome for outcome in outcomes if outcome.pair.equal]
    splits = [outcome.pair for outcome in equal if outcome.split or outcome.seconds > 3]
    assert [outcome.pair for outcome in outcomes if outcome.merged] == []
    assert len(splits) <= 0.05 * len(equal), splits
    assert [outcome.pair for outcome in outcomes if outcome.forward != outcome.backward] == []
    assert [outcome.pair for outcome in outcomes if outcome.seconds > 3] == []


def test_there_are_enough_pairs_of_each_sort() -> None:
    pairs = read_pairs(FIRST)
    assert len(pairs) >= 400
    assert len(set(pairs)) == len(pairs)
    categories = {pair.category for pair in pairs}
    assert len(categories) >= 15
    assert all({pair.equal for pair in pairs if pair.category == category} == {True, False} for category in categories)


def test_equal_answers_are_together_and_different_ones_apart(outcomes: list[Outcome]) -> None:
    reaches_the_figures(outcomes)


def test_the_pairs_that_were_held_out_do_as_well(outcomes: list[Outcome]) -> None:
    apart = held_out(read_pairs(FIRST))
    assert len(apart) == 100
    reaches_the_figures([outcome for outcome in outcomes if outcome.pair in apart])


@pytest.mark.slow
def test_so_do_the_pairs_that_were_written_later() -> None:
    reaches_the_figures(ask(read_pairs(SECOND)))
