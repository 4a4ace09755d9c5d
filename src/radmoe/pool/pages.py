"""Reads the sizes that a parquet file really holds from its page headers, before anything is decompressed.

The footer of a parquet file is only a claim, and pyarrow believes each page header in turn: it takes the memory that the
page says it needs. So the headers are read first, here. They are Thrift structs in the compact protocol, of which this
module reads as much as a page header has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from radmoe.pool.limits import check_claim

PAGE_COST = 8  # a page is in memory as it is on disk, decompressed, decoded and copied
MOST_ROW_GROUPS = 10_000
_MOST_HEADER = 1 << 16
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_ENCODINGS = (0, 2, 3, 8)  # plain, dictionary (old and new), run lengths: those that a pool is written with
_DETAILS = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_V2: (8, 4)}  # of a kind of page: its struct, the encoding in it
_DEEPEST = 8


class Leaf(NamedTuple):
    """One column chunk that does not nest: its column, the values that its pages hold, and its largest dictionary."""

    column: str
    nested: bool
    values: int
    dictionary_bytes: int


def read_leaves(path: Path, f: BinaryIO, metadata: Any, columns: list[str], on_disk: int) -> Iterator[Leaf]:
    """The leaves of these columns. Raises ValueError where the pages are not such as the footer says.

    Raises PoolTooLarge where a page claims more memory than the limit allows.
    """
    if metadata.num_row_groups > MOST_ROW_GROUPS:
        raise ValueError(f"it is in {metadata.num_row_groups} row groups, at most {MOST_ROW_GROUPS} are allowed")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            name, _, rest = chunk.path_in_schema.partition(".")
            if name not in columns:
                continue
            values = dictionary_bytes = 0
            for page in _pages(f, chunk) if chunk.num_values else ():
                check_claim(path, f"a page of {page.raw_bytes:,} bytes", PAGE_COST * page.raw_bytes, on_disk)
                if page.kind == _DICTIONARY:
                    dictionary_bytes = max(dictionary_bytes, page.raw_bytes)
                else:
                    values += page.values
            yield Leaf(name, bool(rest), max(values, chunk.num_values, group.num_rows), dictionary_bytes)


class _Page(NamedTuple):
    kind: int
    raw_bytes: int
    values: int


def _pages(f: BinaryIO, chunk: Any) -> Iterator[_Page]:
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    end = at + chunk.total_compressed_size
    if at < 0 or chunk.total_compressed_size < 0 or chunk.num_values < 0:
        raise ValueError("a column has a negative place or size")
    while at < end:
        f.seek(at)
        header = _Compact(f.read(min(_MOST_HEADER, end - at)))
        fields = header.struct()
        kind, raw, stored = (fields.get(number) for number in (1, 2, 3))
        if not isinstance(kind, int) or not isinstance(raw, int) or not isinstance(stored, int):
            raise ValueError("a page does not say what it is, or how long")
        place, encoding = _DETAILS.get(kind, (0, 0))
        details = fields.get(place)
        if not isinstance(details, dict):
            raise ValueError("a page is none of a table's")
        values = details.get(1)
        if not isinstance(values, int) or min(raw, stored, values) < 0 or at + header.at + stored > end:
            raise ValueError("a page has a size that its column does not have")
        if details.get(encoding) not in _ENCODINGS:
            raise ValueError(f"a page has the encoding {details.get(encoding)}, a pool's are {_ENCODINGS}")
        yield _Page(kind, raw, values)
        at += header.at + stored


class _Compact:
    """Reads one struct of Thrift's compact protocol from bytes. Raises ValueError where it does not end in them."""

    def __init__(self, content: bytes) -> None:
        self._content, self.at = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """The fields of a struct by their numbers."""
        if depth > _DEEPEST:
            raise ValueError("a page header is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 7:
            return self._take(8)
        if kind == 8:
            return self._take(self._varint())
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError("a page header has a field of a kind that it never has")

    def _take(self, size: int) -> bytes:
        taken = self._content[self.at : self.at + size]
        if len(taken) < size:
            raise ValueError("a page header is cut")
        self.at += size
        return taken

    def _byte(self) -> int:
        return self._take(1)[0]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a page header holds a number of more than 64 bits")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
