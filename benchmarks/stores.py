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
from typing import Any

sys.path.append("tests/support")

from benchmarks.pools import RECIPE, write
from radmoe import open_pool, select
from radmoe.pool import Profile
from radmoe.pool.columns import ColumnReader
from radmoe.pool.files import place
from radmoe.pool.stores import _NEAR, StorePath
from radmoe_lab import planted
from seaweed import SeaweedFS

Asked = list[tuple[int, int]]  # ranges of one call


def requests_of(asked: list[Asked]) -> tuple[int, int]:
    """Requests that went out for these calls (near ranges are joined), and their bytes."""
    requests = sent = 0
    for spans in asked:
        last = None
        for start, stop in sorted(spans):
            if last is None or start > last + _NEAR:
                requests, sent = requests + 1, sent + stop - start
            else:
                sent += max(stop - last, 0)
            last = stop if last is None else max(stop, last)
    return requests, sent


def measure(name: str, profile: Profile | None, problems: int, directory: Path) -> str:
    made = list(planted.groups(replace(RECIPE, problems=problems)))
    urls = (directory / name, place(f"s3://pools/{name}"))
    for url in urls:
        write(url, made, profile=profile)
    asked: list[Asked] = []
    blocks: list[Asked] = []
    ranges, decompress = StorePath.ranges, ColumnReader._decompress

    def counted(self: StorePath, spans: Asked) -> list[bytes]:
        asked.append(list(spans))
        return ranges(self, spans)

    def marked(self: ColumnReader, *arguments: Any) -> None:
        before = len(asked)
        decompress(self, *arguments)
        blocks.extend(asked[before:])

    StorePath.ranges = counted  # type: ignore[method-assign,assignment]
    ColumnReader._decompress = marked  # type: ignore[method-assign]
    times: dict[str, list[float]] = {str(url): [] for url in urls}
    for _ in range(15):
        for url in urls:
            pool = open_pool(url)
            select(pool.group(pool.problems[0]))  # loads what all problems share
            group = pool.problems[-1]
            asked.clear(), blocks.clear()
            start = time.perf_counter()
            select(pool.group(group))
            times[str(url)].append(1e3 * (time.perf_counter() - start))
    requests, sent = requests_of(asked)
    needed = sum(stop - start for spans in blocks for start, stop in set(spans))
    disk, store = (min(times[str(url)]) for url in urls)
    StorePath.ranges, ColumnReader._decompress = ranges, decompress  # type: ignore[method-assign]
    return f"| {name} | {requests} | {sent / 1e6:.2f} | {sent / needed:.2f} | {disk:.1f} | {store:.1f} | {store / disk:.1f}x |"


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
