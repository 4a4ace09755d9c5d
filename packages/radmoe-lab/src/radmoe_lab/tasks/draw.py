"""Random draws that are the same in every Python version: they use `Random.random()` alone, which never changes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

TEST_SHARE = 10  # one problem in so many is a test problem


def seeded(*parts: object) -> Random:
    """Return a generator seeded by all parts."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return Random(int.from_bytes(digest, "little"))


def is_test(canonical: str) -> bool:
    """Whether a problem is a test problem. Its content alone decides, so training and test problems never overlap."""
    digest = hashlib.blake2b(canonical.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % TEST_SHARE == 0


def between(rng: Random, low: int, high: int) -> int:
    """Draw an integer in [low, high]."""
    return low + int(rng.random() * (high - low + 1))


def chance(rng: Random, p: float) -> bool:
    return rng.random() < p


def pick(rng: Random, items: Sequence[T]) -> T:
    """Draw one of the items, all equally likely."""
    return items[int(rng.random() * len(items))]


def favour(rng: Random, items: Sequence[T]) -> T:
    """Draw one of the items, the earlier ones more often, as a writer prefers some wordings."""
    u = rng.random()
    return items[int(u * u * len(items))]


def shuffled(rng: Random, items: Sequence[T]) -> list[T]:
    out = list(items)
    for i in range(len(out) - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        out[i], out[j] = out[j], out[i]
    return out
