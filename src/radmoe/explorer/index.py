"""The index of a page: its pools, its problems, the methods and the tables, as a block that is read first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from radmoe.explorer.blocks import pack


def encode_index(
    problems: Sequence[Mapping[str, Any]],
    *,
    pools: Sequence[Mapping[str, Any]] = (),
    methods: Sequence[Mapping[str, Any]] = (),
    tables: Sequence[Mapping[str, Any]] = (),
    verdict: str = "",
    notes: Sequence[str] = (),
    title: str = "radmoe report",
) -> bytes:
    """Encode the index as a block. `problems` are the entries of encoded problems, in the order of their blocks.

    An entry may have "pool", its pool's place among `pools`, and "hits", how right each method is on it. A pool has a
    "name" and "facts", pairs of words. A method has "name", "label" and "reads". A table has "title", "columns", "rows"
    of cells and "notes"; a cell has "text" and may have "sort", "beside", "note" and "best" (docs/explorer.md).
    """
    return pack(
        {
            "title": title,
            "pools": list(pools),
            "problems": list(problems),
            "methods": list(methods),
            "tables": list(tables),
            "verdict": verdict,
            "notes": list(notes),
        }
    )
