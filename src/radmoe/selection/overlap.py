"""What the answers of rollouts have in common as text: the rival of routing, and a part of the preset `best+text`.

Unlike everything else that selects, this reads what an answer says: the tokens between what opens it and what closes it,
spelled out. It reads no label and no normalised answer, and knows nothing of right and wrong.

A text is cut into tokens: runs of letters, digits and underscores, and every other character that is no blank on its own;
case counts. Its features are the pairs of neighbouring tokens, as a set. A text of a single token has that token as its only
feature, so that two such texts agree wholly or not at all; a text without tokens has none, and agrees with others of its
kind alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from radmoe.selection.anchors import locate_extent
from radmoe.selection.closing import answer_text
from radmoe.selection.kernels import binary_jaccard
from radmoe.types import Kind, RolloutGroup

_TOKEN = re.compile(r"\w+|\S")


def words(text: str) -> list[str]:
    """The tokens of a text."""
    return _TOKEN.findall(text)


def answer_texts(group: RolloutGroup, kind: Kind | None, *, budget: int | None = None) -> list[str | None]:
    """What the last answer of each rollout says; None where it has none that closes (within the budget)."""
    texts: list[str | None] = []
    for rollout in group.rollouts:
        extent = locate_extent(kind, rollout.token_ids, group.vocab, budget=budget)
        assert extent is None or kind is not None
        texts.append(None if extent is None else answer_text(extent, rollout.token_ids, group.vocab, kind or "text"))
    return texts


def text_similarity(texts: Sequence[str]) -> NDArray[np.float32]:
    """The similarity of texts [n, n] by `bigram_jaccard`."""
    return compare_once(texts, bigram_jaccard)


def compare_once(
    texts: Sequence[str], similarity: Callable[[Sequence[str]], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """The similarity of texts [n, n], where identical ones are compared once."""
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    S = similarity(list(places))
    which = np.array([places[text] for text in texts], np.intp)
    return np.ascontiguousarray(S[np.ix_(which, which)])


def bigram_jaccard(texts: Sequence[str]) -> NDArray[np.float32]:
    """Jaccard similarity between the sets of token bigrams of texts [n, n].

    Tokens are numbered, so a bigram is a number too. Cost: about 50 us per text of 800 characters.
    """
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new token gets the next number
    alone = numbers[""]  # no token is empty: this stands behind a token that has no neighbour
    tokens = []
    for text in texts:
        own_words = words(text)
        own = np.fromiter(map(numbers.__getitem__, own_words), np.int64, len(own_words))
        tokens.append(np.append(own, alone) if len(own) == 1 else own)
    bigrams = [own[:-1] * len(numbers) + own[1:] for own in tokens]
    owners = np.repeat(np.arange(len(texts)), [len(own) for own in bigrams])
    features, columns = np.unique(np.concatenate([*bigrams, np.empty(0, np.int64)]), return_inverse=True)
    sets = np.zeros((len(texts), len(features)), bool)
    sets[owners, columns] = True
    return binary_jaccard(sets)
