"""Selectors compared on the same problems: exact McNemar with its power, sign flips of problems, and Cochran's Q.

Only discordant problems, which one of two selectors gets right and the other wrong, carry information.
Given their number d, each falls to either side with probability 1/2 under the null hypothesis.
Power is conditional on d too: a true accuracy gap g over n problems moves that probability to
(1 + g n / d) / 2 (the convention that reproduces the paper's power table, tab:wjja-power).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import bdtr, chdtrc, gammaln

from radmoe.errors import InputError
from radmoe.evaluation.stats.checks import Floats, binary, counts, members, numbers, same_length, share

Test = Literal["mcnemar", "sign-flip"]


@dataclass(frozen=True, slots=True)
class McNemar:
    """Two selectors on n problems: b only the first gets right, c only the second; gap = (b - c) / n."""

    n: int
    b: int
    c: int
    gap: float
    p: float


@dataclass(frozen=True, slots=True)
class Paired(McNemar):
    """Two selectors on n outcomes of so many `problems`.

    `test` is what p comes from: "mcnemar" where each problem has one outcome, "sign-flip" where some have several.
    """

    problems: int
    test: Test


@dataclass(frozen=True, slots=True)
class CochranQ:
    """Cochran's Q over several selectors, its degrees of freedom and its chi-squared p."""

    q: float
    df: int
    p: float


@overload
def mcnemar_exact(b: int | np.integer[Any], c: int | np.integer[Any]) -> float: ...
@overload
def mcnemar_exact(b: Sequence[int] | NDArray[Any], c: Sequence[int] | NDArray[Any]) -> Floats: ...
def mcnemar_exact(b: Any, c: Any) -> float | Floats:
    """Two-sided exact p of b against c discordant problems; 1 when there are none. Arrays broadcast."""
    left, right = counts(b, "b"), counts(c, "c")
    try:
        few, both = np.minimum(left, right), left + right
    except ValueError:
        raise InputError(f"b and c must have one shape, got {left.shape} and {right.shape}") from None
    p = np.minimum(2 * bdtr(few, both.astype(np.int64), 0.5), 1.0)
    return float(p) if p.ndim == 0 else np.asarray(p)


def mcnemar(x: ArrayLike, y: ArrayLike) -> McNemar:
    """The exact test from per-problem outcomes 0/1 of two selectors. b counts for x, and so does a positive gap."""
    first, second = binary(x, "x"), binary(y, "y")
    same_length(first, second, "x and y")
    if not first.size:
        raise InputError("x and y are empty: at least one problem is needed")
    b, c = int((first & ~second).sum()), int((~first & second).sum())
    return McNemar(len(first), b, c, (b - c) / len(first), mcnemar_exact(b, c))


def paired_test(x: ArrayLike, y: ArrayLike, problems: ArrayLike) -> Paired:
    """The exact two-sided test of two selectors by their outcomes 0/1, with the label of the problem behind each outcome.

    Where each problem occurs once this is exact McNemar. Where some occur several times, asked of several configurations, it
    is `sign_flip_exact` over the problems' sums of x - y, because the outcomes of one problem are not independent.
    """
    outcomes = mcnemar(x, y)
    count, member = members(problems, "problems")
    same_length(np.asarray(x), member, "x and problems")
    p = outcomes.p
    test: Test = "mcnemar"
    if count < outcomes.n:
        gaps = np.asarray(x, np.float64) - np.asarray(y, np.float64)
        p, test = sign_flip_exact(np.bincount(member, gaps)), "sign-flip"
    return Paired(outcomes.n, outcomes.b, outcomes.c, outcomes.gap, p, count, test)


def sign_flip_exact(sums: ArrayLike) -> float:
    """Two-sided exact p of the sum of whole numbers, one per problem, if each could as well have the other sign.

    It is P(|T| >= |sum|) for T a sum over problems of +-|s_p|, all 2^d signs of the d numbers that are not 0 being equally
    likely; 1 when there are none. With numbers of size 1 alone it is exact McNemar. Nothing is drawn: equal sizes are
    counted by a binomial law, and the laws of different sizes are convolved. Cost: O(A^2) for A the sum of all sizes.
    """
    values = numbers(sums, "sums")
    if (values != np.round(values)).any():
        raise InputError(f"sums must be whole numbers, got {values[values != np.round(values)][0]:g}")
    sizes, many = np.unique(np.abs(values[values != 0]).astype(np.int64), return_counts=True)
    if not len(sizes):
        return 1.0
    law = np.ones(1)  # of the total of the sizes whose sign is positive
    for size, count in zip(sizes.tolist(), many.tolist(), strict=True):
        own = np.zeros(size * count + 1)
        positive = np.arange(count + 1)
        own[::size] = np.exp(
            gammaln(count + 1) - gammaln(positive + 1) - gammaln(count - positive + 1) - count * math.log(2)
        )
        law = np.convolve(law, own)
    few = (int(sizes @ many) - int(abs(values.sum()))) // 2
    return min(1.0, 2 * math.fsum(law[: few + 1]))


def mcnemar_power(n: int, n_disc: int, gap: float, *, alpha: float = 0.05) -> float:
    """The probability that the exact two-sided test rejects, given n_disc discordant problems and a true gap.

    It is 0 when n_disc is too small for any outcome to be significant.
    """
    _check(n, n_disc, alpha)
    if not abs(gap) * n <= n_disc * (1 + 1e-12):
        raise InputError(
            f"a gap of {gap:g} over {n} problems needs {abs(gap) * n:g} discordant ones, there are {n_disc}: "
            "gap is a fraction, one percentage point is 0.01"
        )
    edge = _critical(n_disc, alpha)
    return 0.0 if edge is None else _power(n, n_disc, abs(gap), edge)


def mcnemar_mde(n: int, n_disc: int, power: float = 0.8, *, alpha: float = 0.05) -> float:
    """Minimum detectable effect: the true gap at which the power is `power`; inf when no gap can be significant."""
    _check(n, n_disc, alpha)
    share(power, "power")
    edge = _critical(n_disc, alpha)
    if edge is None:
        return math.inf
    if _power(n, n_disc, 0.0, edge) >= power:
        return 0.0
    return float(brentq(lambda gap: _power(n, n_disc, gap, edge) - power, 0.0, n_disc / n, xtol=1e-12))


def mcnemar_boundary(n: int, n_disc: int, *, alpha: float = 0.05) -> float:
    """Smallest observed gap that is significant with n_disc discordant problems; inf when none is."""
    _check(n, n_disc, alpha)
    edge = _critical(n_disc, alpha)
    return math.inf if edge is None else (n_disc - 2 * edge) / n


def cochran_q(x: ArrayLike, problems: ArrayLike | None = None, *, permutations: int = 5_000, seed: int = 0) -> CochranQ:
    """Do k selectors differ in accuracy? Outcomes 0/1 [outcomes, selectors]; chi-squared with k - 1 df.

    `problems` has the label of the problem behind each row. Where some occur several times, their rows are not independent, and p
    is that of permuting the selectors within each problem, in all its rows alike. Q is 0 and p is 1 when every row has the
    same outcome under all selectors.
    """
    table = binary(x, "outcomes", ndim=2)
    n, k = table.shape
    if n < 1 or k < 2:
        raise InputError(f"Cochran's Q needs at least 1 problem and 2 selectors, got {n} and {k}")
    count, member = (n, None) if problems is None else members(problems, "problems")
    if member is not None:
        same_length(table, member, "outcomes and problems")
    columns, rows = table.sum(axis=0).astype(float), table.sum(axis=1).astype(float)
    spread = float(np.sum(rows * (k - rows)))
    if spread == 0:
        return CochranQ(0.0, k - 1, 1.0)
    q = k * (k - 1) * float(np.sum((columns - columns.mean()) ** 2)) / spread
    if member is None or count == n:
        return CochranQ(q, k - 1, float(chdtrc(k - 1, q)))
    sums = np.zeros((count, k))
    np.add.at(sums, member, table)
    differing, rng = sums[np.ptp(sums, axis=1) > 0], np.random.default_rng(seed)
    drawn = np.array([rng.permuted(differing, axis=1).sum(0) for _ in range(permutations)])
    # Permuting within rows changes no row's sum, so Q grows with the spread of the columns' sums alone.
    reached = int((drawn.var(axis=1) >= columns.var() * (1 - 1e-9)).sum())
    return CochranQ(q, k - 1, (reached + 1) / (permutations + 1))


def _check(n: int, n_disc: int, alpha: float) -> None:
    counts([n, n_disc], "n and n_disc")
    share(alpha, "alpha")
    if not n_disc <= n or n < 1:
        raise InputError(f"n_disc must lie between 0 and n, and n be at least 1: got n_disc={n_disc}, n={n}")


def _critical(n_disc: int, alpha: float) -> int | None:
    """The largest count of the rarer side that is still significant; None if none is."""
    few = np.arange(n_disc // 2 + 1)
    fit = np.flatnonzero(mcnemar_exact(few, n_disc - few) <= alpha)
    return int(fit[-1]) if fit.size else None


def _power(n: int, n_disc: int, gap: float, edge: int) -> float:
    tilt = min(gap * n / n_disc, 1.0)
    return float(bdtr(edge, n_disc, (1 - tilt) / 2) + bdtr(edge, n_disc, (1 + tilt) / 2))
