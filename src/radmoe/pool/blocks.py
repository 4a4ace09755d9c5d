"""The blocks of a column's chunks: where they lie, and how some of them are decompressed without the others.

A chunk is a header, the places of its blocks, and the blocks, each compressed by itself. So the blocks that are wanted, from
whatever chunks, are put together as one small chunk, and blosc2 decompresses that. What a chunk says of itself is checked first.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import PoolCorrupt
from radmoe.pool.schema import BLOCK_BYTES

CHUNK_HEAD = 32
_TOGETHER = (
    24  # blocks that are decompressed at once: a call costs as much as one of them, and more do not stay in the cache
)
_COPIED = 2  # a chunk's flag: its bytes are stored as they are
_SPECIAL = 7 << 4  # a chunk's flags: all its bytes are alike, and not stored
_CODECS = (0, 1, 3, 4)  # BloscLZ, LZ4, zlib and Zstandard, in the upper three bits of a chunk's flags; not plug-ins
_FILTERS = (0, 1, 2, 35)  # none, shuffle, bit shuffle, byte-delta


Ints = NDArray[np.int32]
_NONE: Ints = np.empty(0, np.int32)


class Piece(NamedTuple):
    """Bytes [start, stop) of a chunk without compression."""

    chunk: int
    start: int
    stop: int


class Head(NamedTuple):
    """A chunk's header, and where each block of it begins and ends; none where it is not in blocks.

    `size` is what the chunk takes in the file, and `raw` what it has without compression.
    """

    header: bytes
    size: int
    raw: int
    block: int = 0
    starts: Ints = _NONE
    stops: Ints = _NONE

    def blocks(self, piece: Piece) -> tuple[int, int]:
        """The first block of a piece, and the first behind it."""
        return piece.start // self.block, -(-piece.stop // self.block)

    def cover(self, piece: Piece) -> tuple[int, int]:
        """The bytes without compression of the blocks of a piece, or of the piece where there are no blocks."""
        if not self.starts.size:
            return piece.start, piece.stop
        first, last = self.blocks(piece)
        return first * self.block, min(last * self.block, self.raw)

    def span(self, piece: Piece) -> tuple[int, int]:
        """The bytes of the chunk that are needed for a piece."""
        if not self.starts.size:
            return 0, self.size
        first, last = self.blocks(piece)
        return min(self.starts[first:last].tolist()), max(self.stops[first:last].tolist())


def is_chunk(header: bytes, length: int, raw: int) -> bool:
    """Whether a chunk's header gives these sizes, and codecs and filters that are part of blosc2 itself."""
    if len(header) < CHUNK_HEAD:
        return False
    nbytes, block, cbytes = struct.unpack_from("<iii", header, 4)
    known = header[2] >> 5 in _CODECS and all(code in _FILTERS for code in header[16:22])
    return known and (nbytes, cbytes) == (raw, length) and 0 < block <= max(raw, 2 * BLOCK_BYTES)


def places_end(header: bytes, raw: int) -> int:
    """Where the places of a chunk's blocks end; 0 where it has none, because it is stored as it is or all its bytes are alike."""
    block: int = struct.unpack_from("<i", header, 8)[0]
    plain = header[2] & _COPIED or header[31] & _SPECIAL
    return 0 if plain else CHUNK_HEAD + 4 * -(-raw // block)


def read_head(path: Path, number: int, content: bytes, size: int, raw: int) -> Head:
    """The head of a chunk that is sound by `is_chunk`, from its first bytes, up to `places_end`."""
    block, end = struct.unpack_from("<i", content, 8)[0], places_end(content, raw)
    if not end:
        return Head(content[:CHUNK_HEAD], size, raw)
    starts = np.frombuffer(content, "<i4", (end - CHUNK_HEAD) // 4, CHUNK_HEAD)
    order = starts.argsort(kind="stable")
    ordered = starts[order]
    if ordered[0] < end or ordered[-1] > size:
        raise PoolCorrupt(f"{path} has a chunk {number} with blocks outside it: restore it from a copy")
    stops = np.empty_like(starts)
    stops[order[:-1]], stops[order[-1]] = ordered[1:], size
    return Head(content[:CHUNK_HEAD], size, raw, block, starts, stops)


class Decompressor:
    """Decompresses blocks of chunks into `out`, one after the other, several in one call of blosc2."""

    def __init__(self, out: NDArray[np.uint8]) -> None:
        self._out, self._done = out, 0
        self._head: Head | None = None
        self._begin()

    def _begin(self) -> None:
        self._places: list[int] = []
        self._parts: list[Any] = []
        self._size = self._raw = 0

    def add(self, head: Head, piece: Piece, content: bytes, offset: int) -> None:
        """Add what covers a piece. `content` has the bytes of the chunk that it needs, from `offset` on."""
        if not head.starts.size:
            self._whole(head, piece, content)
            return
        first, last = head.blocks(piece)
        view = memoryview(content)
        for low in range(first, last, _TOGETHER):
            high = min(low + _TOGETHER, last)
            if self._places and (len(self._places) + high - low > _TOGETHER or not _alike(self._head, head)):
                self.flush()
            starts = head.starts[low:high].tolist()
            start, stop = min(starts), max(head.stops[low:high].tolist())
            self._head, shift = head, self._size - start
            self._places += [place + shift for place in starts]
            self._parts.append(view[start - offset : stop - offset])
            self._size += stop - start
            self._raw += min(high * head.block, head.raw) - low * head.block
            if self._raw % head.block:  # a short block is the last of several
                self.flush()

    def flush(self) -> None:
        """Decompress what was added and is not decompressed yet."""
        if self._head is None or not self._places:
            return
        head, raw, out = self._head, self._raw, self._out[self._done : self._done + self._raw]
        if raw < head.block:  # and is not the first: one of zeros comes before it, as streams of no bytes
            zeros = 4 * head.header[3]
            self._places = [0, *(place + zeros for place in self._places)]
            self._parts.insert(0, bytes(zeros))
            self._size, out = self._size + zeros, np.empty(head.block + raw, np.uint8)
        count, header = len(self._places), bytearray(head.header)
        end = CHUNK_HEAD + 4 * count
        struct.pack_into("<iii", header, 4, len(out), head.block, end + self._size)
        places = struct.pack(f"<{count}i", *(place + end for place in self._places))
        _decompress(b"".join((header, places, *self._parts)), out)
        if raw < head.block:
            self._out[self._done : self._done + raw] = out[head.block :]
        self._done += raw
        self._begin()

    def _whole(self, head: Head, piece: Piece, content: bytes) -> None:
        """A piece of a chunk that is not in blocks; one of nothing but zeros takes no bytes."""
        self.flush()
        target = self._out[self._done : self._done + piece.stop - piece.start]
        self._done += len(target)
        if not head.size:
            target[:] = 0
            return
        out = np.empty(head.raw, np.uint8)
        _decompress(content, out)
        target[:] = out[piece.start : piece.stop]


def _alike(one: Head | None, other: Head) -> bool:
    """Whether blocks of two chunks may stand in one: codec, filters and sizes are the same."""
    return one is not None and (one.block, one.header[:4], one.header[16:]) == (
        other.block,
        other.header[:4],
        other.header[16:],
    )


def _decompress(chunk: bytes, out: NDArray[np.uint8]) -> None:
    import blosc2  # imported here because it would double the time that importing this room takes

    blosc2.decompress2(chunk, out, nthreads=1)
