"""Blocks of the explorer read back, as its page reads them."""

from __future__ import annotations

import gzip
import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray


def unpack(block: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Unpack a block into its header and its arrays."""
    raw = gzip.decompress(block)
    (length,) = struct.unpack_from("<I", raw)
    header = json.loads(raw[4 : 4 + length])
    start = -(-(4 + length) // 8) * 8
    arrays = {
        name: np.frombuffer(raw, f"<{kind}", int(np.prod(shape)), start + offset).reshape(shape)
        for name, (kind, shape, offset) in header.pop("arrays").items()
    }
    return header, arrays
