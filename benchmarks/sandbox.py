"""What it costs to run a program in the sandbox, against a plain `python -c` and against another working tree.

`python -m benchmarks.sandbox [--against TREE]`: per program, one that is called and one that reads and prints, in a
sandbox that is open already; and the time until a sandbox has run its first program, in a process that has run none
and in one that has. Rounds of all entries are interleaved. TREE is a checkout of another commit, say of the one before
a change: `git worktree add /tmp/before main`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent.parent
PLAIN = "python -c"
# Answers each line of its input, the name of a case and a count, with the milliseconds per program. Runs in either tree.
DRIVER = """
import sys, time
from radmoe.sandbox import Sandbox

CALLED = "def f(xs):\\n    return sum(x * x for x in xs)"
READS = "n = int(input())\\nprint(sum(x * x for x in map(int, input().split())))"
STARTS = "start"

def run(sandbox, case, count):
    for number in range(count):
        if case == "called":
            outcome = sandbox.call(f"# {number}\\n{CALLED}", "f", [([1, 2, 3],)])
        else:
            outcome = sandbox.feed(f"# {number}\\n{READS}", "3\\n1 2 3\\n")
        assert outcome.data in (b"0xe", b"14\\n"), outcome

opened = None
for line in sys.stdin:
    case, count = line.split()
    if case != STARTS and opened is None:
        opened = Sandbox()
        run(opened, "called", 1)
    started = time.perf_counter()
    if case == STARTS:
        with Sandbox() as sandbox:
            run(sandbox, "called", 1)
    else:
        run(opened, case, int(count))
    print(1e3 * (time.perf_counter() - started) / int(count), flush=True)
if opened is not None:
    opened.close()
"""


class Tree:
    """A process that runs programs in the sandbox of one working tree."""

    def __init__(self, tree: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", DRIVER]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True)

    def measure(self, case: str, count: int) -> float:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{case} {count}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def plain() -> float:
    """Milliseconds of a bare interpreter that does the same, unconfined."""
    started = time.perf_counter()
    program = "print(sum(x * x for x in [1, 2, 3]))"
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True, stdout=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - started)


def measure(trees: dict[str, Path], rounds: int, count: int) -> dict[tuple[str, str], list[float]]:
    """(case, entry) -> milliseconds per program, one figure per round."""
    times: dict[tuple[str, str], list[float]] = {}
    open_trees = {name: Tree(tree) for name, tree in trees.items()}
    for _ in range(rounds):
        for case in ("called", "reads and prints", "start, again"):
            for name, tree in open_trees.items():
                word, programs = ("start", 1) if case.startswith("start") else (case.split()[0], count)
                times.setdefault((case, name), []).append(tree.measure(word, programs))
            times.setdefault((case, PLAIN), []).append(plain())
        for name, path in trees.items():
            fresh = Tree(path)
            times.setdefault(("start, the first", name), []).append(fresh.measure("start", 1))
            fresh.close()
        times.setdefault(("start, the first", PLAIN), []).append(plain())
    for tree in open_trees.values():
        tree.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--against", type=Path, help="a working tree to compare with")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--programs", type=int, default=50)
    options = parser.parse_args()
    trees = {"this tree": HERE, **({str(options.against): options.against.resolve()} if options.against else {})}
    times = measure(trees, options.rounds, options.programs)
    table = Table("case", "entry", "median ms", "min ms", f"/ {PLAIN}, median", "min", title="Per program, one sandbox")
    for (case, name), spent in times.items():
        base = times[case, PLAIN]
        ratios = (f"{kind(spent) / kind(base):.2f}" for kind in (statistics.median, min))
        table.add_row(case, name, f"{statistics.median(spent):.2f}", f"{min(spent):.2f}", *ratios)
    Console(width=140).print(table)
    if options.against:
        for case in dict.fromkeys(case for case, _ in times):
            ours, theirs = times[case, "this tree"], times[case, str(options.against)]
            paired = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
            print(
                f"{case}: this tree / {options.against}: {min(ours) / min(theirs):.2f} by minima, {paired:.2f} paired"
            )


if __name__ == "__main__":
    main()
