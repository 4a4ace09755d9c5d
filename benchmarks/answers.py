"""How the grader does on pairs of answers that were made for it (tests/grading/pairs.txt), by category.

`python -m benchmarks.answers` prints the table; with --wrong also every pair it gets wrong outside the hundred that are
held out, and with --held-out those too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from pairs import FIRST, SECOND, Outcome, ask, held_out, read_pairs


def line(name: str, outcomes: Sequence[Outcome]) -> str:
    """One row of the table: how many pairs of each sort, and what went wrong."""
    equal = [outcome for outcome in outcomes if outcome.pair.equal]
    splits, merges = (sum(getattr(outcome, what) for outcome in outcomes) for what in ("split", "merged"))
    one_way = sum(outcome.forward != outcome.backward for outcome in outcomes)
    slowest = max(outcome.seconds for outcome in outcomes)
    counts = f"{len(equal)} | {splits} | {len(outcomes) - len(equal)} | {merges} | {one_way}"
    return f"| {name} | {counts} | {slowest:.2f} |"


def main() -> None:
    """Print the table, and the pairs that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--second", action="store_true", help="take the second set, of which nothing is held out")
    parser.add_argument("--wrong", action="store_true", help="list the wrong pairs that are not held out")
    parser.add_argument("--held-out", action="store_true", help="list the wrong pairs that are held out")
    options = parser.parse_args()
    pairs = read_pairs(SECOND if options.second else FIRST)
    apart = set() if options.second else held_out(pairs)
    outcomes = ask(pairs)
    print("| category | equal | split | different | merged | one way | slowest, s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for category in dict.fromkeys(pair.category for pair in pairs):
        print(line(category, [outcome for outcome in outcomes if outcome.pair.category == category]))
    print(line("**all**", outcomes))
    if apart:
        print(line("**held out**", [outcome for outcome in outcomes if outcome.pair in apart]))
    for outcome in outcomes:
        listed = options.held_out if outcome.pair in apart else options.wrong
        if listed and (outcome.split or outcome.merged):
            what = "split" if outcome.split else "merged"
            print(f"{what}: {outcome.pair.left}  |  {outcome.pair.right}  ({outcome.pair.category})")


if __name__ == "__main__":
    main()
