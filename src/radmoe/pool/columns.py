"""One column on disk: a blosc2 contiguous frame, written once in 4 MiB chunks and read one block at a time.

A frame is [header][chunk 0][chunk 1]...[index and trailer]. Every part has a recorded CRC-32. The header
and trailer are checked before blosc2 parses them, so that a damaged or hostile file is refused first, and
the checksum of each chunk lets `verify` say which rollouts a flipped byte touches.
"""

from __future__ import annotations

import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import PoolCorrupt
from radmoe.pool import files
from radmoe.pool.schema import (
    BLOCK_BYTES,
    CHUNK_BYTES,
    EXPERT_IDS,
    EXPERT_WEIGHTS,
    PROMPT_WEIGHTS,
    Column,
)

_MAX_STREAMS = 16  # bytes of an element that blosc2 compresses as streams of their own
_MAGIC = b"b2frame\0"
_MIN_FRAME = 87


def compression(column: Column, top_k: int, *, sorted_experts: bool) -> dict[str, Any]:
    """The blosc2 parameters of a column. A frame describes itself, so a reader needs none of them.

    The paper uses byte-delta and level 5 on both routing columns. Byte-delta pays only where experts are
    sorted by id: between unsorted ids a difference is noisier than the id. Weights descend within a token,
    so they are shuffled by slot, which puts similar exponents side by side; blocks are twice as large for
    them, because each slot becomes a stream of its own. Higher levels write several times more slowly and
    save less than 1% (docs/log.md).
    """
    import blosc2  # imported here because it would double the time that importing this room takes

    size, block, level = column.dtype.itemsize, BLOCK_BYTES, 3
    if column in (EXPERT_WEIGHTS, PROMPT_WEIGHTS):
        slots = max(n for n in range(1, top_k + 1) if top_k % n == 0 and size * n <= _MAX_STREAMS)
        size, block, level = size * slots, 2 * BLOCK_BYTES, 1
    filters, meta = [blosc2.Filter.SHUFFLE], [0]
    if column is EXPERT_IDS and sorted_experts:
        filters, meta = [*filters, blosc2.Filter.BYTEDELTA], [0, size]
    return {
        "codec": blosc2.Codec.ZSTD,
        "clevel": level,
        "typesize": size,
        "filters": filters,
        "filters_meta": meta,
        "blocksize": block // size * size,
        "splitmode": blosc2.SplitMode.ALWAYS_SPLIT,
        "nthreads": 1,
    }


class ColumnWriter:
    """Appends rows to a new column file. `finish` makes the file durable and returns its description."""

    def __init__(self, path: Path, column: Column, per_row: int, cparams: dict[str, Any]) -> None:
        import blosc2

        path.unlink(missing_ok=True)
        self._path, self._column, self._per_row = path, column, per_row
        size = cparams["typesize"]
        self._chunk_bytes = CHUNK_BYTES // size * size
        self._frame = blosc2.SChunk(
            chunksize=self._chunk_bytes, contiguous=True, urlpath=str(path), mode="w", cparams=cparams
        )
        self._tail = bytearray()
        self._rows = 0

    def append(self, rows: NDArray[Any]) -> None:
        self._rows += len(rows)
        self._tail += np.ascontiguousarray(rows, self._column.dtype).data.cast("B") if rows.size else b""
        while len(self._tail) >= self._chunk_bytes:
            self._frame.append_data(bytes(self._tail[: self._chunk_bytes]))
            del self._tail[: self._chunk_bytes]

    def finish(self) -> dict[str, Any]:
        if self._tail:
            self._frame.append_data(bytes(self._tail))
            self._tail.clear()
        del self._frame
        files.sync(self._path)
        size = self._path.stat().st_size
        head, data = _layout(self._path, size)
        chunks = _chunk_sizes(self._path, head, data)
        return {
            "file": self._path.name,
            "dtype": self._column.dtype.name,
            "per_row": self._per_row,
            "rows": self._rows,
            "bytes": size,
            "crc32": files.crc32_file(self._path),
            "frame_head": head,
            "frame_data": data,
            "frame_crc32": _frame_crc(self._path, head, data, size),
            "chunk_bytes": self._chunk_bytes,
            "chunks": [[n, crc] for n, crc in chunks],
        }


class ColumnReader:
    """Reads rows [start, stop) of a finished column, decompressing only the blocks they lie in."""

    def __init__(self, path: Path, column: Column, meta: dict[str, Any]) -> None:
        self.path, self.column, self.meta = path, column, meta
        self.per_row, self.rows = int(meta["per_row"]), int(meta["rows"])
        self._row_bytes = self.per_row * column.dtype.itemsize
        self._frame: Any = None
        self._lock = threading.Lock()  # a blosc2 frame has one decompression context

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows [start, stop) as [stop - start, per_row]."""
        if not 0 <= start <= stop <= self.rows:
            raise PoolCorrupt(
                f"{self.path} holds {self.rows} rows, rows {start}..{stop} were asked for: run radmoe verify"
            )
        out = np.empty((stop - start, self.per_row), self.column.dtype)
        if out.size == 0:
            return out
        with self._lock:
            if self._frame is None:
                self._frame = self._open()
            unit = self._frame.typesize
            try:
                self._frame.get_slice(start * self._row_bytes // unit, stop * self._row_bytes // unit, out)
            except (RuntimeError, ValueError, OSError) as e:
                raise PoolCorrupt(
                    f"{self.path} cannot be decompressed ({e}): radmoe verify names the rollouts"
                ) from None
        return out

    def _open(self) -> Any:
        import blosc2

        check_frame(self.path, self.meta)
        try:
            frame = blosc2.open(str(self.path), mode="r", dparams={"nthreads": 1})
        except (RuntimeError, ValueError, OSError) as e:
            raise PoolCorrupt(f"{self.path} is not a blosc2 frame ({e}): restore it from a copy") from None
        if not isinstance(frame, blosc2.SChunk) or frame.nbytes != self.rows * self._row_bytes:
            raise PoolCorrupt(f"{self.path} does not hold {self.rows} rows of {self.per_row}: restore it from a copy")
        return frame


def check_entry(path: Path, column: Column, entry: dict[str, Any]) -> None:
    """Refuse the description of a column that contradicts the format or itself."""
    counts = [entry[name] for name in ("rows", "per_row", "bytes", "frame_head", "frame_data", "chunk_bytes")]
    chunks = [number for chunk in entry["chunks"] for number in chunk]
    sound = all(
        type(number) is int and number >= 0 for number in (*counts, *chunks, entry["crc32"], entry["frame_crc32"])
    )
    sound = sound and all(len(chunk) == 2 for chunk in entry["chunks"])
    if not sound or (entry["file"], entry["dtype"]) != (column.file, column.dtype.name):
        raise PoolCorrupt(f"{path} is not described as the format says: restore {path.parent} from a copy")
    raw = entry["rows"] * entry["per_row"] * column.dtype.itemsize
    parts = [
        sum(chunks[::2]) == entry["frame_data"],
        entry["frame_head"] + entry["frame_data"] <= entry["bytes"],
        entry["per_row"] > 0 and entry["chunk_bytes"] > 0,
        len(entry["chunks"]) == -(-raw // max(entry["chunk_bytes"], 1)),
    ]
    if not all(parts):
        raise PoolCorrupt(f"{path} is described with sizes that do not add up: restore {path.parent} from a copy")


def check_size(path: Path, expected: int) -> None:
    """Refuse a file that is missing or has another size than was recorded."""
    size = files.size_of(path)
    if size != expected:
        raise PoolCorrupt(f"{path} has {size} bytes, {expected} were written: it was cut or changed, restore it")


def check_frame(path: Path, meta: dict[str, Any]) -> None:
    """Refuse a frame whose header or trailer is not the one that was written."""
    check_size(path, meta["bytes"])
    if _frame_crc(path, meta["frame_head"], meta["frame_data"], meta["bytes"]) != meta["frame_crc32"]:
        raise PoolCorrupt(f"{path} has a damaged header or index: restore it from a copy")


def damaged_chunks(path: Path, meta: dict[str, Any]) -> list[int]:
    """The indices of the chunks whose bytes on disk are not those that were written."""
    bad = []
    with files.open_file(path) as f:
        f.seek(meta["frame_head"])
        for index, (size, crc) in enumerate(meta["chunks"]):
            if zlib.crc32(f.read(size)) != crc:
                bad.append(index)
    return bad


def chunk_rows(meta: dict[str, Any], index: int) -> tuple[int, int]:
    """The range [first, last) of rows that have bytes in a chunk."""
    row_bytes = meta["per_row"] * np.dtype(meta["dtype"]).itemsize
    first = index * meta["chunk_bytes"]
    return first // row_bytes, min(meta["rows"], -(-(first + meta["chunk_bytes"]) // row_bytes))


def _layout(path: Path, size: int) -> tuple[int, int]:
    """The lengths of a frame's header and of its chunks, read from the frame itself (C-Blosc2 frame format)."""
    with files.open_file(path) as f:
        head = f.read(_MIN_FRAME)
    if len(head) < _MIN_FRAME or head[2:10] != _MAGIC:
        raise OSError(f"{path} was not written as a blosc2 frame")
    header, frame, data = (
        *struct.unpack_from(">i", head, 11),
        *struct.unpack_from(">q", head, 16),
        *struct.unpack_from(">q", head, 39),
    )
    if frame != size or header + data > size:
        raise OSError(f"{path} was cut while it was written")
    return header, data


def _frame_crc(path: Path, head: int, data: int, size: int) -> int:
    with files.open_file(path) as f:
        crc = zlib.crc32(f.read(head))
        f.seek(head + data)
        return zlib.crc32(f.read(size - head - data), crc)


def _chunk_sizes(path: Path, head: int, data: int) -> list[tuple[int, int]]:
    """The size and CRC-32 of each chunk. The header of a chunk says how long it is."""
    sizes = []
    with files.open_file(path) as f:
        at = head
        while at < head + data:
            f.seek(at + 12)
            (length,) = struct.unpack("<i", f.read(4))
            f.seek(at)
            sizes.append((length, zlib.crc32(f.read(length))))
            at += length
    return sizes
