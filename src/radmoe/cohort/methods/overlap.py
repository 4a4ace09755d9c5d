"""Minimum Bayes risk over text: the answer that has most words in common with its neighbours. It reads answers.

Answers are compared by the Jaccard similarity of their token bigrams (`radmoe.overlap`) and scored by K-NN density with the
setting's k, exactly as RAD scores routing. A rollout without an answer is not scored, and fewer than two answers mean an
abstention.
"""

from __future__ import annotations

import numpy as np

from radmoe.cohort.problem import Floats, GradedProblem, density_scores
from radmoe.cohort.registry import score_method
from radmoe.overlap import text_similarity


@score_method(
    "text-overlap", "text overlap", reads=("answers",), citation="Kumar and Byrne 2004 (MBR); token-bigram Jaccard"
)
def text_overlap(problem: GradedProblem) -> Floats:
    """The K-NN density of the answers' token bigrams."""
    scored = np.array([answer is not None for answer in problem.answers], bool)
    S = text_similarity([answer for answer in problem.answers if answer is not None])
    return density_scores(S, scored, problem.setting.k)
