"""The tables that the paper prints, as data: one CSV per label, and `tables.csv`, which lists them.

The audit checks them against each other; studies put them beside their own numbers.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable


def tables() -> Traversable:
    """The directory of the tables."""
    return files("radmoe_studies.published") / "tables"
