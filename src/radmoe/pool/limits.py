"""Limits on the memory that a pool's files may claim before they have been checked.

A small file can claim a large content: 100 kB of parquet may hold 10^9 rows, and 32 bytes of blosc2 stand for 2 GB. So
every size that a file claims is checked before memory is taken for it. What a file may take is the memory limit, or
`RATIO` times the bytes that lie on disk where that is more: a large pool is really there, and opens.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from radmoe.errors import InputError, PoolTooLarge

VARIABLE = "RADMOE_MEMORY_LIMIT"
DEFAULT = 512 << 20
RATIO = 32  # the routing of a model compresses twofold, texts fivefold, tables of runs more: those have few bytes
CELL_BYTES = 128  # what a value of a table takes as a Python object, with its place in a list, a dict or an index

_SIZE = re.compile(r"([0-9]{1,18}) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def memory_limit() -> int:
    """The bytes that a file of a pool may take in memory, from the environment: `2G`, `800M`, or a number of bytes."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT
    match = _SIZE.fullmatch(text)
    if match is None or not int(match[1]):
        raise InputError(f"{VARIABLE} is {text!r}: give a number of bytes, such as 2G or 800M")
    return int(match[1]) << _UNITS[match[2].upper()]


def check_claim(path: Path, claim: str, needed: int, on_disk: int | None = None) -> None:
    """Refuse what a file claims if that needs more memory than the limit.

    More is allowed where the bytes on disk account for it; without them the limit holds for whatever is there.
    """
    limit = memory_limit()
    if needed > max(limit, RATIO * (on_disk or 0)):
        held = "" if on_disk is None else f", and has {_spell(on_disk)} on disk"
        raise PoolTooLarge(
            f"{path} claims {claim}, which takes {_spell(needed)} of memory{held}: the limit is {_spell(limit)}; "
            f"if you trust the pool, set {VARIABLE}={_at_least(needed)}"
        )


def check_json(path: Path, content: bytes) -> None:
    """Refuse a JSON text whose objects would take more memory than the limit. Four bytes of text can be 64 of memory."""
    objects = 240 * content.count(b"{") + 64 * sum(content.count(mark) for mark in (b"[", b",", b":"))
    check_claim(path, f"to be JSON and has {len(content):,} bytes of it", objects + 2 * len(content))


def _spell(size: int) -> str:
    for unit, power in (("GB", 30), ("MB", 20), ("kB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):,.1f} {unit}"
    return f"{size} bytes"


def _at_least(size: int) -> str:
    return f"{-(-size >> 30)}G" if size < 1 << 60 else str(size)
