"""Measures selection end to end, memory, write throughput and compression on planted pools.

`python -m benchmarks.pools` prints all four.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blosc2
import numpy as np

from radmoe.pool import PoolWriter, Profile, open_pool, schema
from radmoe.pool.columns import compression
from radmoe.selection.readout import windows
from radmoe.selection.selector import select
from radmoe.types import RolloutGroup, RouterShape
from radmoe_lab import planted
from radmoe_lab.planted import Planted, PlantedGroup

SHAPE = RouterShape(48, 128, 8)
RECIPE = Planted(shape=SHAPE, problems=2, rollouts=64, tokens=1850)  # about 2,000 tokens a rollout
BIG = 2_000_000_000  # bytes on disk of the pool that memory is measured on


def write(path: Path, problems: list[PlantedGroup], repeats: int = 1, profile: Profile | None = None) -> float:
    """Write a pool that holds every problem `repeats` times, and return the seconds it took."""
    start = time.perf_counter()
    with PoolWriter(path, shape=SHAPE, vocab=planted.vocab(), model="planted", profile=profile) as writer:
        for repeat in range(repeats):
            for problem in problems:
                for rollout in problem.group.rollouts:
                    writer.add(f"{problem.group.problem_id}-{repeat}", rollout, kind=problem.group.kind)
    return time.perf_counter() - start


def whole_columns(path: Path, problem: str) -> np.ndarray[Any, Any]:
    """The densities as one gets them without a window reader: both columns decompressed, averaged, broadcast in NumPy."""
    group = open_pool(path).group(problem)
    Z = []
    for rollout in group.rollouts:
        ids, weights = rollout.expert_ids, rollout.weights
        assert weights is not None
        for start, stop in windows("delimiter@16", rollout.token_ids, group.vocab, "math"):
            z = np.zeros((SHAPE.layers, SHAPE.experts), np.float32)
            layer = np.arange(SHAPE.layers)[None, :, None]
            np.add.at(z, (layer, ids[start:stop]), weights[start:stop].astype(np.float32) / (stop - start))
            Z.append(z.reshape(-1))
    stacked = np.array(Z)
    least = np.minimum(stacked[:, None], stacked[None]).sum(axis=-1)
    S = least / np.maximum(stacked[:, None], stacked[None]).sum(axis=-1)
    np.fill_diagonal(S, 0.0)
    return np.asarray(np.sort(S, axis=1)[:, -10:].sum(axis=1))


def end_to_end(path: Path, problem: str, repeats: int = 15) -> dict[str, float]:
    """Milliseconds from a closed pool to the pick, for us and for whole columns in NumPy: medians and minima.

    The two are timed in turns.
    """
    selection = select(open_pool(path).group(problem))
    worst = np.abs(selection.k * selection.density[selection.located] - whole_columns(path, problem)).max()
    if not worst < 1e-4:
        raise AssertionError(f"densities differ by {worst}")
    calls: dict[str, Callable[[], object]] = {
        "radmoe": lambda: select(open_pool(path).group(problem)),
        "numpy": lambda: whole_columns(path, problem),
    }
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(repeats):
        for name, call in calls.items():
            if name == "numpy" and round_ >= 5:
                continue
            start = time.perf_counter()
            call()
            spent[name].append(1e3 * (time.perf_counter() - start))
    statistics: dict[str, Callable[[list[float]], Any]] = {"median": np.median, "min": min}
    return {f"{name} {label}": f(times) for name, times in spent.items() for label, f in statistics.items()}


def peak_memory(path: Path, warm: Path) -> dict[str, float]:
    """Megabytes that selecting over `path` adds to a process that has already selected from `warm`."""
    code = (
        "import re, sys; from pathlib import Path; from radmoe import open_pool, select\n"
        "def peak(): return int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) / 1024\n"
        "[select(g) for g in open_pool(sys.argv[2]).groups()]; before = peak()\n"
        "n = sum(select(g).index is not None for g in open_pool(sys.argv[1]).groups())\n"
        "print(n, before, peak() - before)"
    )  # VmHWM is read because ru_maxrss is inherited from this process
    process = subprocess.run(
        [sys.executable, "-c", code, str(path), str(warm)], capture_output=True, text=True, check=True
    )
    problems, before, growth = map(float, process.stdout.split())
    return {"problems": problems, "before_mb": before, "grown_mb": growth}


def routing(path: Path) -> dict[str, float]:
    """The bytes of routing as captured, as kept and on disk, and the compression ratio of each routing column."""
    pool = open_pool(path)
    out: dict[str, float] = dict(zip(("captured", "kept", "disk"), pool.routing_bytes(), strict=True))
    for shard in pool.shards.values():
        for column in schema.ROUTING:
            if (entry := shard.meta["columns"].get(column.name)) is not None:
                out[column.name] = entry["rows"] * entry["per_row"] * column.dtype.itemsize / entry["bytes"]
    return out


def settings_table(group: RolloutGroup) -> list[dict[str, Any]]:
    """The ratio, write speed and window-read speed of the routing columns under the paper's settings and ours."""
    paper = {
        "codec": blosc2.Codec.ZSTD,
        "clevel": 5,
        "typesize": 2,
        "filters": [blosc2.Filter.SHUFFLE, blosc2.Filter.BYTEDELTA],
        "filters_meta": [0, 2],
        "nthreads": 1,
    }
    rows = []
    for column, name in ((schema.EXPERT_IDS, "expert_ids"), (schema.EXPERT_WEIGHTS, "weights")):
        data = np.concatenate([getattr(rollout, name) for rollout in group.rollouts[:24]])
        ours = compression(column, SHAPE.top_k, sorted_experts=False)
        choices = {
            "paper: SHUFFLE + BYTEDELTA, level 5, blosc2's block": paper,
            "the same, 16 KiB blocks": paper | {"blocksize": schema.BLOCK_BYTES},
            "without BYTEDELTA": paper
            | {"blocksize": schema.BLOCK_BYTES, "filters": paper["filters"][:1], "filters_meta": [0]},
            "radmoe": ours,
        }
        rows += [
            {"column": name, "settings": label} | _measure_frame(data, cparams) for label, cparams in choices.items()
        ]
    return rows


def _measure_frame(data: np.ndarray[Any, Any], cparams: dict[str, Any]) -> dict[str, float]:
    unit = cparams["typesize"]
    chunk = schema.CHUNK_BYTES // unit * unit
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    start = time.perf_counter()
    frame = blosc2.SChunk(chunksize=chunk, contiguous=True, cparams=cparams, dparams={"nthreads": 1})
    for at in range(0, len(raw), chunk):
        frame.append_data(raw[at : at + chunk])
    spent = time.perf_counter() - start
    per_row = raw.size // len(data) // unit
    starts = np.linspace(0, len(data) - 16, 64).astype(int)
    reads = []
    for _ in range(7):
        begin = time.perf_counter()
        for row in starts:
            frame.get_slice(int(row) * per_row, (int(row) + 16) * per_row)
        reads.append(1e3 * (time.perf_counter() - begin))
    return {"ratio": raw.size / frame.cbytes, "write_mb_s": raw.size / spent / 1e6, "read_ms": min(reads)}


def measure(scratch: Path) -> dict[str, Any]:
    """Every figure that the benchmarks page prints of the pool."""
    problems = list(planted.groups(RECIPE))
    small = scratch / "small"
    seconds = write(small, problems)
    pool = open_pool(small)
    size = routing(small)
    results: dict[str, Any] = {
        "rollouts": RECIPE.rollouts,
        "tokens": pool.tokens / len(pool),
        "write_mb_s": size["captured"] / seconds / 1e6,
        "write_tokens_s": pool.tokens / seconds,
        "routing": size,
        "end_to_end": end_to_end(small, pool.problems[0]),
        "settings": settings_table(problems[0].group),
        "profiles": {},
    }
    profiles = {
        "experts sorted by id": Profile(sort_experts=True),
        "shallowest tenth of the layers": Profile(layers=tuple(range(4))),
        "windows of delimiter@16 only": Profile(readouts=("delimiter@16",)),
        "both of the last two, sorted": Profile(sort_experts=True, layers=tuple(range(4)), readouts=("delimiter@16",)),
    }
    for name, profile in profiles.items():
        write(scratch / name, problems[:1], profile=profile)
        results["profiles"][name] = routing(scratch / name)
    write(scratch / "plain", problems[:1])
    results["profiles"] = {"everything (the default)": routing(scratch / "plain")} | results["profiles"]
    on_disk = sum(shard.bytes for shard in pool.shards.values())
    write(scratch / "big", problems, repeats=-(-BIG // on_disk))
    big = open_pool(scratch / "big")
    results["memory"] = {"pool_gb": sum(s.bytes for s in big.shards.values()) / 1e9} | peak_memory(
        scratch / "big", small
    )
    return results


def main() -> None:
    import json

    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(measure(Path(scratch)), indent=1))


if __name__ == "__main__":
    main()
