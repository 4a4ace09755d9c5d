"""Subsets of a router's layers, and how they are written."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import ReadoutError

Layers = str | Sequence[int] | None


def layer_subset(layers: Layers, total: int) -> NDArray[np.int64]:
    """The layer numbers of a subset, ascending; None means all of them.

    A subset is s3 (decile 3), c3 (deciles 0 to 3), x3 (all but decile 3), numbers such as "0-3,7", or a list. Decile i
    is layers floor(i*L/10) up to floor((i+1)*L/10), counted from the shallowest.
    """
    every = np.arange(total)
    if layers is None:
        return every
    chosen = _parse_layers(layers, total) if isinstance(layers, str) else np.array(list(layers))
    if chosen.size == 0:
        raise ReadoutError(f"layer subset {layers!r} is empty: with {total} layers some deciles hold none")
    if chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= total:
        raise ReadoutError(f"layer subset {layers!r} leaves layers 0..{total - 1}")
    return np.unique(chosen).astype(np.int64)


def _parse_layers(text: str, total: int) -> NDArray[np.int64]:
    every = np.arange(total)
    if match := re.fullmatch(r"([scx])(\d)", text):
        start, stop = int(match[2]) * total // 10, (int(match[2]) + 1) * total // 10
        inside = (every >= start) & (every < stop)
        return every[{"s": inside, "c": every < stop, "x": ~inside}[match[1]]]
    chosen: list[int] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if bounds is None:
            raise ReadoutError(f"unknown layer subset {text!r}: use s0-s9, c0-c9, x0-x9, or numbers such as 0-3,7")
        chosen += range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1)
    return np.array(chosen, np.int64)
