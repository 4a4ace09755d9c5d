"""Blocks: a JSON header and typed arrays in one compressed piece, which a page reads when it needs it.

A block is gzip of: the length of the header as a little-endian uint32, the header as UTF-8 JSON, and the arrays. The
header's "arrays" gives each array by its name as [type, shape, offset]; offsets count from the end of the header, rounded
up to a multiple of 8, and every array begins at such a multiple. Types are u1, u2, u4, i1, i2, i4 and f4, little-endian.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = 1
TYPES = ("u1", "u2", "u4", "i1", "i2", "i4", "f4")
_ALIGNED = 8
_LENGTH = struct.Struct("<I")


def pack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """Pack a header and arrays into a block. The same content gives the same bytes."""
    places: dict[str, tuple[str, tuple[int, ...], int]] = {}
    pieces: list[bytes] = []
    offset = 0
    for name, array in (arrays or {}).items():
        kind = f"{array.dtype.kind}{array.dtype.itemsize}"
        if kind not in TYPES:
            raise TypeError(f"array {name} is {array.dtype}: a block holds {', '.join(TYPES)}")
        places[name] = (kind, array.shape, offset)
        raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        pieces.append(raw + bytes(-len(raw) % _ALIGNED))
        offset += len(pieces[-1])
    text = json.dumps({**header, "format": FORMAT, "arrays": places}, separators=(",", ":"), allow_nan=False)
    head = _LENGTH.pack(len(text)) + text.encode()  # json writes ASCII, so characters are bytes
    return gzip.compress(head + bytes(-len(head) % _ALIGNED) + b"".join(pieces), 6, mtime=0)


def smallest(values: NDArray[Any]) -> NDArray[Any]:
    """Convert non-negative integers to the smallest unsigned type that holds them."""
    most = int(values.max(initial=0))
    return values.astype(np.uint8 if most < 2**8 else np.uint16 if most < 2**16 else np.uint32)


def ragged(rows: list[list[int]]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Concatenate rows of different lengths. Returns the array and the offsets [rows + 1] at which each row begins."""
    begins = np.cumsum([0, *map(len, rows)]).astype(np.uint32)
    return np.array([value for row in rows for value in row], np.uint32), begins
