"""The baselines: against the published DeepConf functions, against slow references, and at the edges."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.errors import InputError
from radmoe.evaluation.baselines import (
    filtered_vote,
    highest,
    majority,
    most_frequent,
    weighted_vote,
)
from radmoe.evaluation.methods.votes import DEEPCONF
from radmoe.selection.confidence import SCALARS, every_scalar, token_confidence

# Our votes by the names that deepconf 0.1.0 gives its own.
THEIRS = {
    "deepconf-mean": "mean_confidence_weighted",
    "deepconf-tail": "tail_confidence_weighted",
    "deepconf": "bottom_window_weighted",
    "deepconf-lowest-window": "min_window_weighted",
    "deepconf-tail-top10": "top10_tail_filtered",
    "deepconf-bottom-window-top10": "top10_bottom_window_filtered",
}

Strings = st.lists(st.none() | st.sampled_from("abc"), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def published() -> ModuleType:
    """deepconf 0.1.0's own functions; its package imports vllm, this file of it only NumPy."""
    package = importlib.util.find_spec("deepconf")
    assert package is not None
    assert package.submodule_search_locations
    file = Path(package.submodule_search_locations[0]) / "utils.py"
    spec = importlib.util.spec_from_file_location("deepconf_utils", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def logprobs(rng: np.random.Generator, tokens: int, *, exact: bool = False) -> np.ndarray[Any, Any]:
    """Top-5 logprobs; `exact` makes every token's mean a multiple of 1/8, which their rounding leaves alone."""
    if exact:
        return -np.repeat(rng.integers(1, 200, (tokens, 1)) / 8.0, 5, axis=1)
    return -rng.gamma(2.0, 1.0, (tokens, 5))


def their_confidences(published: ModuleType, topk: np.ndarray[Any, Any]) -> list[float]:
    rows = [{i: SimpleNamespace(logprob=float(x)) for i, x in enumerate(row)} for row in topk]
    return [float(c) for c in published.compute_confidence(rows)]


def their_scalars(published: ModuleType, confs: list[float]) -> dict[str, float]:
    trace = {"confs": confs}
    return {
        "mean": published.calculate_mean_confidence(trace),
        "tail": published.calculate_tail_confidence(trace),
        "bottom-window": published.calculate_bottom_window_confidence(trace),
        "lowest-window": published.calculate_bottom_window_confidence(trace, bottom_percent=-1),
    }


@pytest.mark.parametrize("tokens", [1, 7, 2047, 2048, 2049, 2100, 5000])
def test_scalars_are_the_published_ones(published: ModuleType, tokens: int) -> None:
    rng = np.random.default_rng(tokens)
    for exact, tolerance in ((True, 1e-9), (False, 5e-4)):  # they round each token to 3 decimals
        topk = logprobs(rng, tokens, exact=exact)
        ours = every_scalar(token_confidence(topk))
        theirs = their_scalars(published, their_confidences(published, topk))
        assert ours == pytest.approx(theirs, abs=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_votes_are_the_published_ones(published: ModuleType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers = [None if rng.random() < 0.1 else str(a) for a in rng.choice(6, size=16)]
    topk = [logprobs(rng, int(rng.integers(20, 200)) if seed else 2200, exact=True) for _ in answers]
    each = [every_scalar(token_confidence(x)) for x in topk]
    scalars = {name: [values[name] for values in each] for name in SCALARS}
    traces = [
        {"extracted_answer": answer, "confs": their_confidences(published, x)}
        for answer, x in zip(answers, topk, strict=True)
    ]
    theirs = published.compute_all_voting_results(traces)
    winner = majority(answers)
    assert winner is not None
    assert answers[winner] == theirs["majority"]["answer"]
    assert set(THEIRS) == set(DEEPCONF)
    for name, (scalar, filtered, _) in DEEPCONF.items():
        index = (filtered_vote if filtered else weighted_vote)(answers, scalars[scalar])
        assert index is not None
        assert answers[index] == theirs[THEIRS[name]]["answer"], name


@given(Strings)
def test_majority_is_the_most_frequent_answer_seen_first(answers: list[str | None]) -> None:
    votes = Counter(a for a in answers if a is not None)
    index = majority(answers)
    if not votes:
        assert index is None
        return
    assert index is not None
    most = max(votes.values())
    assert votes[str(answers[index])] == most
    assert index == min(answers.index(a) for a in votes if votes[a] == most)


@given(Strings)
def test_the_most_frequent_answers_are_all_that_none_outnumbers(answers: list[str | None]) -> None:
    votes = Counter(a for a in answers if a is not None)
    tied = [a for a in dict.fromkeys(answers) if a is not None and votes[a] == max(votes.values())]
    assert [answers[i] for i in most_frequent(answers)] == tied
    assert most_frequent(answers) == sorted(answers.index(a) for a in tied)


@given(Strings, st.data())
def test_equal_weights_vote_like_the_majority(answers: list[str | None], data: st.DataObject) -> None:
    weight = data.draw(st.sampled_from([0.25, 1.0, 3.0]))
    assert weighted_vote(answers, [weight] * len(answers)) == majority(answers)
    assert filtered_vote(answers, [weight] * len(answers)) == majority(answers)


@given(Strings, st.data())
def test_a_heavy_enough_rollout_wins_every_vote(answers: list[str | None], data: st.DataObject) -> None:
    heavy = data.draw(st.integers(0, len(answers) - 1))
    weights = [1e6 if i == heavy else 1.0 for i in range(len(answers))]
    for vote in (weighted_vote, filtered_vote):
        index = vote(answers, weights)
        if answers[heavy] is not None:
            assert index is not None
            assert answers[index] == answers[heavy]


def test_nobody_can_vote_without_answers_or_weight() -> None:
    assert majority([None, None]) is None
    assert weighted_vote([None], [1.0]) is None
    assert filtered_vote([None], [1.0]) is None
    assert weighted_vote(["a", "b"], [0.0, 0.0]) is None
    assert weighted_vote([None, "a"], [1.0, 0.0]) is None


def test_the_highest_score_is_the_first_of_equals_and_nan_is_no_score() -> None:
    nan = float("nan")
    assert [highest(scores) for scores in ([3, 9, 9], [nan, 1, 2], [2, nan, 2], [-np.inf, nan], [nan, nan], [])] == [
        1, 2, 0, 0, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: highest([[1.0, 2.0]]), "one number per rollout"),
        (lambda: weighted_vote(["a"], [1.0, 2.0]), "1 answers but 2 weights"),
    ],
)
def test_what_cannot_be_counted_is_one_clear_line(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
