"""Percentile bootstrap intervals of a mean: over problems, pairs, clusters, or problems and their rollouts.

A resample of n problems is a multinomial draw over the distinct values, so outcomes with few values (paired
0/1 outcomes have three) cost almost nothing. This is exact: the resamples have the same law. Data with many
values are resampled by index, in blocks of bounded memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import InputError
from radmoe.evaluation.stats.checks import Floats, members, numbers, same_length, share

BLOCK = 1 << 18  # resampled entries held at once: 2 MiB, so they stay in cache
MULTINOMIAL_COST = 40  # one multinomial category costs as much as this many index draws


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, its percentile interval, and the sign-based two-sided bootstrap p against 0.

    n counts what was resampled: problems, pairs or clusters. p is 2 min(P(m <= 0), P(m >= 0)) over resampled
    means m, each share counted as (k + 1) / (resamples + 1), at most 1.
    """

    estimate: float
    low: float
    high: float
    p: float
    n: int
    resamples: int
    level: float


def bootstrap_mean(x: ArrayLike, *, resamples: int = 10_000, level: float = 0.95, seed: int = 0) -> Interval:
    """The mean of x over problems. If all values are alike, the interval has width 0."""
    values = numbers(x, "x")
    _enough(len(values), "problems")
    sums = _resample(values[:, None], resamples, np.random.default_rng(seed))
    return _interval(float(values.mean()), sums[:, 0] / len(values), len(values), level)


def paired_bootstrap(
    x: ArrayLike, y: ArrayLike, *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The mean of x - y over problems, which are resampled as pairs."""
    return bootstrap_mean(_difference(x, y), resamples=resamples, level=level, seed=seed)


def cluster_bootstrap(
    x: ArrayLike,
    clusters: ArrayLike,
    *,
    y: ArrayLike | None = None,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The mean of x (or x - y) over all entries; whole clusters are resampled (shards, or problems that models share)."""
    values = numbers(x, "x") if y is None else _difference(x, y)
    n, member = members(clusters, "clusters")
    same_length(values, member, "x and clusters")
    _enough(n, "clusters")
    table = np.column_stack([np.bincount(member, values), np.bincount(member)]).astype(np.float64)
    sums = _resample(table, resamples, np.random.default_rng(seed))
    return _interval(float(values.mean()), sums[:, 0] / sums[:, 1], n, level)


def two_stage_bootstrap(
    rollouts: Sequence[ArrayLike], *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The mean over problems of the mean over their rollouts (Avg@N); problems are resampled, then rollouts in each.

    `rollouts` holds one array per problem, and lengths may differ. With P problems of N rollouts each, the second
    stage adds the rollouts' variance s^2 / (N P) once more, so the interval errs on the wide side. The cost grows
    with the number of different problems times their distinct values.
    """
    groups: dict[bytes, list[Floats]] = {}
    for i, scores in enumerate(rollouts):
        values = np.sort(numbers(scores, f"rollouts of problem {i}"))
        if not values.size:
            raise InputError(f"problem {i} has no rollouts: leave it out")
        groups.setdefault(values.tobytes(), []).append(values)
    problems = sum(map(len, groups.values()))
    _enough(problems, "problems")
    _check_resamples(resamples)
    rng = np.random.default_rng(seed)
    sizes = np.array([len(alike) for alike in groups.values()])
    problem_draws = rng.multinomial(problems, sizes / problems, size=resamples)
    totals, estimate = np.zeros(resamples), 0.0
    for (values, *_), times, size in zip(groups.values(), problem_draws.T, sizes, strict=True):
        distinct, counts = np.unique(values, return_counts=True)
        rollout_draws = rng.multinomial(times * len(values), counts / len(values))
        totals += rollout_draws @ distinct / len(values)
        estimate += float(values.mean()) * int(size) / problems
    return _interval(estimate, totals / problems, problems, level)


def _difference(x: ArrayLike, y: ArrayLike) -> Floats:
    first, second = numbers(x, "x"), numbers(y, "y")
    same_length(first, second, "x and y")
    return np.asarray(first - second)


def _enough(n: int, what: str) -> None:
    if n < 2:
        raise InputError(f"a bootstrap needs at least 2 {what}, got {n}: there is no spread to resample")


def _check_resamples(resamples: int) -> None:
    if resamples < 1:
        raise InputError(f"resamples must be at least 1, got {resamples}")


def _resample(table: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Column sums [resamples, columns] of len(table) rows that are drawn with replacement from the table."""
    _check_resamples(resamples)
    n, columns = table.shape
    distinct, counts = np.unique(table, axis=0, return_counts=True)
    if len(distinct) * MULTINOMIAL_COST <= n:
        return np.asarray(rng.multinomial(n, counts / n, size=resamples) @ distinct)
    out = np.empty((resamples, columns))
    step = max(1, BLOCK // n)
    for start in range(0, resamples, step):
        rows: NDArray[np.int64] = rng.integers(0, n, size=(min(step, resamples - start), n))
        for column in range(columns):
            out[start : start + step, column] = table[:, column].take(rows).sum(axis=1)
    return out


def _interval(estimate: float, means: Floats, n: int, level: float) -> Interval:
    share(level, "level")
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    rarer = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p = min(1.0, 2 * (rarer + 1) / (len(means) + 1))
    return Interval(estimate, float(low), float(high), p, n, len(means), level)
