"""One column on disk: a blosc2 contiguous frame, written once in 4 MiB chunks and read one block at a time.

A frame is [header][chunk 0][chunk 1]...[index and trailer]. Every part has a recorded CRC-32. The header
and trailer are checked before blosc2 parses them, so that a damaged or hostile file is refused first, and
the checksum of each chunk lets `verify` say which rollouts a flipped byte touches.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import PoolCorrupt
from radmoe.pool import files
from radmoe.pool.blocks import CHUNK_HEAD, Decompressor, Head, Piece, is_chunk, places_end, read_head
from radmoe.pool.limits import check_claim
from radmoe.pool.schema import (
    BLOCK_BYTES,
    CHUNK_BYTES,
    EXPERT_IDS,
    EXPERT_WEIGHTS,
    PROMPT_IDS,
    PROMPT_WEIGHTS,
    StoredColumn,
)

_MAX_UNIT = 16  # bytes that blosc2 shuffles as one element
_MAGIC = b"b2frame\0"
_FRAME_HEAD = 97
_NO_METADATA = bytes.fromhex("93cd0007de0000dc0000")  # how a header ends that brings no metadata for blosc2 to act upon
_TRAILER = bytes.fromhex("940193cd0006de0000dc0000ce00000023")  # the same at the start of the trailer, with its length
_TRAILER_BYTES = 35
_INDEX_RATIO = 1 << 12  # an index of offsets that rise does not compress so well; one of zeros is short anyway


def compression(column: StoredColumn, top_k: int, *, sorted_experts: bool) -> dict[str, Any]:
    """The blosc2 parameters of a column. A frame describes itself, so a reader needs none of them.

    The paper uses byte-delta and level 5 on both routing columns. Byte-delta pays only where experts are sorted by id:
    between unsorted ids a difference is noisier than the id. All other routing is shuffled by bit, weights by the bits of
    all slots of a token, which descend: the upper bits repeat, the others are noise that is stored as it is. Entropy
    coding of bytes would save 4% and take four times as long to read (docs/log.md).
    """
    import blosc2  # imported here because it would double the time that importing this room takes

    size, level, filters, meta = column.dtype.itemsize, 1, [blosc2.Filter.BITSHUFFLE], [0]
    split = blosc2.SplitMode.NEVER_SPLIT
    if column in (EXPERT_WEIGHTS, PROMPT_WEIGHTS):
        size *= max(n for n in range(1, top_k + 1) if top_k % n == 0 and size * n <= _MAX_UNIT)
    elif column not in (EXPERT_IDS, PROMPT_IDS) or (sorted_experts and column is EXPERT_IDS):
        level, filters, split = 3, [blosc2.Filter.SHUFFLE], blosc2.SplitMode.ALWAYS_SPLIT
        if column is EXPERT_IDS:
            filters, meta = [*filters, blosc2.Filter.BYTEDELTA], [0, size]
    return {
        "codec": blosc2.Codec.ZSTD,
        "clevel": level,
        "typesize": size,
        "filters": filters,
        "filters_meta": meta,
        "blocksize": BLOCK_BYTES // size * size,
        "splitmode": split,
        "nthreads": 1,
    }


class ColumnWriter:
    """Appends rows to a new column file. `finish` makes the file durable and returns its description."""

    def __init__(self, path: Path, column: StoredColumn, per_row: int, cparams: dict[str, Any]) -> None:
        import blosc2

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
    """Reads rows of a finished column, and of its file only the heads of chunks and the blocks they lie in (blocks.py)."""

    def __init__(self, path: Path, column: StoredColumn, meta: dict[str, Any]) -> None:
        self.path, self.column, self.meta = path, column, meta
        self.per_row, self.rows = int(meta["per_row"]), int(meta["rows"])
        self.row_bytes = self.per_row * column.dtype.itemsize
        self._places = np.cumsum([meta["frame_head"], *(size for size, _ in meta["chunks"])]).tolist()
        self._last: dict[int, Head] = {}  # of the chunk that was read last: whoever reads on needs it again

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
        cut = [self._pieces(start * self.row_bytes, stop * self.row_bytes) for start, stop in spans]
        pieces = [piece for own in cut for piece in own]
        heads, contents = self._heads(pieces)
        covers = [heads[piece.chunk].cover(piece) for piece in pieces]
        ends = np.cumsum([0, *(high - low for low, high in covers)]).tolist()
        raw = np.empty(ends[-1], np.uint8)  # whole blocks: the rows are parts of it, and nothing is copied
        self._decompress(pieces, heads, contents, raw)
        begins = [end + piece.start - low for piece, (low, _), end in zip(pieces, covers, ends, strict=False)]
        firsts = np.cumsum([0, *map(len, cut)]).tolist()
        return [
            self._rows(raw, begins[first] if start < stop else 0, stop - start)
            for (start, stop), first in zip(spans, firsts, strict=False)
        ]

    def _pieces(self, low: int, last: int) -> list[Piece]:
        """Bytes [low, last) of the column, by chunk."""
        size, pieces = self.meta["chunk_bytes"], []
        while low < last:
            chunk, first = divmod(low, size)
            stop = min(size, first + last - low)
            pieces.append(Piece(chunk, first, stop))
            low += stop - first
        return pieces

    def _rows(self, raw: NDArray[np.uint8], at: int, count: int) -> NDArray[Any]:
        """So many rows that begin at a place in decompressed bytes."""
        rows = raw[at : at + count * self.row_bytes]
        if at % self.column.dtype.itemsize:  # blocks of another program's may have any length
            rows = rows.copy()
        return rows.view(self.column.dtype).reshape(count, self.per_row)

    def _heads(self, pieces: Sequence[Piece]) -> tuple[dict[int, Head], dict[int, bytes]]:
        """The heads of the chunks of these pieces, and the chunks that were read whole for them."""
        wanted: Counter[int] = Counter()
        for piece in pieces:
            wanted[piece.chunk] += piece.stop - piece.start
        heads, contents = {chunk: head for chunk, head in self._last.items() if chunk in wanted}, {}
        asked = [chunk for chunk in wanted if chunk not in heads]
        spans = [self._first(chunk, wanted[chunk]) for chunk in asked]
        for chunk, content in zip(asked, self._bytes(spans), strict=True):
            heads[chunk] = self._head(chunk, content)
            if len(content) == heads[chunk].size:
                contents[chunk] = content
        if asked:
            self._last = {asked[-1]: heads[asked[-1]]}
        return heads, contents

    def _decompress(
        self, pieces: Sequence[Piece], heads: dict[int, Head], contents: dict[int, bytes], out: NDArray[np.uint8]
    ) -> None:
        """Decompress the blocks of these pieces, one after the other."""
        spans = [(0, 0) if piece.chunk in contents else heads[piece.chunk].span(piece) for piece in pieces]
        places = [self._places[piece.chunk] for piece in pieces]
        found = self._bytes([(at + low, at + high) for at, (low, high) in zip(places, spans, strict=True)])
        decompressor = Decompressor(out)
        try:
            for piece, (low, _), content in zip(pieces, spans, found, strict=True):
                decompressor.add(heads[piece.chunk], piece, contents.get(piece.chunk, content), low)
            decompressor.flush()
        except Exception as e:  # whatever blosc2 makes of a forged chunk
            raise PoolCorrupt(f"{self.path} cannot be decompressed ({e}): radmoe verify names the rollouts") from None

    def _bytes(self, spans: list[tuple[int, int]]) -> list[bytes]:
        """These bytes of the file; none where a span is empty."""
        asked = [span for span in spans if span[0] < span[1]]
        found = iter(files.read_spans(self.path, asked) if asked else ())
        return [next(found) if low < high else b"" for low, high in spans]

    def _first(self, chunk: int, wanted: int) -> tuple[int, int]:
        """What is read of a chunk first: its head, or all of it where most of it is wanted."""
        start, stop = self._places[chunk : chunk + 2]
        raw = self._raw(chunk)
        head = CHUNK_HEAD + 4 * -(-raw // BLOCK_BYTES)
        return start, stop if 2 * wanted >= raw else min(start + head, stop)

    def _raw(self, chunk: int) -> int:
        """The bytes that a chunk has without compression."""
        size: int = self.meta["chunk_bytes"]
        return min(size, self.rows * self.row_bytes - chunk * size)

    def _head(self, chunk: int, content: bytes) -> Head:
        """The head of a chunk, of which the first bytes are given."""
        start, stop = self._places[chunk : chunk + 2]
        size, raw = stop - start, self._raw(chunk)
        if not size:
            return Head(b"", 0, raw)
        if not is_chunk(content[:CHUNK_HEAD], size, raw):
            raise PoolCorrupt(f"{self.path} has a chunk {chunk} that is not as described: restore it from a copy")
        end = places_end(content, raw)
        if end > size:
            raise PoolCorrupt(f"{self.path} has a chunk {chunk} without its blocks: restore it from a copy")
        if len(content) < end:
            (content,) = files.read_spans(self.path, [(start, start + end)])
        if len(content) < end:
            raise PoolCorrupt(f"{self.path} ends before its chunk {chunk}: it was cut, restore it from a copy")
        return read_head(self.path, chunk, content, size, raw)


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
                sound = sound and is_chunk(f.read(CHUNK_HEAD), length, held)
                at += length
    if not sound:
        raise PoolCorrupt(f"{path} is not the blosc2 frame that is described: restore it from a copy")


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
        nbytes, _, cbytes = struct.unpack_from("<iii", index.ljust(CHUNK_HEAD), 4)
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
            if offset != at or length < CHUNK_HEAD or at + length > data:
                raise OSError(f"{path} has an index that does not fit its chunks")
            sizes.append(length)
            at += length
    return sizes


def _chunk_crcs(path: Path, head: int, sizes: list[int]) -> list[int]:
    """The CRC-32 of each chunk; the chunks follow each other behind the header."""
    with files.open_file(path) as f:
        f.seek(head)
        return [files.crc32(f, size) for size in sizes]
