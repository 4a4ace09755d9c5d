"""Correlations within and between configurations, under many weights of problems at once.

A problem has three numbers: the entropy of its answers, the rate of right located rollouts, and whether a pick is right.
The advantage is the last minus the rate.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from radmoe_studies.evidence import Floats

ENT, RATE, HIT = range(3)  # columns of a problem; in moments the third is the advantage


class Moments(NamedTuple):
    """Weighted means of entropy, rate and advantage by configuration [R, G, 3], and their products within [R, G, 3, 3]."""

    means: Floats
    products: Floats

    def pooled(self) -> tuple[Floats, Floats]:
        """r of entropy and advantage, and r given the rate, centred within configurations and pooled [R]."""
        return correlations(self.products.sum(1))

    def between(self) -> tuple[Floats, Floats]:
        """r over configurations of mean advantage with mean rate, and with mean entropy [R]."""
        x = self.means - self.means.mean(1, keepdims=True)
        products = np.einsum("rgi,rgj->rij", x, x)
        return _r(products, RATE, HIT), _r(products, ENT, HIT)


def moments(rows: Sequence[Floats], members: Sequence[Sequence[Hashable]], weights: Floats | None = None) -> Moments:
    """Moments of each configuration's problems under weights of clusters [R, clusters], or under none (R = 1)."""
    numbers = {cluster: i for i, cluster in enumerate(dict.fromkeys(c for own in members for c in own))}
    if weights is None:
        weights = np.ones((1, len(numbers)))
    means, products = [], []
    for own, clusters in zip(rows, members, strict=True):
        x = own.copy()
        x[:, HIT] -= x[:, RATE]
        x -= x.mean(0)
        w = weights[:, [numbers[c] for c in clusters]]
        n = np.maximum(w.sum(1), 1e-12)[:, None]
        mean = w @ x / n
        cross = (w @ (x[:, :, None] * x[:, None, :]).reshape(len(x), 9)).reshape(-1, 3, 3)
        products.append(cross - n[:, :, None] * mean[:, :, None] * mean[:, None, :])
        centre = own.mean(0)
        means.append(mean + np.array([centre[ENT], centre[RATE], centre[HIT] - centre[RATE]]))
    return Moments(np.stack(means, 1), np.stack(products, 1))


def _r(products: Floats, i: int, j: int) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = products[:, i, i] * products[:, j, j]
        r: Floats = np.where(spread > 1e-20, products[:, i, j] / np.sqrt(spread), np.nan)
    return r


def correlations(products: Floats) -> tuple[Floats, Floats]:
    """r of entropy and advantage, and r given the rate, from products of centred columns [R, 3, 3]; NaN if undefined."""
    r, a, b = _r(products, ENT, HIT), _r(products, ENT, RATE), _r(products, RATE, HIT)
    with np.errstate(invalid="ignore", divide="ignore"):
        left = (1 - a**2) * (1 - b**2)
        partial = np.where(left > 1e-12, (r - a * b) / np.sqrt(left), np.nan)
    return r, np.where(np.isnan(b), np.nan, partial)
