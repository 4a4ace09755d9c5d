r"""Pairs of answers by category (pairs.txt), and how the grader does on them.

The pairs were written before the grader was changed to do well on them. A hundred of them are held out: nobody looked at
their outcomes one by one until the work was done. Which ones these are, their digests decide.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from radmoe.grading.equivalence import Equivalence

FIRST, SECOND = (Path(__file__).with_name(name) for name in ("pairs.txt", "pairs_second.txt"))
_HELD_OUT = 100


class Pair(NamedTuple):
    """Two answers, and whether they are the same answer."""

    category: str
    left: str
    right: str
    equal: bool


@dataclass(frozen=True)
class Outcome:
    """What the grader said about a pair, asked both ways; `seconds` is the slower of the two."""

    pair: Pair
    forward: bool
    backward: bool
    seconds: float

    @property
    def merged(self) -> bool:
        """Different answers that were held for the same."""
        return not self.pair.equal and (self.forward or self.backward)

    @property
    def split(self) -> bool:
        """Equal answers that were held for different."""
        return self.pair.equal and not (self.forward and self.backward)


def read_pairs(path: Path = FIRST) -> list[Pair]:
    """All pairs, in the order of the file."""
    pairs, category = [], ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            category = line[3:]
        for sign, equal in ((" === ", True), (" =/= ", False)):
            if not line.startswith("#") and sign in line:
                left, _, right = line.partition(sign)
                pairs.append(Pair(category, left, right, equal))
    return pairs


def held_out(pairs: Iterable[Pair]) -> set[Pair]:
    """The hundred pairs whose digests come first."""
    return set(sorted(pairs, key=lambda pair: hashlib.sha256("\n".join(pair[:3]).encode()).digest())[:_HELD_OUT])


def ask(pairs: Iterable[Pair]) -> list[Outcome]:
    """The grader's verdicts. Its process is started before the first pair, so no pair pays for that."""
    outcomes = []
    with Equivalence() as equal:
        equal.same(r"\sqrt{8}", r"2\sqrt{2}")
        for pair in pairs:
            verdicts, seconds = [], 0.0
            for a, b in ((pair.left, pair.right), (pair.right, pair.left)):
                started = time.monotonic()
                verdicts.append(equal.same(a, b))
                seconds = max(seconds, time.monotonic() - started)
            outcomes.append(Outcome(pair, *verdicts, seconds))
    return outcomes
