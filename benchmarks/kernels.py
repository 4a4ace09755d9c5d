"""Compares weighted Jaccard with every library that computes it, or the L1 distance it follows from.

`python -m benchmarks.kernels`: 64 rollouts, a window of 16 tokens, the paper's four routers, one
thread each. Every entry is timed whole, from the route matrix Z to all similarities; rounds are
interleaved, so a slow moment of the machine hits all entries alike. Before timing, every result
must agree with ours to 1e-4. Rows of Z sum to L, so from an L1 distance d, WJ = (2L - d) / (2L + d).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import manhattan_distances
from threadpoolctl import threadpool_limits

from radmoe.selection.kernels import weighted_jaccard

SHAPES = ((24, 32, 4), (36, 128, 4), (48, 128, 8), (48, 512, 10))  # layers, experts, experts per token
ROLLOUTS, WINDOW, BASINS = 64, 16, 4
OURS, DENSE = "radmoe", "radmoe, Z without zeros"

Array = np.ndarray[Any, Any]


def route_matrix(layers: int, experts: int, top_k: int, seed: int = 0) -> Array:
    """A route matrix float32[64, L*E] like a real one: Zipf popularity per layer, a shift per basin, noise per token."""
    rng = np.random.default_rng(seed)
    popularity = -np.log(np.argsort(rng.random((layers, experts)), axis=-1) + 1.0)
    shift = 0.7 * rng.normal(size=(BASINS, layers, experts))
    Z = np.zeros((ROLLOUTS, layers, experts), np.float32)
    for i in range(ROLLOUTS):
        logits = popularity + shift[i % BASINS] + rng.gumbel(size=(WINDOW, layers, experts))
        chosen = np.argpartition(-logits, top_k - 1, axis=-1)[..., :top_k]
        weights = np.exp(np.take_along_axis(logits, chosen, axis=-1))
        weights = (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float16).astype(np.float32)
        weights /= weights.sum(axis=-1, keepdims=True)  # float16 rounding must not blur the L1 identity
        for t in range(WINDOW):
            np.put_along_axis(Z[i], chosen[t], np.take_along_axis(Z[i], chosen[t], -1) + weights[t] / WINDOW, -1)
    return Z.reshape(ROLLOUTS, layers * experts)


def entries(Z: Array, layers: int) -> dict[str, Callable[[], Array]]:
    """Calls by name, each of which returns all pairs, as a square matrix or as its upper triangle row by row."""
    tensor = torch.from_numpy(Z)

    def from_l1(distance: Any) -> Array:
        distance = np.asarray(distance)
        return np.asarray((2 * layers - distance) / (2 * layers + distance))

    def broadcast() -> Array:
        return np.stack([np.minimum(z, Z).sum(axis=1) / np.maximum(z, Z).sum(axis=1) for z in Z])

    return {
        OURS: lambda: weighted_jaccard(Z),
        "torch.pdist p=1": lambda: from_l1(torch.pdist(tensor, 1)),
        "torch.cdist p=1": lambda: from_l1(torch.cdist(tensor, tensor, 1)),
        "scipy pdist cityblock": lambda: from_l1(pdist(Z, "cityblock")),
        "scipy cdist cityblock": lambda: from_l1(cdist(Z, Z, "cityblock")),
        "sklearn manhattan_distances": lambda: from_l1(manhattan_distances(Z)),
        "sklearn pairwise_distances": lambda: from_l1(pairwise_distances(Z, metric="manhattan", n_jobs=1)),
        "faiss METRIC_Jaccard": lambda: faiss.pairwise_distances(Z, Z, metric=faiss.METRIC_Jaccard),
        "numpy broadcasting": broadcast,
    }


@threadpool_limits.wrap(limits=1)  # this limits OpenMP and BLAS of every library that is loaded
def kernel_table(repeats: int = 15) -> list[dict[str, Any]]:
    """One row per shape and entry: router, nonzero (share of Z), name, median_ms, min_ms."""
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for layers, experts, top_k in SHAPES:
        Z = route_matrix(layers, experts, top_k)
        calls = entries(Z, layers)
        ours = weighted_jaccard(Z)
        for name, call in calls.items():
            theirs = call()
            if theirs.ndim == 1:  # pdist returns the upper triangle
                theirs = squareform(theirs) + np.eye(len(Z))
            worst = float(np.abs(theirs - ours).max())
            if not worst <= 1e-4:
                raise AssertionError(f"{name} differs from radmoe by {worst:.2g} on {layers}x{experts}")
        filled = Z + np.float32(1e-3)
        calls[DENSE] = lambda filled=filled: weighted_jaccard(filled)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(repeats):
            for name, call in calls.items():
                call()  # not timed, because the entry before it has filled the caches with its own data
                start = time.perf_counter()
                call()
                times[name].append(1e3 * (time.perf_counter() - start))
        about = {"router": f"{layers}x{experts} top-{top_k}", "nonzero": float(np.mean(Z > 0))}
        for name, spent in times.items():
            rows.append(about | {"name": name, "median_ms": float(np.median(spent)), "min_ms": min(spent)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=15)
    rows = kernel_table(parser.parse_args().repeats)
    routers = list(dict.fromkeys(row["router"] for row in rows))
    table = Table("median (fastest) ms", *routers, title="Weighted Jaccard, N=64, window 16, one thread")
    at = {(row["name"], row["router"]): row for row in rows}
    for name in dict.fromkeys(row["name"] for row in rows):
        cells = (at[name, router] for router in routers)
        table.add_row(name, *(f"{cell['median_ms']:.3f} ({cell['min_ms']:.3f})" for cell in cells))
    table.add_section()
    for key in ("median_ms", "min_ms"):
        peers = [min(at[n, r][key] for n, r in at if r == router and n not in (OURS, DENSE)) for router in routers]
        gains = (f"{peer / at[OURS, router][key]:.1f}x" for peer, router in zip(peers, routers, strict=True))
        table.add_row(f"fastest peer / radmoe ({key[:-3]})", *gains)
    table.add_row("non-zero share of Z", *(f"{at[OURS, router]['nonzero']:.0%}" for router in routers))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
