"""What picking one rollout at random gives on these problems: the Poisson-binomial law and its envelope.

Problem p has the rate r_p of correct rollouts, so a random pick is right with probability r_p, and the
number of right picks is a sum of independent Bernoulli(r_p): App. "Exact random baselines" of the paper.
The problems are fixed; nothing here says whether a gap carries over to other problems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from radmoe.errors import InputError
from radmoe.evaluation.stats.checks import Floats, counts, probabilities, same_length

Z95 = 1.96  # the paper's constant, which has no more places


@dataclass(frozen=True, slots=True)
class PoissonBinomial:
    """A selector's right picks compared with a random pick per problem; p is one-sided, P(X >= successes)."""

    n: int
    successes: int
    expected: float
    sd: float
    z: float
    p: float

    @property
    def gap(self) -> float:
        """The accuracy above that of a random pick, as a fraction."""
        return (self.successes - self.expected) / self.n


@dataclass(frozen=True, slots=True)
class Envelope:
    """The central 95% of a random pick's accuracy on these problems."""

    n: int
    mean: float
    sd: float
    lower: float
    upper: float


def poisson_binomial_pmf(rates: ArrayLike) -> Floats:
    """P(X = 0), ..., P(X = n) in O(n^2). Nothing is subtracted, so the far tails keep their digits; a DFT loses them."""
    chances = probabilities(rates, "rates")
    pmf = np.zeros(len(chances) + 1)
    pmf[0] = 1.0
    for i, rate in enumerate(chances, start=1):
        moved = rate * pmf[:i]
        pmf[:i] *= 1 - rate
        pmf[1 : i + 1] += moved
    return pmf


def poisson_binomial_test(rates: ArrayLike, successes: ArrayLike) -> PoissonBinomial:
    """Test whether a selector is right more often than a random pick. `successes` is a count, or 0/1 per problem.

    Without spread (every rate is 0 or 1), z is 0 if the count is the only possible one, else +-inf.
    """
    chances = probabilities(rates, "rates")
    n = len(chances)
    right = counts(successes, "successes")
    if right.ndim:
        same_length(right, chances, "successes and rates")
        if right.max() > 1:
            raise InputError(f"successes per problem must be 0 or 1, got {right.max():g}")
    total = int(right.sum())
    if total > n:
        raise InputError(f"successes must be at most the {n} problems, got {total}")
    expected, sd = float(chances.sum()), _sd(chances)
    excess = total - expected
    z = excess / sd if sd else math.copysign(math.inf, excess) if excess else 0.0
    upper = math.fsum(poisson_binomial_pmf(chances)[total:])
    return PoissonBinomial(n, total, expected, sd, z, min(upper, 1.0))


def random_envelope(rates: ArrayLike, method: Literal["wald", "exact"] = "wald") -> Envelope:
    """The mean accuracy of a random pick, and its 95% envelope.

    "wald" is the paper's mean +- 1.96 sd, not cut to [0, 1]; "exact" takes the 2.5% and 97.5% quantiles.
    """
    chances = probabilities(rates, "rates")
    n = len(chances)
    mean, sd = float(chances.mean()), _sd(chances) / n
    if method == "wald":
        return Envelope(n, mean, sd, mean - Z95 * sd, mean + Z95 * sd)
    if method != "exact":
        raise InputError(f"unknown envelope {method!r}: use wald or exact")
    cdf = np.cumsum(poisson_binomial_pmf(chances))
    lower, upper = np.searchsorted(cdf, [0.025, 0.975])
    return Envelope(n, mean, sd, int(lower) / n, int(upper) / n)


def _sd(chances: Floats) -> float:
    """The standard deviation of the count of right picks."""
    return math.sqrt(float(np.sum(chances * (1 - chances))))
