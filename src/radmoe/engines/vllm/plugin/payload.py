"""What leaves a worker: the rows of one request's choices, as bytes.

The letters RADR, the header's length (uint32, little-endian), a JSON header that lists columns as
[name, dtype, shape], and the columns' bytes one after another, little-endian, in C order:

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.kept_rows import filler, listed
from radmoe.engines.vllm.plugin.store import Rows
from radmoe.errors import EngineError
from radmoe.types import RouterShape

MAGIC = b"RADR"
_COLUMNS = {"choice": 1, "row_ptr": 1, "token": 1, "layers": 1, "ids": 3, "weights": 3}  # and their dimensions
_DTYPES = ("<i4", "<i8", "|u1", "<i2", "<f2")


@dataclass(frozen=True, eq=False)
class Routing:
    """Captured rows of one choice."""

    token: NDArray[np.int32]  # [R]
    ids: NDArray[np.int16]  # [R, L, K]
    weights: NDArray[np.float16] | None  # [R, L, K]
    layers: NDArray[np.int32]  # [L]

    def generated(self, tokens: int) -> tuple[NDArray[np.int16], NDArray[np.float16] | None]:
        """Rows R(0) .. R(T-1); refuses a capture that lacks one of them."""
        first, last = np.searchsorted(self.token, (0, tokens))
        if last - first != tokens:
            raise EngineError(
                f"the capture has {last - first} of {tokens} rows of this completion: fetch whole windows, or ask for "
                'window "generated"'
            )
        return self.ids[first:last], None if self.weights is None else self.weights[first:last]

    def spread(self, rows: NDArray[np.int64], tokens: int, shape: RouterShape, layers: Sequence[int] | None) -> Routing:
        """R(0) .. R(T-1) of the whole router: these rows of these layers as they are, the rest filler.

        `layers` are those that should have been captured (None: all). Refuses a capture of others, or without one
        of the rows.
        """
        every = np.arange(shape.layers, dtype=np.int32)
        if self.layers.tolist() != list(every if layers is None else layers) or self.ids.shape[2] != shape.top_k:
            raise EngineError(
                f"the capture has layers {listed(self.layers.tolist())}, top-{self.ids.shape[2]}, not layers "
                f"{listed(layers)} of a router {shape}: was the server started anew with other settings?"
            )
        at = np.intersect1d(rows, self.token, return_indices=True)[2]
        if len(at) != len(rows):
            raise EngineError(f"the capture has {len(at)} of the {len(rows)} rows asked for of this completion")
        ids, weights = filler(tokens, shape)
        place = np.ix_(rows, self.layers)
        ids[place] = self.ids[at]
        if self.weights is not None:
            weights[place] = self.weights[at]
        return Routing(np.arange(tokens, dtype=np.int32), ids, None if self.weights is None else weights, every)

    def prompt(self) -> tuple[NDArray[np.int32], NDArray[np.int16], NDArray[np.float16] | None]:
        """Positions counted from the prompt's end (-1 is the one before R(0)), and their rows."""
        stop = int(np.searchsorted(self.token, 0))
        return self.token[:stop], self.ids[:stop], None if self.weights is None else self.weights[:stop]


def encode(rows: Sequence[Rows], layers: Sequence[int]) -> bytes:
    """The payload of some choices."""
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
    """Routing per choice, from what a worker or the server's route answered."""
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
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise EngineError(f"these {len(payload)} bytes are no routing payload: {error}") from None
    if not fits:
        raise EngineError(f"these {len(payload)} bytes are no routing payload: its columns contradict each other")
    found = {}
    for i, name in enumerate(choice):
        part = slice(int(row_ptr[i]), int(row_ptr[i + 1]))
        found[int(name)] = Routing(token[part], ids[part], None if weights is None else weights[part], layers)
    return found


def _columns(payload: bytes) -> dict[str, NDArray[Any]]:
    if payload[:4] != MAGIC:
        raise ValueError("it does not begin with RADR")
    (length,) = struct.unpack_from("<I", payload, 4)
    at, columns = 8 + length, {}
    for name, dtype, shape in json.loads(payload[8:at]):
        if (
            _COLUMNS.get(name) != len(shape)
            or dtype not in _DTYPES
            or not all(type(x) is int and x >= 0 for x in shape)
        ):
            raise ValueError(f"column {name!r} of {dtype!r} and shape {shape} is unknown")
        size = int(np.prod(shape, dtype=object))
        columns[name] = np.frombuffer(payload, dtype, size, at).reshape(shape)
        at += size * np.dtype(dtype).itemsize
    if at != len(payload):
        raise ValueError(f"its columns end at byte {at}")
    return columns
