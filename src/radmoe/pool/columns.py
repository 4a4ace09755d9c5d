"""One column on disk: a blosc2 contiguous frame, written once in 4 MiB chunks and read one block at a time.

A frame is [header][chunk 0][chunk 1]...[index and trailer]. Every part has a recorded CRC-32. The header
and trailer are checked before blosc2 parses them, so that a damaged or hostile file is refused first, and
the checksum of each chunk lets `verify` say which rollouts a flipped byte touches.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import PoolCorrupt
from radmoe.pool import files
from radmoe.pool.limits import check_claim
from radmoe.pool.schema import (
    BLOCK_BYTES,
    CHUNK_BYTES,
    EXPERT_IDS,
    EXPERT_WEIGHTS,
    PROMPT_WEIGHTS,
    StoredColumn,
)

_MAX_STREAMS = 16  # bytes of an element that blosc2 compresses as streams of their own
_MAGIC = b"b2frame\0"
_FRAME_HEAD = 97
_NO_METADATA = bytes.fromhex("93cd0007de0000dc0000")  # how a header ends that brings no metadata for blosc2 to act upon
_TRAILER = bytes.fromhex("940193cd0006de0000dc0000ce00000023")  # the same at the start of the trailer, with its length
_TRAILER_BYTES = 35
_INDEX_RATIO = 1 << 12  # an index of offsets that rise does not compress so well; one of zeros is short anyway
_CHUNK_HEAD = 32
_CODECS = (0, 1, 3, 4)  # BloscLZ, LZ4, zlib and Zstandard, in the upper three bits of a chunk's flags; not plug-ins
_FILTERS = (0, 1, 2, 35)  # none, shuffle, bit shuffle, byte-delta


def compression(column: StoredColumn, top_k: int, *, sorted_experts: bool) -> dict[str, Any]:
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

    def __init__(self, path: Path, column: StoredColumn, per_row: int, cparams: dict[str, Any]) -> None:
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
        sizes = _chunk_sizes(self._path, head, data, size)
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
            "chunks": [[n, crc] for n, crc in zip(sizes, _chunk_crcs(self._path, head, sizes), strict=True)],
        }


class ColumnReader:
    """Reads rows [start, stop) of a finished column, decompressing only the blocks they lie in."""

    def __init__(self, path: Path, column: StoredColumn, meta: dict[str, Any]) -> None:
        self.path, self.column, self.meta = path, column, meta
        self.per_row, self.rows = int(meta["per_row"]), int(meta["rows"])
        self.row_bytes = self.per_row * column.dtype.itemsize
        self._frame: Any = None
        self._lock = threading.Lock()  # a blosc2 frame has one decompression context

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows [start, stop) as [stop - start, per_row]."""
        if not 0 <= start <= stop <= self.rows:
            raise PoolCorrupt(
                f"{self.path} holds {self.rows} rows, rows {start}..{stop} were asked for: run radmoe verify"
            )
        check_claim(
            self.path,
            f"{stop - start:,} rows of {self.per_row}",
            (stop - start) * self.row_bytes,
            files.on_disk(self.path),
        )
        out = np.empty((stop - start, self.per_row), self.column.dtype)
        if out.size == 0:
            return out
        with self._lock:
            if self._frame is None:
                self._frame = self._open()
            unit = self._frame.typesize
            try:
                self._slice(
                    start * self.row_bytes // unit, stop * self.row_bytes // unit, out.view(np.uint8).reshape(-1)
                )
            except Exception as e:  # whatever blosc2 makes of a forged chunk
                raise PoolCorrupt(
                    f"{self.path} cannot be decompressed ({e}): radmoe verify names the rollouts"
                ) from None
        return out

    def _slice(self, first: int, last: int, out: NDArray[np.uint8]) -> None:
        """Items [first, last) of the frame.

        C-Blosc2 3.3.5 answers a slice that is as long as one of the blocks it touches with that block, wherever the slice
        begins, and reports no error. So a slice of such a length is read in two parts, the first of one item.
        """
        frame = self._frame
        block, chunk, items = (size // frame.typesize for size in (frame.blocksize, frame.chunksize, frame.nbytes))
        if last - first > 1 and last - first in (block, chunk % block, items % chunk % block):
            frame.get_slice(first, first + 1, out[: frame.typesize])
            self._slice(first + 1, last, out[frame.typesize :])
        else:
            frame.get_slice(first, last, out)

    def _open(self) -> Any:
        import blosc2

        check_frame(self.path, self.meta)
        _check_claims(self.path, self.meta, self.rows * self.row_bytes)
        try:
            frame = blosc2.open(str(self.path), mode="r", dparams={"nthreads": 1})
        except Exception as e:  # whatever blosc2 makes of a forged header: its meta bytes alone raise an OverflowError
            raise PoolCorrupt(f"{self.path} is not a blosc2 frame ({e}): restore it from a copy") from None
        if (
            not isinstance(frame, blosc2.SChunk)
            or self.row_bytes % frame.typesize
            or frame.nbytes != self.rows * self.row_bytes
        ):
            raise PoolCorrupt(f"{self.path} does not hold {self.rows} rows of {self.per_row}: restore it from a copy")
        return frame


def check_entry(path: Path, column: StoredColumn, entry: dict[str, Any]) -> None:
    """Refuse the description of a column that contradicts the format or itself."""
    if (entry["file"], entry["dtype"]) != (column.file, column.dtype.name):
        raise PoolCorrupt(f"{path} is not described as the format says: restore {path.parent} from a copy")
    raw = entry["rows"] * entry["per_row"] * column.dtype.itemsize
    parts = [
        sum(size for size, _ in entry["chunks"]) == entry["frame_data"],
        entry["frame_head"] + entry["frame_data"] <= entry["bytes"],
        entry["per_row"] > 0 and 0 < entry["chunk_bytes"] <= CHUNK_BYTES,
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
    crcs = _chunk_crcs(path, meta["frame_head"], [size for size, _ in meta["chunks"]])
    return [index for index, crc in enumerate(crcs) if crc != meta["chunks"][index][1]]


def chunk_rows(meta: dict[str, Any], index: int) -> tuple[int, int]:
    """The range [first, last) of rows that have bytes in a chunk."""
    row_bytes = meta["per_row"] * np.dtype(meta["dtype"]).itemsize
    first = index * meta["chunk_bytes"]
    return first // row_bytes, min(meta["rows"], -(-(first + meta["chunk_bytes"]) // row_bytes))


def _check_claims(path: Path, meta: dict[str, Any], raw: int) -> None:
    """Refuse a frame or a chunk that says of itself something else than its description, before blosc2 believes it.

    `raw` is the number of bytes that the column has without compression.
    """
    size, head, data, chunk_bytes = (meta[name] for name in ("bytes", "frame_head", "frame_data", "chunk_bytes"))
    try:
        layout = _layout(path, size)
        sizes = _chunk_sizes(path, head, data, size)
    except OSError as e:
        raise PoolCorrupt(f"{e}: restore it from a copy") from None
    with files.open_file(path) as f:
        header = f.read(_FRAME_HEAD)
        sound = layout == (head, data) and sizes == [length for length, _ in meta["chunks"]]
        sound = sound and struct.unpack_from(">q", header, 30)[0] == raw
        sound = sound and struct.unpack_from(">i", header, 58)[0] == chunk_bytes
        at = head
        for index, (length, _) in enumerate(meta["chunks"] if sound else ()):
            if length:  # a chunk of nothing but zeros has no bytes
                f.seek(at)
                held = min(chunk_bytes, raw - index * chunk_bytes)
                sound = sound and _is_chunk(f.read(_CHUNK_HEAD), length, held)
                at += length
    if not sound:
        raise PoolCorrupt(f"{path} is not the blosc2 frame that is described: restore it from a copy")


def _is_chunk(header: bytes, length: int, raw: int) -> bool:
    """Whether a chunk's header gives these sizes, and codecs and filters that are part of blosc2 itself."""
    if len(header) < _CHUNK_HEAD:
        return False
    nbytes, block, cbytes = struct.unpack_from("<iii", header, 4)
    known = header[2] >> 5 in _CODECS and all(code in _FILTERS for code in header[16:22])
    return known and (nbytes, cbytes) == (raw, length) and 0 < block <= max(raw, 2 * BLOCK_BYTES)


def _layout(path: Path, size: int) -> tuple[int, int]:
    """The lengths of a frame's header and of its chunks, read from the frame itself (C-Blosc2 frame format).

    Raises OSError where it is cut, or brings metadata.
    """
    with files.open_file(path) as f:
        head = f.read(_FRAME_HEAD)
        f.seek(max(size - _TRAILER_BYTES, 0))
        trailer = f.read(_TRAILER_BYTES)
    if len(head) < _FRAME_HEAD or head[2:10] != _MAGIC:
        raise OSError(f"{path} was not written as a blosc2 frame")
    header, frame, data = (
        *struct.unpack_from(">i", head, 11),
        *struct.unpack_from(">q", head, 16),
        *struct.unpack_from(">q", head, 39),
    )
    if frame != size or header + data > size or data < 0:
        raise OSError(f"{path} was cut while it was written")
    if header != _FRAME_HEAD or not head.endswith(_NO_METADATA) or not trailer.startswith(_TRAILER):
        raise OSError(f"{path} is a blosc2 frame with metadata, which a column does not have")
    return header, data


def _frame_crc(path: Path, head: int, data: int, size: int) -> int:
    with files.open_file(path) as f:
        crc = files.crc32(f, head)
        f.seek(head + data)
        return files.crc32(f, size - head - data, crc)


def _chunk_sizes(path: Path, head: int, data: int, size: int) -> list[int]:
    """The size of each chunk, in the order of the index behind the chunks.

    A chunk of nothing but zeros takes no bytes: it is a negative entry in the index, and has the size 0. Raises OSError
    where the index does not name the chunks one after the other.
    """
    import blosc2

    sizes: list[int] = []
    with files.open_file(path) as f:
        f.seek(head + data)
        index = f.read(size - head - data - _TRAILER_BYTES)
        if not index:
            return []
        nbytes, _, cbytes = struct.unpack_from("<iii", index.ljust(_CHUNK_HEAD), 4)
        if cbytes != len(index) or not 0 <= nbytes <= _INDEX_RATIO * len(index) or nbytes % 8:
            raise OSError(f"{path} has an index of another size than it says")
        try:
            offsets = np.frombuffer(blosc2.decompress2(index), "<i8") if nbytes else np.empty(0, "<i8")
        except (RuntimeError, ValueError) as e:
            raise OSError(f"{path} has an index that cannot be decompressed ({e})") from None
        at = 0
        for offset in offsets.tolist():
            if offset < 0:
                sizes.append(0)
                continue
            f.seek(head + at + 12)
            (length,) = struct.unpack("<i", f.read(4).ljust(4, b"\0"))
            if offset != at or length < _CHUNK_HEAD or at + length > data:
                raise OSError(f"{path} has an index that does not fit its chunks")
            sizes.append(length)
            at += length
    return sizes


def _chunk_crcs(path: Path, head: int, sizes: list[int]) -> list[int]:
    """The CRC-32 of each chunk; the chunks follow each other behind the header."""
    with files.open_file(path) as f:
        f.seek(head)
        return [files.crc32(f, size) for size in sizes]
