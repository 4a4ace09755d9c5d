"""The tables that the paper prints, for studies that put its numbers beside theirs.

They are the files that the audit checks, one CSV per label.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache

from radmoe_studies.published import tables

POOLS = {"gpqa": "science"}  # pools that are called otherwise here


@cache
def printed(label: str) -> tuple[Mapping[str, str], ...]:
    """The rows of a table by its label, as printed."""
    file = tables() / f"{label}.csv"
    return tuple(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


def percent(text: str) -> float | None:
    """A printed percentage or difference in points as a fraction; None where the paper prints none."""
    return round(float(text) / 100, 6) if text.strip("-") else None


def pool_of(row: Mapping[str, str]) -> str:
    """The name that this package has for the pool of problems of a row."""
    return POOLS.get(row["pool"], row["pool"])
