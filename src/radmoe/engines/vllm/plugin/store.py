"""Routing rows of requests, by position, in bounded memory.

One row is one position of one request: its experts at every layer. Rows lie in slots of one large
array; a table [entry, position] says in which slot. A step of the engine brings some rows of many requests, and storing
them is a few array operations whatever the batch. A position that is computed again (after a preemption) overwrites
its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import EngineError

Spans = Mapping[int, Sequence[tuple[int, int]]]  # per choice: token ranges [start, stop)
_MARGIN = 2  # under asynchronous scheduling up to this many rows follow a request's last token


class ChoiceRows(NamedTuple):
    """Rows of one choice: token[r] is t for R(t), negative for the prompt; ids and weights are [R, L, K]."""

    choice: int
    token: NDArray[np.int32]
    ids: NDArray[np.unsignedinteger | np.signedinteger]
    weights: NDArray[np.float16] | None


class SlotPlan(NamedTuple):
    """Where rows of one step go: rows `source` of the step go to `slots`."""

    source: NDArray[np.int64]
    slots: NDArray[np.int32]


@dataclass
class _Entry:
    request: str
    key: str
    row: int  # of the table
    prompt: int  # P
    lost: str | None = None
    finished: bool = False


class RowStore:
    """Rows of up to `entries` requests of up to `positions` positions, in `memory` bytes.

    The memory is reserved at once, and taken only when rows are written to it.
    """

    def __init__(
        self,
        *,
        layers: int,
        experts: int,
        top_k: int,
        weights: bool,
        entries: int,
        positions: int,
        memory: int,
        prompt: bool = False,
        tail: int | None = None,
    ) -> None:
        kind = np.uint8 if experts <= 256 else np.int16
        self.row_bytes = layers * top_k * (np.dtype(kind).itemsize + (2 if weights else 0))
        self.capacity = max(memory // self.row_bytes, 1)
        self._memory, self._prompt, self._tail = memory, prompt, None if tail is None else tail + _MARGIN
        self._ids = np.empty((self.capacity + 1, layers, top_k), kind)  # slot 0 is none
        self._weights = np.empty((self.capacity + 1, layers, top_k), np.float16) if weights else None
        self._table = np.zeros((entries, positions), np.int32)
        self._free = np.arange(self.capacity, 0, -1, dtype=np.int32)
        self._free_count = self.capacity
        self._free_rows = list(range(entries - 1, -1, -1))
        self._first = np.zeros(entries, np.int64)  # first position kept
        self._end = np.zeros(entries, np.int64)
        self._entries: dict[str, _Entry] = {}  # by request, oldest first
        self._keys: dict[str, list[_Entry]] = {}
        self._done: dict[str, None] = {}  # finished and not fetched, oldest first

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def used(self) -> int:
        """The bytes of the rows that are held."""
        return (self.capacity - self._free_count) * self.row_bytes

    def open(self, request: str, key: str, prompt: int) -> None:
        """Begin to hold rows of a request with a prompt of `prompt` tokens."""
        if request in self._entries:
            return
        entry = _Entry(request, key, -1, prompt)
        if not self._free_rows or len(self._entries) >= len(self._table):
            self._evict()
        if self._free_rows:
            entry.row = self._free_rows.pop()
            self._first[entry.row] = 0 if self._prompt else prompt - 1
        else:
            entry.lost = "too many requests were open at once"
        self._entries[request] = entry
        self._keys.setdefault(key, []).append(entry)

    def plan(self, requests: Sequence[str], start: NDArray[np.integer], count: NDArray[np.integer]) -> SlotPlan | None:
        """Slots for a step in which request i computed `count[i]` positions from `start[i]` on.

        Rows of the step lie in the order of the requests. Returns None where no row of the step is to be held.
        """
        count = np.asarray(count, np.int64)
        offset = np.asarray(start, np.int64) - (np.cumsum(count) - count)
        while True:
            rows = np.array([self._entries[r].row if r in self._entries else -1 for r in requests], np.int64)
            if not (rows >= 0).any():
                return None
            row = np.repeat(rows, count)
            position = np.arange(len(row)) + np.repeat(offset, count)
            source = np.flatnonzero((row >= 0) & (position >= self._first[row]))
            if not len(source):
                return None
            row, position = row[source], position[source]
            slots = self._table[row, position]
            new = slots == 0
            if self._make_room(int(new.sum())):
                break
        slots[new] = self._allocate(int(new.sum()))
        self._table[row, position] = slots
        live = rows >= 0
        self._end[rows[live]] = np.maximum(self._end[rows[live]], (start + count)[live])
        if self._tail is not None:
            self._forget(row, position - self._tail)
        return SlotPlan(source, slots)

    def fill(self, slots: NDArray[np.int32], ids: NDArray[np.integer], weights: NDArray[np.floating] | None) -> None:
        """Store the rows of a plan, [R, L, K] each. Plans are filled in the order in which they were made."""
        self._ids[slots] = ids
        if self._weights is not None:
            self._weights[slots] = weights

    def spoil(self, requests: Sequence[str], reason: str) -> None:
        """Drop the routing of these requests because it is not trustworthy. Fetching it will raise `reason`."""
        for request in requests:
            if (entry := self._entries.get(request)) is not None and entry.lost is None:
                self._lose(entry, reason)

    def finish(self, request: str) -> None:
        """Note that a request ended or was aborted: its rows stay until they are fetched, or until room is needed."""
        if (entry := self._entries.get(request)) is not None and not entry.finished:
            entry.finished = True
            self._done[request] = None

    def take(self, key: str, n: int, spans: Spans | None = None) -> list[ChoiceRows]:
        """Hand out the rows of a request's n choices, all of them or those of some token ranges, and forget the request."""
        entries = self._keys.get(key, [])
        if len(entries) != n:
            held = f"{len(entries)} choices" if entries else "nothing"
            raise EngineError(
                f"the capture holds {held} under the key {key!r}, not {n} choices: a key names one request of one "
                "prompt, is fetched once, and soon after the request ends"
            )
        taken = []
        for entry in entries:
            if entry.lost is not None:
                raise EngineError(f"the routing of {entry.request} was lost: {entry.lost}")
            # vLLM names child i of a request with n > 1 i_REQUEST
            choice = int(entry.request.partition("_")[0]) if n > 1 else 0
            taken.append(self._rows(entry, choice, None if spans is None else spans.get(choice, ())))
        self.drop(key)
        return sorted(taken, key=lambda rows: rows.choice)

    def drop(self, key: str) -> None:
        """Forget a request."""
        for entry in self._keys.pop(key, []):
            self._remove(entry)

    def _rows(self, entry: _Entry, choice: int, spans: Sequence[tuple[int, int]] | None) -> ChoiceRows:
        position = np.flatnonzero(self._table[entry.row, : self._end[entry.row]])
        token = (position - (entry.prompt - 1)).astype(np.int32)
        if spans is not None:
            inside = np.zeros(len(token), bool)
            for start, stop in spans:
                inside |= (token >= start) & (token < stop)
            position, token = position[inside], token[inside]
        slots = self._table[entry.row, position]
        return ChoiceRows(choice, token, self._ids[slots], None if self._weights is None else self._weights[slots])

    def _make_room(self, rows: int) -> bool:
        """Whether this many slots are free. Finished requests make room; where that is not enough, one loses its rows."""
        while self._free_count < rows and self._evict():
            pass
        if self._free_count >= rows:
            return True
        youngest = next(e for e in reversed(self._entries.values()) if e.row >= 0)
        self._lose(youngest, f"rows did not fit in memory_mib={self._memory >> 20}: raise it, or run fewer at once")
        return False

    def _evict(self) -> bool:
        """Forget the finished request that has waited longest to be fetched; False where there is none."""
        oldest = next(iter(self._done), None)
        if oldest is None:
            return False
        entry = self._entries[oldest]
        self._remove(entry)
        self._keys[entry.key].remove(entry)
        if not self._keys[entry.key]:
            del self._keys[entry.key]
        return True

    def _remove(self, entry: _Entry) -> None:
        self._release(entry)
        del self._entries[entry.request]
        self._done.pop(entry.request, None)

    def _lose(self, entry: _Entry, reason: str) -> None:
        self._release(entry)
        entry.lost = reason

    def _release(self, entry: _Entry) -> None:
        if entry.row < 0:
            return
        held = self._table[entry.row, : self._end[entry.row]]
        self._give_back(held[held > 0])
        held[:] = 0
        self._end[entry.row] = 0
        self._free_rows.append(entry.row)
        entry.row = -1

    def _forget(self, row: NDArray[np.int64], position: NDArray[np.int64]) -> None:
        row, position = row[position >= 0], position[position >= 0]
        slots = self._table[row, position]
        self._give_back(slots[slots > 0])
        self._table[row, position] = 0

    def _allocate(self, rows: int) -> NDArray[np.int32]:
        self._free_count -= rows
        return self._free[self._free_count : self._free_count + rows].copy()

    def _give_back(self, slots: NDArray[np.int32]) -> None:
        self._free[self._free_count : self._free_count + len(slots)] = slots
        self._free_count += len(slots)
