"""A shard: the columns of some rollouts. Sealing turns a journal into one; a reader serves rows from it."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from radmoe.errors import InputError, PoolCorrupt, PoolMismatch
from radmoe.pool import documents, files, journal, schema
from radmoe.pool.columns import ColumnReader, ColumnWriter, check_entry, check_size, compression
from radmoe.pool.fault import SetAside
from radmoe.pool.limits import check_claim
from radmoe.pool.profile import Profile
from radmoe.pool.schema import COLUMNS, EXPERT_IDS, EXPERT_WEIGHTS, MOE_PTR, TOK_PTR, StoredColumn
from radmoe.pool.tables import RUN_FIELDS, write_table
from radmoe.types import RouterShape


def seal(
    directory: Path, shape: RouterShape, profile: Profile, *, check: Callable[[journal.Record], None] | None = None
) -> tuple[SetAside, ...]:
    """Turn the journal in `directory` into columns, and return the records that are none. `remove_journal` comes next.

    `check` raises an InputError for a rollout that makes no sense. It is needed where somebody else wrote the journal. Such a
    record, and one that is damaged, is copied as it is to `journal.refused`, and the others are sealed.

    Every other file is durable before `moe_meta.json` appears, and `moe_meta.json` is before the journal
    is removed. So a kill at any moment leaves a finished shard, or the journal to start sealing from again.
    """
    source = directory / schema.JOURNAL
    writers: dict[StoredColumn, ColumnWriter] = {}
    pointers: dict[str, list[int]] = {}
    rows: list[dict[str, Any]] = []
    captured_bytes = 0
    refused: list[journal.Entry] = []
    provenance, entries = journal.read(source)
    for other in [
        path for path in directory.iterdir() if path != source and not path.is_dir()
    ]:  # left by a kill, or to be replaced
        other.unlink()
    for entry in entries:
        try:
            if entry.record is None:
                raise InputError(entry.reason)
            if check is not None:
                check(entry.record)
        except InputError as e:
            refused.append(entry._replace(record=None, reason=str(e)))
            continue
        meta, arrays = entry.record
        if not rows:
            pointers = {c.pointer: [0] for c in COLUMNS if c.name in arrays}
            for column in (c for c in COLUMNS if c.name in arrays):
                cparams = compression(column, shape.top_k, sorted_experts=profile.sort_experts)
                per_row = int(np.prod(arrays[column.name].shape[1:], dtype=np.int64))
                writers[column] = ColumnWriter(directory / column.file, column, per_row, cparams)
        counts = {column.pointer: len(arrays[column.name]) for column in writers}
        for pointer, count in counts.items():
            pointers[pointer].append(pointers[pointer][-1] + count)
        for column, writer in writers.items():
            writer.append(arrays[column.name])
        captured_bytes += meta.pop("captured_bytes")
        rows.append(meta | {"shard": schema.shard_number(directory.name), "row": len(rows)})

    if profile.readouts is None and TOK_PTR in pointers:
        del pointers[TOK_PTR]  # every token has its routing row: one pointer serves both
    columns = {column.name: writer.finish() for column, writer in writers.items()}
    pointer_entries: dict[str, Any] = {}
    for pointer, values in pointers.items():
        path = directory / schema.pointer_file(pointer)
        files.write_atomic(path, np.array(values, "<i8").tobytes())
        pointer_entries[pointer] = {"bytes": path.stat().st_size, "crc32": files.crc32_file(path)}
    table = pa.Table.from_pylist(rows, schema=RUN_FIELDS)
    write_table(table, directory / schema.RUNS)
    body = {
        "schema_version": schema.SCHEMA_VERSION,
        "layers": shape.layers,
        "experts": shape.experts,
        "top_k": shape.top_k,
        "runs": len(rows),
        "tokens": sum(row["tokens"] for row in rows),
        "weights": any(c is schema.EXPERT_WEIGHTS for c in writers),
        "captured_bytes": captured_bytes,
        "provenance": provenance,
        "dtypes": {name: column["dtype"] for name, column in columns.items()},
        "pointers": pointer_entries,
        "columns": columns,
    }
    if refused:
        spans = [(entry.start, entry.stop) for entry in refused]
        files.write_atomic(directory / schema.REFUSED, lambda f: files.copy_spans(source, spans, f))
    files.write_atomic(directory / schema.SHARD_META, schema.seal_json(body))
    return tuple(SetAside(directory.name, entry.number, entry.reason) for entry in refused)


def publish(local: Path, directory: Path) -> None:
    """Bring a sealed shard to its pool in a store, its description last. On a disk it is there."""
    if local == directory:
        return
    names = [path.name for path in local.iterdir() if path.name not in (schema.JOURNAL, schema.SHARD_META)]
    files.each(directory, lambda name: files.copy(local / name, directory / name), names)
    try:
        files.write_atomic(directory / schema.SHARD_META, files.read_bytes(local / schema.SHARD_META), new=True)
    except FileExistsError:
        raise PoolMismatch(f"{directory} was written by another process, not from {local}: move {local} away") from None


def remove_journal(local: Path, directory: Path) -> None:
    """Remove the journal of a sealed shard, and what else was kept of it elsewhere.

    Needs the pool's lock: other workers look for journals while they hold it.
    """
    (directory / schema.JOURNAL).unlink()
    if local == directory:
        files.sync(directory)
    else:
        shutil.rmtree(local.parent)


class Shard:
    """A sealed shard. Opening it reads only its description and row pointers."""

    def __init__(self, directory: Path, expected: dict[str, Any]) -> None:
        self.path = directory
        self._remote = files.in_store(directory)  # each size would be a request: what is read has its size
        self._check_size(schema.SHARD_META, expected["bytes"])
        self.meta = documents.read_shard(directory / schema.SHARD_META)
        if self.meta["runs"] != expected["runs"]:
            raise PoolCorrupt(
                f"{directory} holds {self.meta['runs']} runs, pool.json says {expected['runs']}: restore it"
            )
        self.pointers = {name: self._pointer(name, entry) for name, entry in self.meta["pointers"].items()}
        self.columns: dict[str, ColumnReader] = {}
        raw_bytes = stored_bytes = 0
        for column in COLUMNS:
            if (entry := self.meta["columns"].get(column.name)) is not None:
                check_entry(directory / column.file, column, entry)
                self._check_size(column.file, entry["bytes"])
                self.columns[column.name] = ColumnReader(directory / column.file, column, entry)
                raw_bytes += self.columns[column.name].row_bytes * entry["rows"]
                stored_bytes += entry["bytes"] if self._remote else files.on_disk(directory / column.file)
                pointer = self.pointer(column)
                if len(pointer) != self.meta["runs"] + 1 or pointer[-1] != entry["rows"]:
                    raise PoolCorrupt(
                        f"{directory / column.file} has {entry['rows']} rows, its pointer ends elsewhere: restore it"
                    )

        check_claim(directory, f"columns of {raw_bytes:,} bytes", raw_bytes, stored_bytes)

    def pointer(self, column: StoredColumn) -> NDArray[np.int64]:
        """The CSR pointer of a column: run i has rows [pointer[i], pointer[i + 1])."""
        return self.pointers.get(column.pointer, self.pointers.get(MOE_PTR, _EMPTY))

    def read(
        self, column: StoredColumn, run: int, start: int = 0, stop: int | None = None, *, runs: int = 1
    ) -> NDArray[Any] | None:
        """Rows [start, stop) of a run, or all rows of it and of the `runs` - 1 runs after it.

        None if the shard does not have the column.
        """
        reader = self.columns.get(column.name)
        if reader is None:
            return None
        pointer = self.pointer(column)
        first, last = int(pointer[run]), int(pointer[run + runs])
        return reader.read(first + start, last if stop is None else min(first + stop, last))

    def _pointer(self, name: str, entry: dict[str, Any]) -> NDArray[np.int64]:
        path = self.path / schema.pointer_file(name)
        self._check_size(path.name, entry["bytes"])
        if entry["bytes"] != 8 * (self.meta["runs"] + 1):
            raise PoolCorrupt(f"{path} is not a row pointer of {self.meta['runs']} runs: restore it from a copy")
        check_claim(path, f"{self.meta['runs']:,} runs", entry["bytes"], 0 if self._remote else files.on_disk(path))
        content = files.read_bytes(path)
        pointer = np.frombuffer(content[: len(content) & ~7], "<i8")
        if len(pointer) != self.meta["runs"] + 1 or pointer[0] != 0 or (np.diff(pointer) < 0).any():
            raise PoolCorrupt(
                f"{path} is not a row pointer of {self.meta['runs']} runs rising from 0: restore it from a copy"
            )
        if zlib.crc32(content) != entry["crc32"]:
            raise PoolCorrupt(f"{path} does not match its checksum: restore it from a copy")
        return pointer

    def _check_size(self, name: str, size: int) -> None:
        if not self._remote:
            check_size(self.path / name, size)

    @cached_property
    def bytes(self) -> int:
        """How many bytes all columns and pointers take on disk."""
        return sum(int(entry["bytes"]) for part in ("columns", "pointers") for entry in self.meta[part].values())


class Stretch:
    """Rollouts that lie next to each other in a shard, as those of a problem mostly do. A column is read for all of them at once."""

    def __init__(self, shard: Shard, first: int, runs: int) -> None:
        self.shard, self.first, self.runs, self.stop = shard, first, runs, first + runs
        self._columns: dict[str, NDArray[Any] | None] = {}
        self._expected: dict[str, dict[tuple[int, int, int], None]] = {}
        self._fetched: dict[tuple[str, tuple[int, int, int]], NDArray[Any]] = {}

    def read(self, column: StoredColumn, run: int) -> NDArray[Any] | None:
        """The rows of a run, which is numbered as in the shard; None if the shard does not have the column."""
        if column.name not in self._columns:
            self._columns[column.name] = self.shard.read(column, self.first, runs=self.runs)
        rows = self._columns[column.name]
        if rows is None:
            return None
        pointer = self.shard.pointer(column)
        start, stop = pointer[run] - pointer[self.first], pointer[run + 1] - pointer[self.first]
        return rows[start:stop]

    def expect(self, run: int, start: int, stop: int, *, weights: bool) -> None:
        """Rows [start, stop) of a run will be asked for. The first of them that is read brings all."""
        for column in (EXPERT_IDS, EXPERT_WEIGHTS) if weights else (EXPERT_IDS,):
            if column.name in self.shard.columns:
                self._expected.setdefault(column.name, {})[run, start, stop] = None

    def rows(self, column: StoredColumn, run: int, start: int, stop: int) -> NDArray[Any] | None:
        """Rows [start, stop) of a run; None if the shard does not have the column."""
        if expected := self._expected.pop(column.name, None):
            at = self.shard.pointer(column)
            spans = [(int(at[one]) + first, int(at[one]) + last) for one, first, last in expected]
            for key, rows in zip(expected, self.shard.columns[column.name].read_spans(spans), strict=True):
                self._fetched[column.name, key] = rows
        found = self._fetched.pop((column.name, (run, start, stop)), None)
        return self.shard.read(column, run, start, stop) if found is None else found


_EMPTY = np.zeros(1, np.int64)
