"""The journal is the file in which a rollout is safe from the moment `add` returns until its shard is sealed.

The first record says where the rollouts come from (the shard's provenance) and holds no arrays; every other one is a
rollout. A record is `RJ02`, the length of the payload (u64), the CRC-32 of the payload (u32), and the payload; the
payload is a JSON header (its u32 length comes first) that lists the arrays, then their raw bytes. Appending is one
write; a record cut by a kill fails its CRC and is dropped on recovery, and everything before it is intact. The file is
locked while its writer lives, so a dead writer's journal is recognised by its free lock.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import PoolCorrupt
from radmoe.pool import documents, files, limits, schema

_HEAD = struct.Struct("<4sQI")
_MAGIC = b"RJ02"
_MOST_DIMENSIONS = 3
_LONGEST = 2**31

Record = tuple[dict[str, Any], dict[str, NDArray[Any]]]


class Journal:
    """An append-only, locked journal file of a live writer."""

    def __init__(self, path: Path, provenance: dict[str, Any]) -> None:
        self.path = path
        self._file = path.open("xb", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.size = 0
        self.append({"provenance": provenance}, {})

    def append(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Write one record. If that fails, the file is cut back to the last whole record."""
        header = json.dumps(meta | {"arrays": [[k, a.dtype.str, a.shape] for k, a in arrays.items()]}).encode()
        payload = b"".join(
            [struct.pack("<I", len(header)), header, *(np.ascontiguousarray(a).tobytes() for a in arrays.values())]
        )
        record = memoryview(_HEAD.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload)
        try:
            written = 0
            while written < len(record):
                written += self._file.write(record[written:])
        except OSError:
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size += len(record)

    def close(self) -> None:
        self._file.close()


def is_live(path: Path) -> bool:
    """Whether some process still writes this journal."""
    with files.open_file(path) as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def read(path: Path) -> tuple[dict[str, Any], Iterator[Record]]:
    """The provenance of a journal, and every whole rollout in order. Reading stops at the first torn record.

    A record that is whole and is not a rollout is refused with PoolCorrupt: no writer made it, so nothing behind it can be
    relied upon.
    """
    records = _records(path)
    head = next(records, None)
    if head is None:
        return {}, records
    provenance = head[0].get("provenance")
    if not isinstance(provenance, dict) or len(head[0]) > 1 or head[1]:
        raise senseless(path, 0, "it does not say where the rollouts come from")
    return provenance, _rollouts(path, records)


def senseless(path: Path, number: int, reason: object) -> PoolCorrupt:
    """The refusal of a whole record. Nothing is lost by it: the journal stays as it is."""
    return PoolCorrupt(
        f"{path}, record {number}: {reason}; it was not written by radmoe: restore the journal from a copy, or remove "
        f"{path.parent} to go on without its rollouts"
    )


def _rollouts(path: Path, records: Iterator[Record]) -> Iterator[Record]:
    for number, (meta, arrays) in enumerate(records, 1):
        try:
            documents.check_record(meta)
        except ValueError as e:
            raise senseless(path, number, e) from None
        yield meta, arrays


def _records(path: Path) -> Iterator[Record]:
    left = files.size_of(path)
    with files.open_file(path) as f:
        if (start := f.read(len(_MAGIC))).strip(b"\0") and not _MAGIC.startswith(start):
            raise senseless(path, 0, f"it begins with {start!r}, not with {_MAGIC!r}")
        f.seek(0)
        for number in itertools.count():
            if (payload := _payload(path, f, left)) is None:
                return
            left -= _HEAD.size + len(payload)
            try:
                record = _parse(path, payload)
            except (ValueError, RecursionError) as e:
                raise senseless(path, number, e) from None
            yield record


def _parse(path: Path, payload: bytes) -> Record:
    """The header and the arrays of a payload. Raises ValueError where it has not exactly the arrays that it lists."""
    size = int.from_bytes(payload[:4], "little")
    header, at = payload[4 : 4 + size], 4 + size
    if at > len(payload):
        raise ValueError(f"its header has {size} bytes, the record {len(payload)}")
    limits.check_json(path, header)
    meta = json.loads(header)
    if not isinstance(meta, dict) or not isinstance(entries := meta.pop("arrays", None), list):
        raise ValueError("its header does not list its arrays")
    json.dumps(meta, ensure_ascii=False).encode()  # which refuses half a character
    arrays: dict[str, NDArray[Any]] = {}
    for entry in entries:
        column, shape = _described(entry)
        if column.name in arrays:
            raise ValueError(f"it has {column.name} twice")
        items = math.prod(shape)
        if at + items * column.dtype.itemsize > len(payload):
            raise ValueError(f"it is too short for {column.name} of shape {shape}")
        arrays[column.name] = np.frombuffer(payload, column.dtype, items, at).reshape(shape)
        at += items * column.dtype.itemsize
    if at != len(payload):
        raise ValueError(f"it has {len(payload) - at} bytes more than its arrays")
    return meta, arrays


def _described(entry: Any) -> tuple[schema.Column, list[int]]:
    """The column and shape that a header gives for an array."""
    name, dtype, shape = entry if isinstance(entry, list) and len(entry) == 3 else (None, None, None)
    column = next((column for column in schema.COLUMNS if column.name == name and column.dtype.str == dtype), None)
    if column is None:
        raise ValueError(f"it lists an array {entry!r:.80}, which no rollout has")
    if not isinstance(shape, list) or not 1 <= len(shape) <= _MOST_DIMENSIONS:
        raise ValueError(f"it gives {name} the shape {shape!r:.80}")
    if not all(type(length) is int and 0 <= length < _LONGEST for length in shape):
        raise ValueError(f"it gives {name} the shape {shape!r:.80}")
    return column, shape


def count(path: Path) -> int:
    """How many rollouts lie in a journal, from the headers of their records alone."""
    whole = at = 0
    size = files.size_of(path)
    with files.open_file(path) as f:
        while len(head := f.read(_HEAD.size)) == _HEAD.size:
            magic, length, _ = _HEAD.unpack(head)
            at += _HEAD.size + length
            if magic != _MAGIC or at > size:
                break
            f.seek(at)
            whole += 1
    return max(whole - 1, 0)  # the first record is the provenance


def _payload(path: Path, f: BinaryIO, left: int) -> bytes | None:
    head = f.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, size, crc = _HEAD.unpack(head)
    if magic != _MAGIC or size > left - _HEAD.size:
        return None
    limits.check_claim(path, f"a record of {size:,} bytes", size, files.on_disk(path))
    payload = f.read(size)
    return payload if zlib.crc32(payload) == crc else None
