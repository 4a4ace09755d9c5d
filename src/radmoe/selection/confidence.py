"""How sure a model was of its own rollout: DeepConf's scalars, self-certainty and likelihood.

DeepConf's token confidence is minus the mean of the log-probabilities of a token's top C candidates: it is high when
the mass sits on few of them. The scalars differ in which tokens they average; RAD+DC uses the bottom window, cBW in
the paper. Self-certainty (Kang et al. 2025) is the same quantity over the whole vocabulary, up to a constant; over the
C candidates that a pool keeps, its mean over a rollout is the scalar "mean". Likelihood is the mean log-probability of
the sampled tokens.
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
    """cBW: the mean of the lowest `share` of all sliding windows' means.

    A rollout shorter than one window has its plain mean.
    """
    means = window_means(confidence, window)
    count = max(1, int(len(means) * share))
    return float(np.mean(np.partition(means, count - 1)[:count]))


def lowest_window(confidence: Floats, window: int = WINDOW) -> float:
    """The mean of the least confident window. A rollout shorter than one window has its plain mean."""
    return float(window_means(confidence, window).min())


SCALARS: dict[str, Callable[[Floats, int], float]] = {
    "mean": lambda confidence, window: mean(confidence),
    "tail": tail,
    "bottom-window": bottom_window,
    "lowest-window": lowest_window,
}


def every_scalar(confidence: Floats, window: int = WINDOW) -> dict[str, float]:
    """Every one of SCALARS by its name. A rollout shorter than one window has its plain mean for each."""
    return {name: scalar(confidence, window) for name, scalar in SCALARS.items()}


def rollout_confidence(
    topk_logprobs: NDArray[np.floating], scalar: str = "bottom-window", *, window: int = WINDOW
) -> float:
    """The confidence of a rollout by one of SCALARS, from its top-k logprobs [T, C]."""
    if scalar not in SCALARS:
        raise InputError(f"unknown confidence scalar {scalar!r}: use one of {', '.join(SCALARS)}")
    if window < 1:
        raise InputError(f"the confidence window must be at least 1 token, got {window}")
    return SCALARS[scalar](token_confidence(topk_logprobs), window)


def likelihood(sampled_logprobs: NDArray[np.floating]) -> float:
    """The mean log-probability of a rollout's tokens."""
    return float(np.mean(np.asarray(sampled_logprobs, np.float64)))


def window_means(confidence: Floats, window: int) -> Floats:
    """The mean of every sliding window; a rollout shorter than one window has its plain mean alone."""
    if len(confidence) < window:
        return np.array([np.mean(confidence)])
    sums = np.concatenate(([0.0], np.cumsum(confidence)))
    return np.asarray((sums[window:] - sums[:-window]) / window)
