"""Measures reading one problem of 64 rollouts from a store on this machine: requests, bytes and time, beside the same pool on disk.

`python -m benchmarks.stores` starts SeaweedFS (the wheel of the dev extra) and prints a table.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.append("tests/support")

from benchmarks.pools import RECIPE, write
from radmoe import open_pool, select
from radmoe.pool import Pool, Profile
from radmoe.pool.files import place
from radmoe.pool.stores import _NEAR, StorePath
from radmoe_lab import planted
from seaweed import SeaweedFS


def blocks_needed(pool: Pool, asked: list[tuple[StorePath, list[tuple[int, int]]]]) -> tuple[int, int, int]:
    """Requests that went out for these ranges (near ones are joined), their bytes, and the bytes of the blocks alone."""
    requests = sent = blocks = 0
    for _, spans in asked:
        last = None
        for start, stop in sorted(spans):
            if last is None or start > last + _NEAR:
                requests, sent = requests + 1, sent + stop - start
            else:
                sent += max(stop - last, 0)
            last = stop if last is None else max(stop, last)
    for _, spans in asked[1::2]:  # each column is asked twice: for the heads of chunks, and for blocks
        blocks += sum(stop - start for start, stop in set(spans))
    return requests, sent, blocks


def measure(name: str, profile: Profile | None, problems: int, directory: Path) -> str:
    made = list(planted.groups(replace(RECIPE, problems=problems)))
    urls = (directory / name, place(f"s3://pools/{name}"))
    for url in urls:
        write(url, made, profile=profile)
    asked: list[tuple[StorePath, list[tuple[int, int]]]] = []
    ranges = StorePath.ranges

    def counted(self: StorePath, spans: list[tuple[int, int]]) -> list[bytes]:
        asked.append((self, list(spans)))
        return ranges(self, spans)

    StorePath.ranges = counted  # type: ignore[method-assign,assignment]
    times: dict[str, list[float]] = {str(url): [] for url in urls}
    pools = {str(url): open_pool(url) for url in urls}
    problem = pools[str(urls[0])].problems[-1]
    for pool in pools.values():
        select(pool.group(problem))
    for _ in range(15):
        for url, pool in pools.items():
            asked.clear()
            start = time.perf_counter()
            select(pool.group(problem))
            times[url].append(1e3 * (time.perf_counter() - start))
    requests, sent, blocks = blocks_needed(pools[str(urls[1])], asked)
    disk, store = (min(times[str(url)]) for url in urls)
    StorePath.ranges = ranges  # type: ignore[method-assign]
    return f"| {name} | {requests} | {sent / 1e6:.2f} | {sent / blocks:.2f} | {disk:.1f} | {store:.1f} | {store / disk:.1f}x |"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["RADMOE_SPOOL"] = f"{scratch}/unsent"
        (Path(scratch) / "weed").mkdir()
        server = SeaweedFS(Path(scratch) / "weed")
        os.environ.update(server.environment)
        try:
            print("| pool | requests | MB | bytes / blocks | disk, min ms | store, min ms | ratio |")
            print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
            print(measure("window-only", Profile(readouts=("delimiter@16",)), 4, Path(scratch)))
            print(measure("full", None, 2, Path(scratch)))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
