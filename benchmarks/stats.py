"""A paired bootstrap interval, and the Poisson-binomial tail, against SciPy.

`python -m benchmarks.stats`: 10,000 resamples over 3,180 problems (the paper's natural pool), one thread; and
P(X >= k) over 5,000 problems. Rounds are interleaved. Before timing, results must agree: intervals to a
twentieth of their width, tails to 1e-9. SciPy resamples many-valued data by index, as we do; its `batch` is set
so that neither holds more than a few megabytes, and to its default, everything at once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import bootstrap, poisson_binom
from threadpoolctl import threadpool_limits

from radmoe.evaluation import stats

PROBLEMS, RESAMPLES, LARGE = 3180, 10_000, 5000
OURS = "radmoe"

Call = Callable[[], tuple[float, ...]]


def by_scipy(d: np.ndarray[Any, Any], batch: int | None) -> tuple[float, ...]:
    rng = np.random.default_rng(0)
    result = bootstrap((d,), np.mean, n_resamples=RESAMPLES, method="percentile", batch=batch, rng=rng)
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def by_loop(d: np.ndarray[Any, Any]) -> tuple[float, ...]:
    rng = np.random.default_rng(0)
    means = [rng.choice(d, len(d)).mean() for _ in range(RESAMPLES)]
    return tuple(np.quantile(means, [0.025, 0.975]).tolist())


def intervals(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> dict[str, Call]:
    """Name -> a call that returns the 95% interval of mean(x - y)."""
    d = x.astype(float) - y.astype(float)

    def ours() -> tuple[float, ...]:
        interval = stats.paired_bootstrap(x, y, resamples=RESAMPLES)
        return interval.low, interval.high

    return {
        OURS: ours,
        "scipy.stats.bootstrap, batch 100": lambda: by_scipy(d, 100),
        "scipy.stats.bootstrap, default": lambda: by_scipy(d, None),
        "numpy, one choice per resample": lambda: by_loop(d),
    }


def cases() -> dict[str, tuple[dict[str, Call], float]]:
    """Case -> its entries, and how far their results may differ."""
    rng = np.random.default_rng(0)
    x, y = rng.random((2, PROBLEMS)) < 0.7
    lifts = rng.normal(0.05, 0.3, size=PROBLEMS)
    rates = rng.integers(0, 65, size=LARGE) / 64
    k = int(rates.sum() + 40)
    tails: dict[str, Call] = {
        OURS: lambda: (stats.poisson_binomial_test(rates, k).p,),
        "scipy.stats.poisson_binom": lambda: (float(poisson_binom.sf(k - 1, rates)),),
    }
    return {
        "interval, outcomes 0/1": (intervals(x, y), 0.05 * 4 * 0.65 / PROBLEMS**0.5),
        "interval, many-valued": (intervals(lifts, np.zeros(PROBLEMS)), 0.05 * 4 * 0.3 / PROBLEMS**0.5),
        "Poisson-binomial tail": (tails, 1e-9),
    }


@threadpool_limits.wrap(limits=1)
def stats_table(repeats: int = 5) -> list[dict[str, Any]]:
    """One row per case and entry: case, name, median_ms, min_ms."""
    rows: list[dict[str, Any]] = []
    for case, (calls, slack) in cases().items():
        expected = np.array(calls[OURS]())
        for name, call in calls.items():
            worst = float(np.abs(np.array(call()) - expected).max())
            if not worst <= slack:
                raise AssertionError(f"{name} differs from radmoe by {worst:.2g}: {case}")
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(repeats):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                times[name].append(1e3 * (time.perf_counter() - start))
        for name, spent in times.items():
            rows.append({"case": case, "name": name, "median_ms": float(np.median(spent)), "min_ms": min(spent)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5)
    rows = stats_table(parser.parse_args().repeats)
    ours = {row["case"]: row for row in rows if row["name"] == OURS}
    table = Table("case", "entry", "median ms", "min ms", "/ radmoe, median", "/ radmoe, min", title="One thread")
    for row in rows:
        ratios = (f"{row[key] / ours[row['case']][key]:.1f}x" for key in ("median_ms", "min_ms"))
        table.add_row(row["case"], row["name"], f"{row['median_ms']:.1f}", f"{row['min_ms']:.1f}", *ratios)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
