"""How a method is registered, combined and told apart from another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graded_groups import problem_of
from pools import registry_restored
from radmoe.errors import InputError, MethodUnavailable
from radmoe.evaluation.methods import METHODS, GradedProblem, draw_method, pick_method, rank_sum, score_method
from radmoe.evaluation.methods.registry import READS, registry_fingerprint

FREE = {"reads": ("nothing",), "citation": "none"}


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    with registry_restored():
        yield


def test_every_method_says_what_it_reads_and_where_it_comes_from() -> None:
    for name, method in METHODS.items():
        assert method.name == name
        assert method.label
        assert method.citation
        assert method.reads
        assert set(method.reads) <= set(READS)


def test_a_pick_a_score_and_a_draw_are_judged() -> None:
    problem = problem_of(["a", "b", "b", None], truth="b")
    pick_method("second", "second", **FREE)(lambda p: 1)
    pick_method("nobody", "nobody", **FREE)(lambda p: None)
    score_method("odd", "odd", **FREE)(lambda p: [0.0, np.nan, 2.0, 2.0])
    score_method("none", "none", **FREE)(lambda p: [np.nan] * 4)
    draw_method("either", "either", **FREE)(lambda p: [0, 1, 2])
    draw_method("neither", "neither", **FREE)(lambda p: [])
    outcomes = {name: METHODS[name].judge(problem) for name in ("second", "nobody", "odd", "none", "either", "neither")}
    assert outcomes == {
        "second": (1, 1.0),
        "nobody": (None, 0.0),
        "odd": (2, 1.0),
        "none": (None, 0.0),
        "either": (None, pytest.approx(2 / 3)),
        "neither": (None, 0.0),
    }


def test_the_decorated_function_stays_what_it_was() -> None:
    @score_method("mine", "mine", **FREE)
    def mine(problem: GradedProblem) -> Any:
        return problem.lengths

    assert mine(problem_of(["a", "b"], truth="a")).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pick_method("rad", "mine", **FREE)(lambda p: 0), "there is a method 'rad' already"),
        (lambda: pick_method("mine", "mine", reads=("stars",), citation="none")(lambda p: 0), r"reads \('stars',\): name some of routing"),  # type: ignore[arg-type]
        (lambda: pick_method("mine", "mine", reads=(), citation="none")(lambda p: 0), "name some of routing"),
        (lambda: pick_method("mine", "mine", reads=("nothing",), citation="")(lambda p: 0), "needs a name, a label and a citation"),
        (lambda: rank_sum("rad"), "two different methods or more, got rad"),
        (lambda: rank_sum("rad", "rad"), "two different methods or more, got rad, rad"),
        (lambda: rank_sum("rad", "majority"), "cannot use 'majority': use methods that score every rollout: .*rad"),
        (lambda: rank_sum("rad", "luck"), "cannot use 'luck'"),
        (lambda: METHODS["majority"].score(problem_of(["a"], truth="a")), "majority gives no number per rollout"),
    ],
)  # fmt: skip
def test_what_cannot_be_registered_is_one_clear_line(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_method_that_returns_nonsense_is_named() -> None:
    problem = problem_of(["a", "b"], truth="a")
    pick_method("far", "far", **FREE)(lambda p: 2)
    score_method("short", "short", **FREE)(lambda p: [1.0])
    draw_method("half", "half", **FREE)(lambda p: [0.5])
    for name, message in (("far", "far picked 2 of 2"), ("short", r"shape \(1,\) for 2"), ("half", "picked 0.5 of 2")):
        with pytest.raises(InputError, match=message):
            METHODS[name].judge(problem)


def test_a_function_may_be_defined_again_as_a_notebook_does() -> None:
    for value in (0, 1):

        @pick_method("again", "again", **FREE)
        def again(problem: GradedProblem, value: int = value) -> int:
            return value

    assert METHODS["again"].judge(problem_of(["a", "b"], truth="b")) == (1, 1.0)


def test_a_rank_sum_adds_ranks_over_those_that_all_parts_score() -> None:
    score_method("first", "first", **FREE)(lambda p: [9.0, 1.0, 2.0, 3.0])
    score_method("second", "second", reads=("logprobs",), citation="none")(lambda p: [np.nan, 3.0, 2.0, 2.0])
    method = rank_sum("first", "second")
    # Rollout 0 is not scored by both. Ranks of the rest: 1, 2, 3 and 3, 1.5, 1.5, so the sums are 4, 3.5, 4.5.
    totals = method.score(problem_of(["a", "b", "c", "d"], truth="d"))
    assert np.isnan(totals[0])
    assert np.round(totals[1:] * 2) / 2 == pytest.approx([4.0, 3.5, 4.5])
    assert method.judge(problem_of(["a", "b", "c", "d"], truth="d")) == (3, 1.0)
    assert (method.name, method.label, method.reads) == ("first+second", "first + second", ("logprobs",))


def test_equal_rank_sums_go_to_the_method_named_last_then_to_the_lowest_index() -> None:
    score_method("up", "up", **FREE)(lambda p: [1.0, 2.0, 3.0, 3.0])
    score_method("down", "down", **FREE)(lambda p: [3.0, 2.0, 1.0, 1.0])
    score_method("flat", "flat", **FREE)(lambda p: [1.0] * 4)
    problem = problem_of(["a", "b", "c", "d"], truth="a")
    assert rank_sum("up", "down").judge(problem).pick == 0
    assert rank_sum("down", "up").judge(problem).pick == 2
    assert rank_sum("flat", "up").judge(problem).pick == 2


def test_a_rank_sum_lacks_what_its_parts_lack() -> None:
    bare = problem_of(["a", "b"], truth="a", logprobs=False)
    with pytest.raises(MethodUnavailable, match="no logprobs of the sampled tokens"):
        METHODS["text-overlap+likelihood"].judge(bare)


def test_the_fingerprint_changes_with_the_methods() -> None:
    seen = {registry_fingerprint()}
    score_method("mine", "mine", **FREE)(lambda p: p.lengths)
    seen.add(registry_fingerprint())
    METHODS["mine"] = replace(METHODS["mine"], version=2)
    seen.add(registry_fingerprint())
    METHODS["mine"] = replace(METHODS["mine"], reads=("routing",))
    seen.add(registry_fingerprint())
    METHODS["rad"] = replace(METHODS["rad"], function=lambda p: -p.lengths)
    sums = METHODS["rad+likelihood"].fingerprint
    seen.add(registry_fingerprint())
    METHODS["rad"] = replace(METHODS["rad"], version=5)
    assert METHODS["rad+likelihood"].fingerprint != sums  # a part has changed
    assert len(seen) == 5
