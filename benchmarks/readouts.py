"""What readouts of whole answers cost: programs of 2,000 tokens, 64 rollouts, a 48x128 top-8 router, one thread.

`python -m benchmarks.readouts` prints a table: milliseconds from a closed pool to the pick, and how far the peak memory of a
process that has already selected once with `delimiter@16` rises.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.pools import SHAPE, write
from radmoe.pool import open_pool
from radmoe.selection.readout import windows
from radmoe.selection.selector import select
from radmoe_lab import planted
from radmoe_lab.planted import Planted

RECIPE = Planted(shape=SHAPE, problems=1, rollouts=64, tokens=150, kind="code", lines=204)  # 2,000 tokens a program
READOUTS = ("delimiter@16", "closing@16", "closing@-16", "delimiter@span", "all")
_PEAK = (
    "import re, sys; from pathlib import Path; from radmoe import open_pool, select\n"
    "def peak(): return int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) / 1024\n"
    "def run(readout): return [select(group, readout=readout) for group in open_pool(sys.argv[1]).groups()]\n"
    "run('delimiter@16'); before = peak(); run(sys.argv[2]); print(before, peak() - before)"
)  # VmHWM is read because ru_maxrss is inherited from this process


def milliseconds(path: Path, readout: str, repeats: int) -> list[float]:
    """The time from a closed pool to the pick, for each of some repeats after a first that is not counted."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        select(open_pool(path).group(open_pool(path).problems[0]), readout=readout)
        times.append(1e3 * (time.perf_counter() - start))
    return times[1:]


def megabytes(path: Path, readout: str) -> tuple[float, float]:
    """The peak memory of a process before it selects by a readout, and how far that raises it."""
    command = [sys.executable, "-c", _PEAK, str(path), readout]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    before, growth = map(float, process.stdout.split())
    return before, growth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    problems = list(planted.groups(RECIPE))
    group = problems[0].group
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "pool"
        write(path, problems)
        print("| readout | rows per rollout | median ms | min ms | process MB | + MB |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for readout in READOUTS:
            spans = [windows(readout, rollout.token_ids, group.vocab, "code") for rollout in group.rollouts]
            rows = np.mean([stop - start for own in spans for start, stop in own])
            times, (before, growth) = milliseconds(path, readout, repeats), megabytes(path, readout)
            cells = [f"{rows:,.0f}", f"{np.median(times):.0f}", f"{min(times):.0f}", f"{before:.0f}", f"{growth:.1f}"]
            print(f"| `{readout}` | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
