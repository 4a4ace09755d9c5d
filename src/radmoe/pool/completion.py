"""Operations on a whole pool: joining it as a writer, sealing shards, completing and recovering it, deleting problems."""

from __future__ import annotations

import fcntl
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from radmoe.errors import PoolBusy, PoolMismatch, PoolNotFound
from radmoe.pool import documents, files, journal, schema
from radmoe.pool.fault import SetAside
from radmoe.pool.hold import Hold, claimed, hold, workplace
from radmoe.pool.lease import Lease
from radmoe.pool.schema import disk_errors
from radmoe.pool.sense import Contents, check_places, check_rollout
from radmoe.pool.shard import Shard, publish, remove_journal, seal
from radmoe.pool.tables import BEHAVIOUR_FIELDS, LABEL_FIELDS, RUN_FIELDS, read_table, write_table
from radmoe.vocab import Vocab

ROUTER = ("layers", "experts", "top_k", "vocab")  # what a pool's header holds beside the run record
_PLACE = ("run_id", "shard", "row")  # where a run lies, of the fields of the run table
_TABLES = {schema.LABELS: LABEL_FIELDS, schema.BEHAVIOURS: BEHAVIOUR_FIELDS, schema.RUNS: RUN_FIELDS}


class Dropped(NamedTuple):
    """A rollout that recovery left out, because the pool holds another of the same problem and index."""

    problem_id: str
    rollout_index: int
    shard: int
    kept_shard: int
    identical: bool

    def __str__(self) -> str:
        name = f"rollout {self.rollout_index} of problem {self.problem_id!r}"
        if self.identical:
            return f"{name} was there twice, the same both times: one is kept"
        older, newer = (schema.shard_name(number) for number in (self.kept_shard, self.shard))
        return f"{name} was there twice and differs: the older one, in {older}, is kept; that in {newer} is left out"


def recover(path: Path, without: Collection[str] = ()) -> tuple[Dropped | SetAside, ...]:
    """Complete a pool whose writers were killed, and return what was left out: duplicates, and records that are no rollouts.

    The problems `without` are deleted. Once pool.open.json names them, whoever completes the pool finishes that. Raises PoolBusy
    if a process still writes to the pool.
    """
    open_json, pool_json = path / schema.OPEN_JSON, path / schema.POOL_JSON
    if not files.exists(open_json) and not files.exists(pool_json):
        raise PoolNotFound(f"{path} is not a pool: it has neither {schema.POOL_JSON} nor {schema.OPEN_JSON}")
    files.check_tree(path)
    with disk_errors(path):
        right = hold(path)
        try:
            with locked(path):
                live, aside = seal_orphans(path)
                if live:
                    raise PoolBusy(
                        f"{path} still has {live} live writer(s): let them close, or stop them, then recover"
                    )
                if without:
                    header = header_of(documents.read_open(open_json if files.exists(open_json) else pool_json))
                    files.write_atomic(open_json, schema.seal_json(header | {"without": sorted(without)}))
                    _purge(path)
                if not files.exists(open_json):
                    return aside
                table, dropped = _without_duplicates(path, _all_runs(path))
                right.check()
                pool_json.unlink(missing_ok=True)  # a kill may have left both
                _complete(path, table)
                return (*dropped, *aside)
        finally:
            right.release()


def seal_orphans(path: Path) -> tuple[int, tuple[SetAside, ...]]:
    """Seal every journal whose writer is gone. Needs the pool's lock.

    Returns how many writers are live, and the records of journals that are set aside.
    """
    live, aside = 0, list[SetAside]()
    for directory, names in schema.shard_files(path).items():
        if schema.JOURNAL not in names:
            if schema.SHARD_META not in names:
                directory.rmdir()  # its writer was killed before it made the journal
        elif (local := workplace(directory)) is None:
            live += schema.SHARD_META not in names and claimed(directory)
        else:
            with journal.orphaned(local / schema.JOURNAL) as orphaned:
                if orphaned:
                    aside += _seal_orphan(path, local, directory)
                else:
                    live += 1
    if not files.in_store(path) and files.exists(path / schema.OPEN_JSON):
        _purge(path)
    return live, tuple(aside)


def _seal_orphan(path: Path, local: Path, directory: Path) -> tuple[SetAside, ...]:
    header = documents.read_open(path / schema.OPEN_JSON)
    shape, profile = documents.stored_router(header)
    contents = Contents(header.get("columns"), shape, profile, len(documents.read_vocab(path)))
    aside = seal(local, shape, profile, check=partial(check_rollout, contents))
    publish(local, directory)
    remove_journal(local, directory)
    return aside


def _purge(path: Path) -> None:
    """Finish the deletion that pool.open.json names, if any. Needs the pool's lock."""
    header = documents.read_open(path / schema.OPEN_JSON)
    if not (without := header.get("without")):
        return
    (path / schema.POOL_JSON).unlink(missing_ok=True)
    shards = schema.shard_files(path)
    number = max(map(schema.shard_number, (directory.name for directory in shards)), default=-1)
    for directory, table in zip(schema.shard_dirs(path), shard_runs(path), strict=True):
        shard, rows = Shard(directory, _entry(directory / schema.SHARD_META)), _others(table, without)
        if len(rows) < shard.meta["runs"] or schema.REFUSED in shards[directory]:
            number += 1
            _rewrite(shard, rows, path / schema.shard_name(number), header)
    for name, fields in _TABLES.items():
        if files.exists(path / name):
            write_table(_others(read_table(path / name, fields, restore="remove it"), without), path / name)
    files.write_atomic(path / schema.OPEN_JSON, schema.seal_json(header_of(header)))


def _others(table: pa.Table, without: Collection[str]) -> pa.Table:
    """The rows of other problems."""
    return table.filter(pc.invert(pc.is_in(table["problem_id"], pa.array(without, pa.string()))))


def _rewrite(shard: Shard, rows: pa.Table, directory: Path, header: dict[str, Any]) -> None:
    """Replace a shard by one that has only these of its runs.

    A journal of them appears beside the columns and is from then on what the shard holds. It is sealed as every journal is, in
    another directory, so that whoever has the pool open finds no file rather than a wrong one.
    """
    records = _records(shard, rows, header["columns"])
    files.write_atomic(shard.path / schema.JOURNAL, lambda f: f.writelines(records))
    shard.path.rename(directory)
    files.sync(directory.parent)
    seal(directory, *documents.stored_router(header))
    remove_journal(directory, directory)
    if not len(rows):
        for name in (schema.RUNS, schema.SHARD_META):
            (directory / name).unlink()
        directory.rmdir()


def _records(shard: Shard, table: pa.Table, columns: dict[str, list[int]]) -> Iterator[bytes]:
    """A journal of these runs of a shard."""
    yield journal.frame(journal.encode({"provenance": shard.meta["provenance"]}, {}))
    for row in table.to_pylist():
        arrays = {
            column.name: rows.reshape(-1, *columns[column.name])
            for column in schema.COLUMNS
            if (rows := shard.read(column, row["row"])) is not None
        }
        captured_bytes = row["tokens"] * shard.meta["captured_bytes"] // shard.meta["tokens"]  # all tokens have as many
        meta = {name: value for name, value in row.items() if name not in _PLACE}
        yield journal.frame(journal.encode(meta | {"captured_bytes": captured_bytes}, arrays))


def complete(path: Path, right: Hold | Lease, live: int) -> bool:
    """Write runs.parquet and, last, pool.json, unless writers still fill shards, `live` of them. Needs the pool's lock.

    Returns whether the pool is complete.
    """
    if live:
        return False
    if files.exists(path / schema.OPEN_JSON):  # otherwise another writer completed it
        right.check()
        _complete(path, _all_runs(path))
    return True


def _all_runs(path: Path) -> pa.Table:
    """The runs of all sealed shards, in the order of the shards."""
    tables = shard_runs(path)
    return pa.concat_tables(tables or [RUN_FIELDS.empty_table()])


def _complete(path: Path, table: pa.Table) -> None:
    numbers = _number(table, path)
    write_manifest(path, documents.read_open(path / schema.OPEN_JSON), numbered(table, numbers))
    (path / schema.OPEN_JSON).unlink()
    files.each(path, lambda directory: (directory / schema.RUNS).unlink(missing_ok=True), schema.shard_dirs(path))
    files.remove_temporary(path)


def _without_duplicates(path: Path, table: pa.Table) -> tuple[pa.Table, tuple[Dropped, ...]]:
    """The table without rollouts that it has twice. The one in the lower shard, or the lower row of it, stays."""
    names = zip(table["problem_id"].to_pylist(), table["rollout_index"].to_pylist(), strict=True)
    first_rows: dict[tuple[str, int], int] = {}
    repeated: dict[int, int] = {}  # row of the table -> row of the one that stays
    for at, (problem, index) in enumerate(names):
        if index is not None and (row := first_rows.setdefault((problem, index), at)) != at:
            repeated[at] = row
    if not repeated:
        return table, ()
    shards = {schema.shard_number(d.name): Shard(d, _entry(d / schema.SHARD_META)) for d in schema.shard_dirs(path)}
    dropped = []
    for at, row in repeated.items():
        other, kept = table.slice(at, 1).to_pylist()[0], table.slice(row, 1).to_pylist()[0]
        same = _same_rollout(shards, kept, other)
        dropped.append(Dropped(other["problem_id"], other["rollout_index"], other["shard"], kept["shard"], same))
    stays = [at not in repeated for at in range(len(table))]
    return table.filter(pa.array(stays)), tuple(dropped)


def _same_rollout(shards: dict[int, Shard], one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rows of the run table describe equal rollouts: all fields but the place, and all columns."""
    if any(one[name] != other[name] for name in RUN_FIELDS.names if name not in _PLACE):
        return False
    for column in schema.COLUMNS:
        ours, theirs = (shards[run["shard"]].read(column, run["row"]) for run in (one, other))
        if (ours is None) != (theirs is None):
            return False
        if ours is not None and theirs is not None and ours.tobytes() != theirs.tobytes():
            return False
    return True


def numbered(table: pa.Table, rollout_indices: list[int]) -> pa.Table:
    """The table with these rollout indices, and run ids that count up."""
    for name, values in (("run_id", range(len(table))), ("rollout_index", rollout_indices)):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.array(values, pa.int64()))
    return table


def write_manifest(path: Path, header: dict[str, Any], table: pa.Table) -> None:
    """Write runs.parquet and, last, pool.json, which lists every file: from here on the pool is complete."""
    write_table(table, path / schema.RUNS)
    shards = schema.shard_dirs(path)
    entries = files.each(path, lambda directory: _entry(directory / schema.SHARD_META), shards)
    body = header | {
        "runs": len(table),
        "problems": len(set(table["problem_id"].to_pylist())),
        "steps": table["steps"].null_count < len(table),
        "shards": {directory.name: entry for directory, entry in zip(shards, entries, strict=True)},
        "files": {name: _entry(path / name) for name in schema.LISTED},
    }
    try:
        files.write_atomic(path / schema.POOL_JSON, schema.seal_json(body), new=True)
    except FileExistsError:
        raise PoolBusy(f"{path} was completed by another process meanwhile: run it again") from None


def header_of(body: dict[str, Any]) -> dict[str, Any]:
    """The entries of pool.json or pool.open.json that are fixed when a pool is begun."""
    return {key: body[key] for key in ("schema_version", *ROUTER, "run", "columns") if key in body}


def contradiction(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first entry in which the headers of two pools differ, with both values; None where they agree.

    The router, the vocabulary and every part of the run record are compared.
    """
    return difference(*({key: head[key] for key in ROUTER} | head["run"] for head in (one, other)))


def difference(one: dict[str, Any], other: dict[str, Any], within: str = "") -> tuple[str, Any, Any] | None:
    """The first entry that differs; of two objects it is the entry inside them, such as sampling.seed."""
    for key in dict.fromkeys((*one, *other)):
        ours, theirs = one.get(key), other.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            if (inside := difference(ours, theirs, f"{within}{key}.")) is not None:
                return inside
        elif ours != theirs:
            return f"{within}{key}", ours, theirs
    return None


def join(path: Path, header: dict[str, Any], vocab: Vocab) -> dict[str, list[int]] | None:
    """Open a pool for writing, or start one. Returns its columns; None if the first rollout has yet to decide them.

    Raises PoolMismatch if the header contradicts that of the pool that is there.
    """
    pool_json, open_json = path / schema.POOL_JSON, path / schema.OPEN_JSON
    current = open_json if files.exists(open_json) else pool_json if files.exists(pool_json) else None
    if current is None:
        _begin(path, {schema.TOKENIZER_JSON: vocab.json, schema.VOCAB_TABLE: vocab.to_table()})
    else:
        files.check_tree(path)
        existing = documents.read_open(current)  # pool.json begins with the same header
        if (difference := contradiction(existing, header)) is not None:
            key, old, new = difference
            raise PoolMismatch(f"{path} was made with {key} = {old!r}, this writer has {new!r}: use a new pool")
        header = header | {key: existing[key] for key in ("columns",) if key in existing}
    if not files.exists(open_json):
        files.write_atomic(open_json, schema.seal_json(header))
    pool_json.unlink(missing_ok=True)
    columns: dict[str, list[int]] | None = header.get("columns")
    return columns


def _begin(path: Path, first: dict[str, bytes]) -> None:
    """Write the files that come before the header, or finish what a stopped writer of the same pool began.

    A directory that holds anything else, or one of these files with other content, is somebody's: PoolMismatch.
    """
    begun = {
        p
        for p in path.iterdir()
        if not files.is_temporary(p)
        and p.name not in (schema.LOCK, schema.WRITER)
        and not p.name.startswith(schema.PROBE)
    }
    if any(p.name not in first or files.read_bytes(p) != first[p.name] for p in begun):
        raise PoolMismatch(f"{path} is not empty and not a pool: choose another directory")
    files.remove_temporary(path)
    for name, content in first.items():
        files.write_atomic(path / name, content)


def shard_runs(path: Path, columns: list[str] | None = None) -> list[pa.Table]:
    """The runs of each sealed shard, from its own file while the pool is open, else from that of the complete pool."""

    def read(shard: tuple[Path, set[str]]) -> pa.Table:
        directory, names = shard
        if schema.RUNS in names:
            table = read_table(directory / schema.RUNS, RUN_FIELDS, columns=columns)
        else:
            number = schema.shard_number(directory.name)
            table = read_table(path / schema.RUNS, RUN_FIELDS, columns=columns, where={"shard": number})
        if columns is None:
            check_places(directory, table)
        return table

    sealed = (shard for shard in schema.shard_files(path).items() if schema.SHARD_META in shard[1])
    return files.each(path, read, sealed)


def _number(table: pa.Table, path: Path) -> list[int]:
    """The rollout index of every run. A rollout that was added without one gets the problem's next free index."""
    problems, indices, shards = (table[name].to_pylist() for name in ("problem_id", "rollout_index", "shard"))
    shard_of: defaultdict[str, dict[int, int]] = defaultdict(dict)  # by problem and rollout index
    for problem, index, shard in zip(problems, indices, shards, strict=True):
        if index is not None and index in shard_of[problem]:
            both = f"{schema.shard_name(shard_of[problem][index])} and {schema.shard_name(shard)}"
            raise PoolMismatch(
                f"{path}: {both} both hold rollout {index} of problem {problem!r}: radmoe verify --recover keeps one"
            )
        if index is not None:
            shard_of[problem][index] = shard
    numbers = []
    for problem, index, shard in zip(problems, indices, shards, strict=True):
        if index is None:
            used = shard_of[problem]
            index = next(i for i in range(len(used) + 1) if i not in used)
            used[index] = shard
        numbers.append(index)
    return numbers


def _entry(path: Path) -> dict[str, Any]:
    entry = {"bytes": files.size_of(path), "crc32": files.crc32_file(path)}
    if path.name == schema.SHARD_META:
        entry["runs"] = documents.read_shard(path)["runs"]
    return entry


def describe(columns: dict[str, list[int]]) -> str:
    return ", ".join(f"{name}{shape}" for name, shape in sorted(columns.items()))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the pool's lock: opening, numbering shards and completing happen one process at a time.

    In a store nothing can be locked, and what must not be done twice is a conditional write.
    """
    if files.in_store(path):
        yield
        return
    with files.open_lock(path / schema.LOCK) as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield
