"""Minimum Bayes risk over text: the answer that has most in common with all others. It reads answers.

Answers are cut into words (`radmoe.selection.overlap`) and compared by the Jaccard similarity of their bigrams, or by edit distance. The
score of an answer is the sum of its similarities to every other one, whatever k the setting has: with the k nearest alone, any
answer that more than k rollouts give would be as good as the most frequent one. A rollout without an answer is not scored, and
fewer than two answers mean an abstention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import MethodUnavailable
from radmoe.evaluation.methods.registry import score_method
from radmoe.evaluation.problem import Floats, GradedProblem
from radmoe.selection.kernels import density_scores
from radmoe.selection.overlap import bigram_jaccard, compare_once, words


@score_method(
    "text-overlap", "text overlap", reads=("answers",), citation="Kumar and Byrne 2004 (MBR); token-bigram Jaccard"
)
def text_overlap(problem: GradedProblem) -> Floats:
    """How much of its token bigrams an answer shares with every other answer."""
    return _expected_similarity(problem, bigram_jaccard)


@score_method(
    "edit-distance", "edit distance", reads=("answers",), citation="Levenshtein 1966, over words; MBR as above"
)
def edit_distance(problem: GradedProblem) -> Floats:
    """One minus the edit distance of words, as a share of the longer answer, to every other answer."""
    return _expected_similarity(problem, edit_similarity)


def edit_similarity(texts: Sequence[str]) -> NDArray[np.float32]:
    """1 - d / max(words of i, words of j) between texts [n, n], d their Levenshtein distance in words.

    Two texts without words are alike. Cost: about 3 us for two programs of 300 words.
    """
    try:
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist
    except ImportError:
        raise MethodUnavailable("edit distance needs rapidfuzz: pip install 'radmoe[eval]'") from None
    letters: dict[str, str] = {}  # one character per word, beyond those that encode halves of others
    spelled = ["".join(letters.setdefault(word, chr(0x10000 + len(letters))) for word in words(text)) for text in texts]
    return np.asarray(cdist(spelled, spelled, scorer=Levenshtein.normalized_similarity, dtype=np.float32))


def _expected_similarity(problem: GradedProblem, similarity: Callable[[Sequence[str]], NDArray[np.float32]]) -> Floats:
    """The sum of similarities to all other answers: a density whose neighbourhood is everyone (k = N - 1)."""
    scored = np.array([answer is not None for answer in problem.answers], bool)
    S = compare_once([answer for answer in problem.answers if answer is not None], similarity)
    return density_scores(S, scored, max(1, len(S) - 1))
