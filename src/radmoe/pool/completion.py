"""What happens to a pool as a whole: it is joined by a writer, its shards are sealed, and it is completed or recovered."""

from __future__ import annotations

import fcntl
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from radmoe.errors import PoolError, PoolMismatch, PoolNotFound
from radmoe.pool import files, journal, schema
from radmoe.pool.profile import Profile
from radmoe.pool.schema import disk_errors
from radmoe.pool.shard import seal
from radmoe.pool.tables import RUN_FIELDS, read_table, write_table
from radmoe.types import RouterShape
from radmoe.vocab import Vocab

ROUTER = ("layers", "experts", "top_k", "vocab")  # what a pool's header holds beside the run record


def recover(path: Path) -> int:
    """Complete a pool whose writers were killed, and return how many rollouts it holds. Live writers are an error."""
    if not files.exists(path / schema.OPEN_JSON) and not files.exists(path / schema.POOL_JSON):
        raise PoolNotFound(f"{path} is not a pool: it has neither {schema.POOL_JSON} nor {schema.OPEN_JSON}")
    files.check_tree(path)
    with disk_errors(path), locked(path):
        if live := seal_orphans(path):
            raise PoolError(f"{path} still has {live} live writer(s): let them close, or stop them, then recover")
        return complete(path)


def seal_orphans(path: Path) -> int:
    """Seal every journal whose writer is gone, and return how many writers are live. Needs the pool's lock."""
    live = 0
    for directory in schema.shard_dirs(path):
        if not files.exists(directory / schema.JOURNAL):
            if not files.exists(directory / schema.SHARD_META):
                directory.rmdir()  # its writer was killed before it made the journal
        elif journal.is_live(directory / schema.JOURNAL):
            live += 1
        else:
            header = schema.read_json(path / schema.OPEN_JSON)
            profile = Profile.from_json(header["run"]["profile"])
            shape = RouterShape(header["layers"], header["experts"], header["top_k"])
            seal(directory, profile.stored_shape(shape), profile)
    return live


def complete(path: Path) -> int:
    """Write runs.parquet and, last, pool.json, unless a writer is still filling a shard. Needs the pool's lock.

    Returns how many rollouts the complete pool holds, 0 while a shard is still being filled.
    """
    if not files.exists(path / schema.OPEN_JSON):
        return int(schema.read_json(path / schema.POOL_JSON)["runs"])  # another writer completed it
    directories = schema.shard_dirs(path)
    if any(files.exists(d / schema.JOURNAL) for d in directories):
        return 0
    table = pa.concat_tables([shard_runs(path, d) for d in directories] or [RUN_FIELDS.empty_table()])
    numbers = _number(table, path)
    write_manifest(path, schema.read_json(path / schema.OPEN_JSON), numbered(table, numbers))
    (path / schema.OPEN_JSON).unlink()
    for directory in directories:
        (directory / schema.RUNS).unlink(missing_ok=True)
    files.remove_temporary(path)
    return len(table)


def numbered(table: pa.Table, rollout_indices: list[int]) -> pa.Table:
    """The table with these rollout indices, and run ids that count up."""
    for name, values in (("run_id", range(len(table))), ("rollout_index", rollout_indices)):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.array(values, pa.int64()))
    return table


def write_manifest(path: Path, header: dict[str, Any], table: pa.Table) -> None:
    """Write runs.parquet and, last, pool.json, which lists every file: from here on the pool is complete."""
    write_table(table, path / schema.RUNS)
    body = header | {
        "runs": len(table),
        "problems": len(set(table["problem_id"].to_pylist())),
        "steps": table["steps"].null_count < len(table),
        "shards": {d.name: _entry(d / schema.SHARD_META) for d in schema.shard_dirs(path)},
        "files": {name: _entry(path / name) for name in schema.LISTED},
    }
    files.write_atomic(path / schema.POOL_JSON, schema.seal_json(body))


def contradiction(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first entry in which the headers of two pools differ, with both values; None where they agree.

    The router, the vocabulary and every part of the run record are compared.
    """
    flat = [{key: head[key] for key in ROUTER} | head["run"] for head in (one, other)]
    return next(((key, flat[0][key], flat[1][key]) for key in flat[1] if flat[0][key] != flat[1][key]), None)


def join(path: Path, header: dict[str, Any], vocab: Vocab) -> dict[str, list[int]] | None:
    """Open a pool for writing, or start one. Returns its columns; None if the first rollout has yet to decide them.

    Raises PoolMismatch if the header contradicts that of the pool that is there.
    """
    pool_json, open_json = path / schema.POOL_JSON, path / schema.OPEN_JSON
    current = open_json if files.exists(open_json) else pool_json if files.exists(pool_json) else None
    if current is None:
        if any(path.iterdir()) and [p.name for p in path.iterdir()] != [schema.LOCK]:
            raise PoolMismatch(f"{path} is not empty and not a pool: choose another directory")
        files.write_atomic(path / schema.TOKENIZER_JSON, vocab.json)
        files.write_atomic(path / schema.VOCAB_TABLE, vocab.to_table())
    else:
        files.check_tree(path)
        existing = schema.read_json(current)
        if (difference := contradiction(existing, header)) is not None:
            key, old, new = difference
            raise PoolMismatch(f"{path} was made with {key} = {old!r}, this writer has {new!r}: use a new pool")
        header = header | {key: existing[key] for key in ("columns",) if key in existing}
    if not files.exists(open_json):
        files.write_atomic(open_json, schema.seal_json(header))
    pool_json.unlink(missing_ok=True)
    columns: dict[str, list[int]] | None = header.get("columns")
    return columns


def shard_runs(path: Path, directory: Path, columns: list[str] | None = None) -> pa.Table:
    """The runs of a sealed shard, from its own file while the pool is open, else from that of the complete pool."""
    own = directory / schema.RUNS
    if files.exists(own):
        return read_table(own, RUN_FIELDS, columns=columns)
    number = schema.shard_number(directory.name)
    return read_table(path / schema.RUNS, RUN_FIELDS, columns=columns, filters=[("shard", "=", number)])


def _number(table: pa.Table, path: Path) -> list[int]:
    """The rollout index of every run. A rollout that was added without one gets the problem's next free index."""
    problems, indices, shards = (table[name].to_pylist() for name in ("problem_id", "rollout_index", "shard"))
    shard_of: defaultdict[str, dict[int, int]] = defaultdict(dict)  # by problem and rollout index
    for problem, index, shard in zip(problems, indices, shards, strict=True):
        if index is not None and index in shard_of[problem]:
            both = f"{schema.shard_name(shard_of[problem][index])} and {schema.shard_name(shard)}"
            raise PoolMismatch(f"{path}: {both} both hold rollout {index} of problem {problem!r}: delete one shard")
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
        entry["runs"] = schema.read_json(path)["runs"]
    return entry


def describe(columns: dict[str, list[int]]) -> str:
    return ", ".join(f"{name}{shape}" for name, shape in sorted(columns.items()))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the pool's lock: opening, numbering shards and completing happen one process at a time."""
    with files.open_lock(path / schema.LOCK) as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield
