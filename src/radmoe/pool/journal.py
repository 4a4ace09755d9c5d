"""The journal is the file in which a rollout is safe from the moment `add` returns until its shard is sealed.

The first record says where the rollouts come from (the shard's provenance) and holds no arrays; every other one is a
rollout. A record is `RJ02`, the length of the payload (u64), the CRC-32 of the payload (u32), and the payload; the
payload is a JSON header (its u32 length comes first) that lists the arrays, then their raw bytes. Appending is one
write; a record cut by a kill fails its CRC and is dropped on recovery, and everything before it is intact. The file is
locked while its writer lives, so a dead writer's journal is recognised by its free lock.
"""

from __future__ import annotations

import fcntl
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from radmoe.pool import files

_HEAD = struct.Struct("<4sQI")
_MAGIC = b"RJ02"

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
    """The provenance of a journal, and every whole rollout in order. Reading stops at the first torn record."""
    records = _records(path)
    head = next(records, None)
    return ({} if head is None else head[0]["provenance"]), records


def _records(path: Path) -> Iterator[Record]:
    left = files.size_of(path)
    with files.open_file(path) as f:
        while (payload := _payload(f, left)) is not None:
            left -= _HEAD.size + len(payload)
            (size,) = struct.unpack_from("<I", payload)
            meta = json.loads(payload[4 : 4 + size])
            arrays, at = {}, 4 + size
            for name, dtype, shape in meta.pop("arrays"):
                count = int(np.prod(shape, dtype=np.int64))
                arrays[name] = np.frombuffer(payload, dtype, count, at).reshape(shape)
                at += arrays[name].nbytes
            yield meta, arrays


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


def _payload(f: BinaryIO, left: int) -> bytes | None:
    head = f.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, size, crc = _HEAD.unpack(head)
    if magic != _MAGIC or size > left - _HEAD.size:
        return None
    payload = f.read(size)
    return payload if zlib.crc32(payload) == crc else None
