"""Basin purity against its definition, on matrices and on a planted pool."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radmoe.errors import InputError
from reference_purity import knn_purity


def blocks(answers: list[str], apart: float = 0.1) -> np.ndarray:
    same = np.array([[a == b for b in answers] for a in answers])
    return np.where(same, 0.9, apart).astype(np.float32)


def test_perfect_neighbourhoods_have_purity_one() -> None:
    answers = ["1"] * 5 + ["2"] * 3
    assert knn_purity(blocks(answers), answers) == pytest.approx(1.0)


def test_neighbours_of_the_other_answer_are_worse_than_chance() -> None:
    answers = ["1", "2"] * 4
    chance = 2 * 4 * 3 / (8 * 7)
    assert knn_purity(1 - blocks(answers), answers) == pytest.approx(-chance / (1 - chance))


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=12), st.integers(1, 20), st.integers(0, 99))
def test_it_is_the_paper_s_formula(answers: list[str], k: int, seed: int) -> None:
    n = len(answers)
    S = np.random.default_rng(seed).random((n, n)).astype(np.float32)
    S = (S + S.T) / 2
    chance = sum(answers.count(a) - 1 for a in answers) / (n * (n - 1))
    found = knn_purity(S, answers, k)
    if len(set(answers)) == 1:
        assert found is None
        return
    hits = []
    for i in range(n):
        others = sorted((j for j in range(n) if j != i), key=lambda j: (-S[i, j], j))[:k]
        hits.append(np.mean([answers[i] == answers[j] for j in others]))
    assert found == pytest.approx((np.mean(hits) - chance) / (1 - chance))


def test_one_rollout_or_a_wrong_shape_is_told_apart() -> None:
    assert knn_purity(np.ones((1, 1), np.float32), ["1"]) is None
    with pytest.raises(InputError, match="2 answers need a similarity matrix 2x2"):
        knn_purity(np.ones((3, 3), np.float32), ["1", "2"])
