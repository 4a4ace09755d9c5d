"""The journal is the file in which a rollout is safe from the moment `add` returns until its shard is sealed.

The first record says where the rollouts come from (the shard's provenance) and holds no arrays; every other one is a
rollout. A record is `RJ02`, the length of the payload (u64), the CRC-32 of the payload (u32), and the payload; the
payload is a JSON header (its u32 length comes first) that lists the arrays, then their raw bytes. Appending is one
write; a record cut by a kill fails its CRC and is dropped on recovery, and everything before it is intact. The file is
locked while its writer lives, so a dead writer's journal is recognised by its free lock.

A payload is `parse`d before it is appended and when it is recovered, so that what was taken in is given back. A record that is
there whole and is not a rollout, because its bytes were damaged or nobody checked it, is told apart and the rest is read.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import PoolCorrupt
from radmoe.pool import documents, files, limits, schema

_HEAD = struct.Struct("<4sQI")
_MAGIC = b"RJ02"
_MOST_DIMENSIONS = 3
_LONGEST = 2**31

Record = tuple[dict[str, Any], dict[str, NDArray[Any]]]


class Entry(NamedTuple):
    """A record of a journal, from byte `start` to `stop`: what is in it, or the reason why that is not read."""

    number: int
    start: int
    stop: int
    record: Record | None
    reason: str = ""


class Journal:
    """An append-only, locked journal file of a live writer."""

    def __init__(self, path: Path, provenance: dict[str, Any]) -> None:
        self.path = path
        self._file = path.open("xb", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.size = 0
        self.append(encode({"provenance": provenance}, {}))

    def append(self, *payloads: bytes) -> None:
        """Write one record per payload. If that fails, the file is cut back to its length before the first."""
        size = self.size
        try:
            for payload in payloads:
                record = memoryview(frame(payload))
                written = 0
                while written < len(record):
                    written += self._file.write(record[written:])
                size += len(record)
        except OSError:
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size = size

    def close(self) -> None:
        self._file.close()


def encode(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bytes:
    """The payload of a record. Raises a TypeError or a ValueError for a field that JSON does not have."""
    header = json.dumps(meta | {"arrays": [[k, a.dtype.str, a.shape] for k, a in arrays.items()]}).encode()
    return b"".join(
        [struct.pack("<I", len(header)), header, *(np.ascontiguousarray(a).tobytes() for a in arrays.values())]
    )


def frame(payload: bytes) -> bytes:
    """A payload as it stands in a journal."""
    return _HEAD.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload


@contextmanager
def orphaned(path: Path) -> Iterator[bool]:
    """Whether no process writes this journal or seals it. If so, no other takes it up while the block runs."""
    try:
        f = files.open_file(path)
    except PoolCorrupt:
        if files.exists(path):
            raise
        yield False  # another process has sealed it by now
        return
    with f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = files.exists(path)
        except BlockingIOError:
            free = False
        yield free


def read(path: Path) -> tuple[dict[str, Any], Iterator[Entry]]:
    """The provenance of a journal, and the records behind it in order. Reading stops at the first torn record.

    A file that is no journal at all is refused with PoolCorrupt. A journal whose first record is damaged has no provenance.
    """
    entries = _entries(path)
    head = next(entries, None)
    if head is None or head.record is None:
        return {}, itertools.chain([head] if head else [], entries)
    provenance = head.record[0].get("provenance")
    if not isinstance(provenance, dict) or len(head.record[0]) > 1 or head.record[1]:
        reason = "it does not say where the rollouts come from"
        return {}, itertools.chain([head._replace(record=None, reason=reason)], entries)
    return provenance, entries


def _entries(path: Path) -> Iterator[Entry]:
    left = files.size_of(path)
    with files.open_file(path) as f:
        if (start := f.read(len(_MAGIC))).strip(b"\0") and not _MAGIC.startswith(start):
            raise PoolCorrupt(
                f"{path} begins with {start!r}, not with {_MAGIC!r}, so it was not written by this radmoe: restore the journal "
                f"from a copy, or remove {path.parent} to go on without its rollouts"
            )
        f.seek(0)
        for number in itertools.count():
            start_at = f.tell()
            if (payload := _payload(path, f, left)) is None:
                return
            left -= f.tell() - start_at
            record, reason = None, "its bytes are not the ones that were written"
            if payload:
                try:
                    record = parse(path, payload, first=number == 0)
                except (ValueError, RecursionError, PoolCorrupt) as e:
                    reason = (str(e) or type(e).__name__).splitlines()[0]
            yield Entry(number, start_at, f.tell(), record, "" if record else reason)


def parse(path: Path, payload: bytes, *, first: bool = False) -> Record:
    """The fields and arrays of a rollout in a payload. The first payload of a journal holds the provenance.

    Raises ValueError where it has not exactly the arrays that it lists, and where a field is none of a rollout.
    """
    size = int.from_bytes(payload[:4], "little")
    header, at = payload[4 : 4 + size], 4 + size
    if at > len(payload):
        raise ValueError(f"its header has {size} bytes, the record {len(payload)}")
    meta = _fields(path, header, first)
    entries = meta.pop("arrays")
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


def _fields(path: Path, header: bytes, first: bool) -> dict[str, Any]:
    """The JSON header of a payload, all of whose fields have their types."""
    limits.check_json(path, header)
    meta = json.loads(header)
    if not isinstance(meta, dict) or not isinstance(meta.get("arrays"), list):
        raise ValueError("its header does not list its arrays")
    schema.check_characters(meta)
    if not first:
        documents.check_record({name: value for name, value in meta.items() if name != "arrays"})
    return meta


def _described(entry: Any) -> tuple[schema.StoredColumn, list[int]]:
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
    """How many rollouts lie in a journal, by what their headers say. Arrays are not read, so damage in them is not found."""
    rollouts = at = 0
    size = files.size_of(path)
    with files.open_file(path) as f:
        for number in itertools.count():
            if len(head := f.read(_HEAD.size)) < _HEAD.size:
                break
            magic, length, _ = _HEAD.unpack(head)
            at += _HEAD.size + length
            if magic != _MAGIC or at > size:
                break
            with suppress(ValueError, RecursionError, PoolCorrupt):  # recovery sets such a record aside
                header_bytes = min(int.from_bytes(f.read(4), "little"), length)
                limits.check_claim(path, "a header", header_bytes)
                _fields(path, f.read(header_bytes), number == 0)
                rollouts += number > 0
            f.seek(at)
    return rollouts


def _payload(path: Path, f: BinaryIO, left: int) -> bytes | None:
    """The next payload; None where it is torn, which is how a journal ends that a kill has cut.

    One that has another checksum is damaged, and not torn, where another record follows it: it counts as empty.
    """
    head = f.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, size, crc = _HEAD.unpack(head)
    if magic != _MAGIC or size > left - _HEAD.size:
        return None
    limits.check_claim(path, f"a record of {size:,} bytes", size, files.on_disk(path))
    payload = f.read(size)
    if zlib.crc32(payload) == crc:
        return payload
    follows = f.read(len(_MAGIC))
    f.seek(-len(follows), os.SEEK_CUR)
    return b"" if follows == _MAGIC else None
