"""Text overlap against its definition: sets of token bigrams, Jaccard, the sum over all others."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graded_groups import problem_of
from radmoe.evaluation.methods import METHODS
from radmoe.selection.overlap import bigram_jaccard

PICK = METHODS["text-overlap"]

Texts = st.text(st.sampled_from("ab_1 \n+(é"), max_size=12)


def features(text: str) -> set[tuple[str, ...]]:
    tokens = re.findall(r"[\w]+|[^\w\s]", text)
    return set(pairwise(tokens)) if len(tokens) > 1 else {(token,) for token in tokens}


def jaccard(one: str, other: str) -> float:
    a, b = features(one), features(other)
    return len(a & b) / len(a | b) if a | b else 1.0


@settings(deadline=None)
@given(st.lists(Texts, max_size=8))
def test_similarity_is_the_jaccard_of_bigram_sets(texts: list[str]) -> None:
    expected = np.array([[jaccard(one, other) for other in texts] for one in texts]).reshape(len(texts), len(texts))
    np.testing.assert_allclose(bigram_jaccard(texts), expected, atol=1e-6)


@settings(deadline=None)
@given(st.lists(st.none() | Texts, min_size=1, max_size=10), st.integers(1, 12))
def test_the_pick_has_most_in_common_with_all_others_whatever_k_is(answers: list[str | None], k: int) -> None:
    scored = [i for i, answer in enumerate(answers) if answer is not None]
    pick = PICK.judge(problem_of(answers, truth="a", k=k)).pick
    if len(scored) < 2:
        assert pick is None
        return
    density = {}
    for i in scored:
        density[i] = sum(jaccard(str(answers[i]), str(answers[j])) for j in scored if j != i)
    assert pick == next(i for i in scored if density[i] > max(density.values()) - 1e-5)


@pytest.mark.parametrize(
    ("one", "other", "similarity"),
    [
        ("x = a + b", "x  =  a\n+ b", 1.0),  # blanks do not count
        ("42", "42", 1.0),  # a single token is its own feature
        ("42", "43", 0.0),
        ("42", "42 ", 1.0),
        ("a b", "b a", 0.0),  # order counts
        ("return x", "Return x", 0.0),  # case counts
        ("a b c", "a b d", 1 / 3),
        ("", " ", 1.0),  # no tokens: like each other
        ("", "a b", 0.0),
    ],
)
def test_what_two_texts_have_in_common(one: str, other: str, similarity: float) -> None:
    assert bigram_jaccard([one, other])[0, 1] == pytest.approx(similarity)


@pytest.mark.parametrize("name", ["text-overlap", "edit-distance", "text-overlap+likelihood"])
def test_the_most_frequent_answer_wins_though_others_have_more_than_k_votes(name: str) -> None:
    """RAD's k is 10: among its ten nearest an answer of 12 votes looks like one of 20, and the first would win."""
    problem = problem_of(["A"] * 12 + ["B"] * 20 + ["C"] * 11, truth="B", kind="choice")
    assert METHODS[name].judge(problem).pick == 12


def test_a_rollout_without_an_answer_is_not_scored() -> None:
    scores = PICK.score(problem_of([None, "a b", "a b", None, "c d"], truth="a b"))
    assert np.isnan(scores).tolist() == [True, False, False, True, False]
    assert scores[1] == scores[2] > scores[4]


def test_it_finds_the_common_program_where_no_two_strings_are_equal() -> None:
    programs = [f"def f(x):\n    y = x + {i}\n    return y" for i in range(4)]
    problem = problem_of(["print(1)", *programs, "import os\nos.abort()"], truth=programs[0], kind="code")
    assert PICK.judge(problem).pick in (1, 2, 3, 4)
    assert METHODS["majority"].judge(problem).pick == 0  # a vote has nothing to count, and takes the first
