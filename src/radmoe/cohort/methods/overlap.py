"""Minimum Bayes risk over text: the answer that has most words in common with its neighbours. It reads answers.

An answer is cut into tokens: runs of letters, digits and underscores, and every other character that is no blank on its
own; case counts. Its features are the pairs of neighbouring tokens, as a set. An answer of a single token has that
token as its only feature, so that two such answers agree wholly or not at all; an answer without tokens has none, and
agrees with others of its kind alone. Rollouts are then compared by the Jaccard similarity of these sets and scored by K-NN
density with the setting's k, exactly as RAD scores routing. A rollout without an answer is not scored, and fewer than
two answers mean an abstention.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from radmoe.cohort.problem import Floats, GradedProblem, density_scores
from radmoe.cohort.registry import score_method
from radmoe.kernels import binary_jaccard

_TOKEN = re.compile(r"\w+|\S")


@score_method(
    "text-overlap", "text overlap", reads=("answers",), citation="Kumar and Byrne 2004 (MBR); token-bigram Jaccard"
)
def text_overlap(problem: GradedProblem) -> Floats:
    """The K-NN density of the answers' token bigrams. Identical answers are compared once."""
    scored = np.array([answer is not None for answer in problem.answers], bool)
    given = [answer for answer in problem.answers if answer is not None]
    places = {answer: place for place, answer in enumerate(dict.fromkeys(given))}
    S = bigram_jaccard(list(places))
    which = np.array([places[answer] for answer in given], np.intp)
    return density_scores(S[np.ix_(which, which)], scored, problem.setting.k)


def bigram_jaccard(texts: Sequence[str]) -> NDArray[np.float32]:
    """Jaccard similarity between the sets of token bigrams of texts [n, n].

    Tokens are numbered, so a bigram is a number too. Cost: about 50 us per text of 800 characters.
    """
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new token gets the next number
    alone = numbers[""]  # no token is empty: this stands behind a token that has no neighbour
    tokens = []
    for text in texts:
        words = _TOKEN.findall(text)
        own = np.fromiter(map(numbers.__getitem__, words), np.int64, len(words))
        tokens.append(np.append(own, alone) if len(own) == 1 else own)
    bigrams = [own[:-1] * len(numbers) + own[1:] for own in tokens]
    owners = np.repeat(np.arange(len(texts)), [len(own) for own in bigrams])
    features, columns = np.unique(np.concatenate([*bigrams, np.empty(0, np.int64)]), return_inverse=True)
    sets = np.zeros((len(texts), len(features)), bool)
    sets[owners, columns] = True
    return binary_jaccard(sets)
