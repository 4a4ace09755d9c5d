"""One column on disk: a blosc2 contiguous frame, written once in 4 MiB chunks and read one block at a time.

A frame is [header][chunk 0][chunk 1]...[index and trailer]. Every part has a recorded CRC-32. The header
and trailer are checked before blosc2 parses them, so that a damaged or hostile file is refused first, and
the checksum of each chunk lets `verify` say which rollouts a flipped byte touches.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
_COPIED = 2  # a chunk's flag: its bytes are stored as they are
_SPECIAL = 7 << 4  # a chunk's flags: all its bytes are alike, and not stored
_BATCH = 12  # blocks that are decompressed together
_PIECES = 4096  # of chunks that are read together
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
    """Reads rows of a finished column, and of its file only the blocks they lie in.

    A chunk is a header, the places of its blocks, and the blocks, each compressed by itself. So the blocks that are wanted, from
    whatever chunks, are put together as one small chunk, and blosc2 decompresses that. What a chunk says of itself is checked
    first; the rest of the frame is not read.
    """

    def __init__(self, path: Path, column: StoredColumn, meta: dict[str, Any]) -> None:
        self.path, self.column, self.meta = path, column, meta
        self.per_row, self.rows = int(meta["per_row"]), int(meta["rows"])
        self.row_bytes = self.per_row * column.dtype.itemsize
        self._places = np.cumsum([meta["frame_head"], *(size for size, _ in meta["chunks"])]).tolist()

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows [start, stop) as [stop - start, per_row]."""
        return self.read_spans([(start, stop)])[0]

    def read_spans(self, spans: Sequence[tuple[int, int]]) -> list[NDArray[Any]]:
        """Rows [start, stop) for each span. A store is asked twice for all of them: for the places of blocks, and for the blocks."""
        for start, stop in spans:
            if not 0 <= start <= stop <= self.rows:
                raise PoolCorrupt(
                    f"{self.path} holds {self.rows} rows, rows {start}..{stop} were asked for: run radmoe verify"
                )
        total = sum(stop - start for start, stop in spans)
        held = self.meta["bytes"] if files.in_store(self.path) else files.on_disk(self.path)
        check_claim(self.path, f"{total:,} rows of {self.per_row}", total * self.row_bytes, held)
        out = np.empty((total, self.per_row), self.column.dtype)
        raw, at = out.view(np.uint8).reshape(-1), 0
        pieces: list[_Piece] = []
        for start, stop in spans:
            low, last = start * self.row_bytes, stop * self.row_bytes
            while low < last:
                chunk, first = divmod(low, self.meta["chunk_bytes"])
                size = min(self.meta["chunk_bytes"] - first, last - low)
                pieces.append(_Piece(chunk, first, first + size, raw[at : at + size]))
                low, at = low + size, at + size
            if len(pieces) >= _PIECES:
                self._fill(pieces)
                pieces = []
        self._fill(pieces)
        ends = np.cumsum([stop - start for start, stop in spans]).tolist()
        return [out[end - (stop - start) : end] for end, (start, stop) in zip(ends, spans, strict=True)]

    def _fill(self, pieces: list[_Piece]) -> None:
        """Decompress pieces of chunks into their places."""
        for piece in pieces:
            if not self._size(piece.chunk):
                piece.out[:] = 0
        pieces = [piece for piece in pieces if self._size(piece.chunk)]
        wanted: Counter[int] = Counter()
        for piece in pieces:
            wanted[piece.chunk] += piece.stop - piece.start
        heads = {}
        for chunk, content in zip(wanted, self._bytes([self._first(*each) for each in wanted.items()]), strict=True):
            heads[chunk] = self._head(chunk, content)
        spans = [heads[piece.chunk].span(piece) if heads[piece.chunk].content is None else (0, 0) for piece in pieces]
        places = [self._places[piece.chunk] for piece in pieces]
        contents = self._bytes([(at + low, at + high) for at, (low, high) in zip(places, spans, strict=True)])
        batch = _Batch()
        try:
            for piece, (low, _), content in zip(pieces, spans, contents, strict=True):
                head = heads[piece.chunk]
                batch.add(head, piece, content if head.content is None else head.content, low)
            batch.decompress()
        except Exception as e:  # whatever blosc2 makes of a forged chunk
            raise PoolCorrupt(f"{self.path} cannot be decompressed ({e}): radmoe verify names the rollouts") from None

    def _bytes(self, spans: list[tuple[int, int]]) -> list[bytes]:
        """These bytes of the file; none where a span is empty."""
        asked = [span for span in spans if span[0] < span[1]]
        found = iter(files.read_spans(self.path, asked) if asked else ())
        return [next(found) if low < high else b"" for low, high in spans]

    def _size(self, chunk: int) -> int:
        return int(self._places[chunk + 1] - self._places[chunk])

    def _raw(self, chunk: int) -> int:
        """The bytes that a chunk has without compression."""
        size: int = self.meta["chunk_bytes"]
        return min(size, self.rows * self.row_bytes - chunk * size)

    def _first(self, chunk: int, wanted: int) -> tuple[int, int]:
        """What is read of a chunk first: its head, or all of it where most of it is wanted."""
        size = self._size(chunk)
        head = _CHUNK_HEAD + 4 * -(-self._raw(chunk) // BLOCK_BYTES)
        return self._places[chunk], self._places[chunk] + (min(head, size) if 2 * wanted < self._raw(chunk) else size)

    def _head(self, chunk: int, content: bytes) -> _Head:
        """The head of a chunk, of which the first bytes are given."""
        size, raw, place = self._size(chunk), self._raw(chunk), self._places[chunk]
        if not _is_chunk(content[:_CHUNK_HEAD], size, raw):
            raise PoolCorrupt(f"{self.path} has a chunk {chunk} that is not as described: restore it from a copy")
        block = struct.unpack_from("<i", content, 8)[0]
        blocks = -(-raw // block)
        if content[2] & _COPIED or content[31] & _SPECIAL:
            blocks = 0
        elif _CHUNK_HEAD + 4 * blocks > size:
            raise PoolCorrupt(f"{self.path} has a chunk {chunk} without its blocks: restore it from a copy")
        missing = size if not blocks else _CHUNK_HEAD + 4 * blocks
        if len(content) < missing:
            (content,) = files.read_spans(self.path, [(place, place + missing)])
        if len(content) < missing:
            raise PoolCorrupt(f"{self.path} ends before its chunk {chunk}: it was cut, restore it from a copy")
        starts = np.frombuffer(content, "<i4", blocks, _CHUNK_HEAD).astype(np.int64)
        ordered = np.sort(np.append(starts, size))
        if blocks and (ordered[0] < _CHUNK_HEAD + 4 * blocks or ordered[-1] > size):
            raise PoolCorrupt(f"{self.path} has a chunk {chunk} with blocks outside it: restore it from a copy")
        stops = ordered[np.searchsorted(ordered, starts, "right")] if blocks else starts
        whole = content if len(content) == size else None
        return _Head(content[:_CHUNK_HEAD], raw, block, starts.tolist(), stops.tolist(), whole)


class _Piece(NamedTuple):
    """Bytes [start, stop) of a chunk without compression, and where they go."""

    chunk: int
    start: int
    stop: int
    out: NDArray[np.uint8]


class _Head(NamedTuple):
    """A chunk's header, and where each block of it begins and ends; none where it is not in blocks. `content` is all of the chunk."""

    header: bytes
    raw: int
    block: int
    starts: list[int]
    stops: list[int]
    content: bytes | None

    def span(self, piece: _Piece) -> tuple[int, int]:
        """The bytes of the chunk in which the blocks of a piece lie."""
        first, last = piece.start // self.block, -(-piece.stop // self.block)
        return min(self.starts[first:last]), max(self.stops[first:last])


class _Batch:
    """Blocks that are decompressed together: few enough to stay in the processor's cache."""

    def __init__(self) -> None:
        self._head: _Head | None = None
        self._blocks: list[bytes] = []
        self._copies: list[tuple[int, int, NDArray[np.uint8]]] = []  # start and stop in the batch, target
        self._raw = 0

    def add(self, head: _Head, piece: _Piece, content: bytes, offset: int) -> None:
        """Add the blocks of a piece, which are in these bytes of its chunk, and decompress what is full."""
        if not head.starts or (content is head.content and piece.stop - piece.start == head.raw):
            self._whole(head, piece, content)
            return
        block, first, last = head.block, piece.start // head.block, -(-piece.stop // head.block)
        numbers: Iterable[int] = range(first, last)
        inner = range(-(-piece.start // block), piece.stop // block)
        if len(inner) > _BATCH:  # a long stretch goes straight to its place
            self._straight(head, inner, piece, content, offset)
            numbers = (*range(first, inner.start), *range(inner.stop, last))
        for number in numbers:
            begin, end = number * block, min((number + 1) * block, head.raw)
            if len(self._blocks) >= _BATCH or (self._head and not _alike(self._head, head)):
                self.decompress()
            self._head = head
            if end - begin < block and not self._blocks:  # a short block is the last of several
                self._blocks.append(bytes(4 * head.header[3]))  # a block of zeros, as streams of no bytes
                self._raw = block
            self._blocks.append(content[head.starts[number] - offset : head.stops[number] - offset])
            start, stop, place = max(begin, piece.start), min(end, piece.stop), self._raw - begin
            self._copies.append((start + place, stop + place, piece.out[start - piece.start : stop - piece.start]))
            self._raw += end - begin
            if end - begin < block:
                self.decompress()

    @staticmethod
    def _straight(head: _Head, inner: range, piece: _Piece, content: bytes, offset: int) -> None:
        """Decompress neighbouring blocks, all of which a piece has whole, where they belong."""
        starts, raw = np.array(head.starts[inner.start : inner.stop]), len(inner) * head.block
        low, high = int(starts.min()), max(head.stops[inner.start : inner.stop])
        places = starts - low + _CHUNK_HEAD + 4 * len(inner)
        at = inner.start * head.block - piece.start
        blocks = memoryview(content)[low - offset : high - offset]
        _decompress(head, places, (blocks,), high - low, piece.out[at : at + raw])

    def decompress(self) -> None:
        if self._head is None:
            return
        ends = np.cumsum([_CHUNK_HEAD + 4 * len(self._blocks), *map(len, self._blocks)])
        out = np.empty(self._raw, np.uint8)
        _decompress(self._head, ends[:-1], self._blocks, int(ends[-1] - ends[0]), out)
        for start, stop, target in self._copies:
            target[:] = out[start:stop]
        self.__init__()  # type: ignore[misc]

    @staticmethod
    def _whole(head: _Head, piece: _Piece, content: bytes) -> None:
        import blosc2

        out = np.empty(head.raw, np.uint8)
        blosc2.decompress2(content, out, nthreads=1)
        piece.out[:] = out[piece.start : piece.stop]


def _alike(one: _Head, other: _Head) -> bool:
    """Whether blocks of two chunks may stand in one: codec, filters and sizes are the same."""
    return (one.block, one.header[:4], one.header[16:]) == (other.block, other.header[:4], other.header[16:])


def _decompress(
    head: _Head, places: NDArray[np.int64], blocks: Sequence[bytes | memoryview], size: int, out: NDArray[np.uint8]
) -> None:
    """Decompress blocks of a chunk, which begin at these places of a chunk of their own."""
    import blosc2

    header = bytearray(head.header)
    struct.pack_into("<iii", header, 4, len(out), head.block, _CHUNK_HEAD + 4 * len(places) + size)
    blosc2.decompress2(b"".join((header, places.astype("<i4").tobytes(), *blocks)), out, nthreads=1)


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
    if raw := meta["rows"] * meta["per_row"] * np.dtype(meta["dtype"]).itemsize:
        _check_claims(path, meta, raw)
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
            offsets = np.frombuffer(blosc2.decompress2(index, nthreads=1), "<i8") if nbytes else np.empty(0, "<i8")
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
