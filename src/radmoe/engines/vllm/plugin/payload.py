"""The byte format in which a worker hands out the rows of a request's choices.

A payload begins with the letters RADR and the header's length (uint32, little-endian). Then come a JSON header that
lists columns as [name, dtype, shape], and the columns' bytes one after another, little-endian, in C order:

choice   int32[n]       which choice (completion) of the request
row_ptr  int64[n+1]     rows of choice i are row_ptr[i] .. row_ptr[i+1]
token    int32[R]       t: the row is R(t), the routing that predicts generated token t; negative in the prompt
layers   int32[L]       which MoE layers, counted from 0 over the layers that have experts
ids      uint8 or int16 [R, L, K]
weights  float16[R, L, K], sums of 1; absent when ids alone were captured
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.kept_rows import format_layers
from radmoe.engines.vllm.plugin.store import ChoiceRows
from radmoe.errors import EngineError
from radmoe.types import RouterShape, Rows

MAGIC = b"RADR"
_COLUMNS = {  # their dimensions and dtypes
    "choice": (1, ("<i4",)),
    "row_ptr": (1, ("<i8",)),
    "token": (1, ("<i4",)),
    "layers": (1, ("<i4",)),
    "ids": (3, ("|u1", "<i2")),
    "weights": (3, ("<f2",)),
}


@dataclass(frozen=True, eq=False)
class Routing:
    """Captured rows of one choice."""

    token: NDArray[np.int32]  # [R]
    ids: NDArray[np.int16]  # [R, L, K]
    weights: NDArray[np.float16] | None  # [R, L, K]
    layers: NDArray[np.int32]  # [L]

    def positions(self, tokens: int) -> NDArray[np.int32] | None:
        """Which of the T generated tokens have a row here; None where all of them do."""
        first, last = np.searchsorted(self.token, (0, tokens))
        return None if last - first == tokens else self.token[first:last]

    def generated(self, tokens: int, positions: NDArray[np.int32] | None = None) -> Rows:
        """Ids and weights [R, L, K] of the T generated tokens, or of those at `positions` (ascending).

        Raises EngineError where the capture lacks one of these rows.
        """
        wanted = np.arange(tokens, dtype=np.int32) if positions is None else positions
        rows = np.flatnonzero(np.isin(self.token, wanted, assume_unique=True))
        if len(rows) != len(wanted):
            raise EngineError(
                f"the capture has {len(rows)} of {len(wanted)} rows of this completion: fetch whole windows, or ask for "
                'rows "generated"'
            )
        return self.ids[rows], None if self.weights is None else self.weights[rows]

    def of_layers(self, layers: Sequence[int] | None, shape: RouterShape, captured: Sequence[int] | None) -> Routing:
        """The same rows with these layers alone (None: with all that are here).

        `captured` are the layers that the engine said it captures (None: all of the router). Raises EngineError where
        the rows are of others.
        """
        expected = list(range(shape.layers) if captured is None else captured)
        if self.layers.tolist() != expected or self.ids.shape[2] != shape.top_k:
            raise EngineError(
                f"the capture has layers {format_layers(self.layers.tolist())}, top-{self.ids.shape[2]}, not layers "
                f"{format_layers(captured)} of a router {shape}: was the server started anew with other settings?"
            )
        if layers is None:
            return self
        columns = np.searchsorted(self.layers, layers)
        weights = None if self.weights is None else self.weights[:, columns]
        return Routing(self.token, self.ids[:, columns], weights, self.layers[columns])

    def prompt(self) -> tuple[NDArray[np.int32], NDArray[np.int16], NDArray[np.float16] | None]:
        """The rows of the prompt's own positions, which are counted from its end: -1 is the one before R(0)."""
        stop = int(np.searchsorted(self.token, 0))
        return self.token[:stop], self.ids[:stop], None if self.weights is None else self.weights[:stop]


def encode(rows: Sequence[ChoiceRows], layers: Sequence[int]) -> bytes:
    """The payload of some choices, as bytes."""
    columns: dict[str, NDArray[Any]] = {
        "choice": np.array([r.choice for r in rows], np.int32),
        "row_ptr": np.cumsum([0, *(len(r.token) for r in rows)], dtype=np.int64),
        "token": np.concatenate([r.token for r in rows]),
        "layers": np.array(layers, np.int32),
        "ids": np.concatenate([r.ids for r in rows]),
    }
    weights = [r.weights for r in rows if r.weights is not None]
    if weights:
        columns["weights"] = np.concatenate(weights)
    header = json.dumps([[name, column.dtype.str, column.shape] for name, column in columns.items()]).encode()
    return b"".join([MAGIC, struct.pack("<I", len(header)), header, *(column.tobytes() for column in columns.values())])


def decode(payload: bytes) -> dict[int, Routing]:
    """Routing per choice, from the bytes that a worker or the server's route answered."""
    try:
        columns = _columns(payload)
        choice, row_ptr, token, layers = (columns[name] for name in ("choice", "row_ptr", "token", "layers"))
        ids, weights = columns["ids"].astype(np.int16, copy=False), columns.get("weights")
        fits = (
            len(row_ptr) == len(choice) + 1
            and row_ptr[0] == 0
            and row_ptr[-1] == len(token) == len(ids)
            and bool((np.diff(row_ptr) >= 0).all())
            and ids.shape[1] == len(layers)
            and (weights is None or weights.shape == ids.shape)
        )
    except (struct.error, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise EngineError(f"these {len(payload)} bytes are no routing payload: {str(error)[:120]}") from None
    if not fits:
        raise EngineError(f"these {len(payload)} bytes are no routing payload: its columns contradict each other")
    parts = [slice(int(start), int(stop)) for start, stop in pairwise(row_ptr)]
    if any((np.diff(token[part].astype(np.int64)) <= 0).any() for part in parts):
        raise EngineError(f"these {len(payload)} bytes are no routing payload: its tokens do not ascend")
    return {
        int(name): Routing(token[part], ids[part], None if weights is None else weights[part], layers)
        for name, part in zip(choice, parts, strict=True)
    }


def _columns(payload: bytes) -> dict[str, NDArray[Any]]:
    if payload[:4] != MAGIC:
        raise ValueError("it does not begin with RADR")
    (length,) = struct.unpack_from("<I", payload, 4)
    at, columns = 8 + length, {}
    for name, dtype, shape in json.loads(payload[8:at]):
        dimensions, dtypes = _COLUMNS.get(name, (0, ()))
        if len(shape) != dimensions or dtype not in dtypes or not all(type(x) is int and x >= 0 for x in shape):
            raise ValueError(f"column {name!r} of {dtype!r} and shape {shape} is unknown")
        size = int(np.prod(shape, dtype=object))
        columns[name] = np.frombuffer(payload, dtype, size, at).reshape(shape)
        at += size * np.dtype(dtype).itemsize
    if at != len(payload):
        raise ValueError(f"its columns end at byte {at}")
    return columns
