"""One token from one row of logits, in NumPy: the same as `sample` of radmoe's engines/torch/decode.py."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def draw(logits: NDArray[np.float32], chance: float, temperature: float, top_p: float) -> int:
    """The token at the place `chance` of the cumulative distribution of logits [V]; temperature 0 takes the largest."""
    if temperature == 0:
        return int(logits.argmax())
    scaled = logits / np.float32(temperature)
    probs = np.exp(scaled - scaled.max())
    probs /= probs.sum()
    order = None
    if top_p < 1:
        # Tokens below this have less than 1 - top_p together, so none of them is in the nucleus.
        few = np.flatnonzero(probs >= (1 - top_p) / len(probs))
        order = few[np.argsort(-probs[few], kind="stable")]
        probs = probs[order]
        before = np.cumsum(probs, dtype=np.float64) - probs
        probs = np.where(before >= top_p, np.float32(0), probs)
    cumulative = np.cumsum(probs, dtype=np.float64)
    place = min(int(np.searchsorted(cumulative, chance * cumulative[-1], side="right")), len(probs) - 1)
    return place if order is None else int(order[place])


def logprobs(logits: NDArray[np.float32], token: int, count: int) -> tuple[np.float32, NDArray[np.float32]]:
    """The logprob of the token, and the `count` largest, descending, under log_softmax of the raw logits [V]."""
    shifted = logits - logits.max()
    shifted -= np.log(np.exp(shifted).sum())
    count = min(count, len(logits))
    return shifted[token], -np.sort(-np.partition(shifted, len(logits) - count)[len(logits) - count :])
