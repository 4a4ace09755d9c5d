"""Routing as servers encode it, and the rows R(t) in it."""

from __future__ import annotations

import base64
import binascii
import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.engines.checkpoint import Checkpoint
from radmoe.errors import EngineError
from radmoe.types import check_ids

Raw = NDArray[np.integer[Any]]  # [R, layers, K], one row per input position
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def unpack_npy(text: str) -> Raw:
    """The array that vLLM sends as base64 of an .npy file."""
    try:
        data = base64.b64decode(text, validate=True)
        file = io.BytesIO(data)
        read_header = _HEADERS[np.lib.format.read_magic(file)]
        shape, by_columns, dtype = read_header(file)
        if len(shape) != 3 or dtype.kind not in "iu" or by_columns:
            raise ValueError(f"an array of {dtype} and shape {shape}")
        size, rest = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
        if min(shape) < 0 or size != rest:
            raise ValueError(f"an array of {dtype} and shape {shape} in {rest} bytes")
        array: Raw = np.frombuffer(data, dtype, offset=file.tell()).reshape(shape)
    except Exception as error:  # a damaged header is parsed as Python: ValueError, SyntaxError, TokenError, MemoryError
        raise EngineError(
            f"{len(text)} characters of routing are no base64 .npy of [rows, layers, k]: {_line(error)}"
        ) from None
    return array


def unpack_int32(text: str, rows: int, local: Checkpoint) -> Raw:
    """The array that SGLang sends as base64 of int32 [rows, layers, K], without its shape.

    `rows` is the number of rows that it should have. Where the size does not fit that number and the model's layers, it
    is read with other layers or other rows, so that the doctor can say which.
    """
    try:
        flat = np.frombuffer(base64.b64decode(text, validate=True), "<i4")
    except (ValueError, binascii.Error) as error:
        raise EngineError(f"{len(text)} characters of routing are no base64 of int32: {_line(error)}") from None
    k = local.shape.top_k
    widths = [layers * k for layers in dict.fromkeys((local.layers, local.shape.layers))]
    for width in widths:
        if flat.size == rows * width:
            return flat.reshape(rows, -1, k)
    if flat.size and flat.size % (rows * k) == 0 and flat.size % (rows * widths[0]):
        return flat.reshape(rows, -1, k)
    if flat.size % widths[0] or not flat.size:
        raise EngineError(
            f"{flat.size} numbers of routing are no rows of {local.layers} layers and top-{k}: "
            "a cut payload, or a model other than the server's"
        )
    return flat.reshape(-1, local.layers, k)


def moe_layers(raw: Raw, local: Checkpoint) -> Raw:
    """The rows of the layers that have experts. Servers fill the other layers with zeros, or leave them out."""
    shape = local.shape
    if raw.shape[2] == shape.top_k and raw.shape[1] == shape.layers:
        return raw
    if raw.shape[2] == shape.top_k and raw.shape[1] == local.layers:
        return raw[:, local.sparse]
    raise EngineError(
        f"the server returns {raw.shape[1]} layers, top-{raw.shape[2]}; {local.path.name} has {local.layers} layers, "
        f"{shape.layers} of them with experts, top-{shape.top_k}: is this the directory of the served model?"
    )


def unrouted(ids: Raw) -> NDArray[np.bool_]:
    """Which (row, layer) pairs [R, L] cannot be routing, because a token never goes to one expert twice."""
    if ids.shape[2] == 1:
        return np.zeros(ids.shape[:2], bool)
    ordered = np.sort(ids, -1)
    twice: NDArray[np.bool_] = (ordered[..., 1:] == ordered[..., :-1]).any(-1)
    return twice


def generated(raw: Raw, first: int, prompt: int, tokens: int, local: Checkpoint, advice: str) -> NDArray[np.int16]:
    """R(t) [T, L, K] of T generated tokens, from rows that begin at input position `first`; P is `prompt`.

    Raises EngineError, with `advice` on the server's kernel, where rows are missing or hold no routing.
    """
    if len(raw) != prompt + tokens - 1 - first:
        raise EngineError(
            f"{len(raw)} rows of routing for a prompt of {prompt} and {tokens} tokens, from position {first} on: there "
            f"should be {prompt + tokens - 1 - first}; radmoe doctor tells which are missing"
        )
    ids = moe_layers(raw, local)[len(raw) - tokens :]
    if bad := int(unrouted(ids).sum()):
        raise EngineError(f"{bad} of {ids.shape[0] * ids.shape[1]} (row, layer) pairs have no routing: {advice}")
    check_ids(ids, local.shape.experts)
    return ids.astype(np.int16)


def _line(error: Exception) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
