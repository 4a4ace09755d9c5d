"""DeepConf's per-rollout confidence scalars, from the logprobs of each token's top C candidates.

Token confidence is minus the mean of those logprobs: high when the mass sits on few candidates. The
scalars differ in which tokens they average. RAD+DC uses the bottom window, cBW in the paper.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError

WINDOW = 2048
BOTTOM_SHARE = 0.1

Floats = NDArray[np.float64]


def token_confidence(topk_logprobs: NDArray[np.floating]) -> Floats:
    """Confidence of each token [T] from its logprobs [T, C]; candidates of probability zero do not count."""
    logprobs = np.asarray(topk_logprobs, np.float64)
    if logprobs.ndim != 2 or 0 in logprobs.shape:
        raise InputError(f"top-k logprobs must be [tokens, candidates] and not empty, got shape {logprobs.shape}")
    if np.isnan(logprobs).any():
        raise InputError("top-k logprobs contain NaN: recapture this rollout")
    finite = np.isfinite(logprobs)
    counts = finite.sum(axis=1)
    return np.asarray(-np.where(finite, logprobs, 0.0).sum(axis=1) / np.maximum(counts, 1))


def mean(confidence: Floats) -> float:
    """Mean over the whole rollout."""
    return float(np.mean(confidence))


def tail(confidence: Floats, window: int = WINDOW) -> float:
    """Mean over the last `window` tokens."""
    return float(np.mean(confidence[-window:]))


def bottom_window(confidence: Floats, window: int = WINDOW, share: float = BOTTOM_SHARE) -> float:
    """cBW: mean of the lowest `share` of all sliding windows' means; the plain mean when shorter than one."""
    means = _window_means(confidence, window)
    count = max(1, int(len(means) * share))
    return float(np.mean(np.partition(means, count - 1)[:count]))


def lowest_window(confidence: Floats, window: int = WINDOW) -> float:
    """The least confident window's mean; the plain mean when shorter than one."""
    return float(_window_means(confidence, window).min())


SCALARS: dict[str, Callable[[Floats], float]] = {
    "mean": mean,
    "tail": tail,
    "bottom-window": bottom_window,
    "lowest-window": lowest_window,
}


def every_scalar(confidence: Floats) -> dict[str, float]:
    """All of SCALARS; below one window they are the same mean."""
    if len(confidence) < WINDOW:
        return dict.fromkeys(SCALARS, mean(confidence))
    return {name: scalar(confidence) for name, scalar in SCALARS.items()}


def rollout_confidence(topk_logprobs: NDArray[np.floating], scalar: str = "bottom-window") -> float:
    """One confidence for a rollout."""
    if scalar not in SCALARS:
        raise InputError(f"unknown confidence scalar {scalar!r}: use one of {', '.join(SCALARS)}")
    return SCALARS[scalar](token_confidence(topk_logprobs))


def _window_means(confidence: Floats, window: int) -> Floats:
    if len(confidence) < window:
        return np.array([np.mean(confidence)])
    sums = np.concatenate(([0.0], np.cumsum(confidence)))
    return np.asarray((sums[window:] - sums[:-window]) / window)
