"""A pool becomes a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from radmoe.errors import InputError
from radmoe.pool import Pool, Profile, files, schema
from radmoe.pool.completion import header_of
from radmoe.pool.reader import StoredRollout
from radmoe.pool.schema import disk_errors
from radmoe.pool.tables import LABEL_FIELDS, read_table, write_table
from radmoe.selection.kinds import settle_kinds
from radmoe.selection.rule import Rule
from radmoe.types import Kind
from radmoe_integrations.hub import layout
from radmoe_integrations.hub.card import card

FILE_BYTES = 256 << 20
_GROUP_BYTES = 64 << 20  # of rows, before they are compressed


class Exported(NamedTuple):
    """A data set that was written. `readouts` are those whose windows it holds; None means the routing of every token."""

    directory: str
    problems: int
    rollouts: int
    tokens: int
    bytes: int
    readouts: tuple[str, ...] | None
    texts: bool
    labels: int


def export_pool(
    pool: Pool,
    out: str | Path,
    *,
    full: bool = False,
    texts: bool = False,
    progress: Callable[[int], None] = lambda rollouts: None,
) -> Exported:
    """Write a pool as a data set into a new directory.

    Where a pool keeps the routing of every token, only the windows of the default preset are written, and no routing of
    prompts, unless `full`. Token ids are always written; texts, prompts, `extra` and the observations of an agent's steps only with `texts`. `progress` is called with the number of rollouts done. A failed export leaves
    nothing behind.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already: give a new directory to export into")
    if not len(pool):
        raise InputError(f"{pool.path} holds no rollouts: there is nothing to export")
    with disk_errors(out), files.appearing(out, "export") as directory:
        exported = _write(pool, directory, full, texts, progress)
    return exported._replace(directory=str(out))


def _write(pool: Pool, directory: Path, full: bool, texts: bool, progress: Callable[[int], None]) -> Exported:
    kinds: Mapping[str, Kind | None] = pool.kinds
    profile = pool.profile
    if not full and profile.readouts is None:
        kinds = settled = _kinds(pool)
        readouts = {kind: Rule().settle(kind).readout for kind in sorted(set(settled.values()))}
        if not {"text", "agent"}.isdisjoint(readouts) and any(one.startswith("delimiter") for one in readouts.values()):
            raise InputError(
                f"{pool.path} has answers of kinds {', '.join(readouts)}, which have no marker in common: export it with --full"
            )
        profile = Profile(profile.sort_experts, profile.layers, tuple(dict.fromkeys(readouts.values())))
    dropped = () if full else (schema.PROMPT_IDS.name, schema.PROMPT_WEIGHTS.name)
    columns = {name: shape for name, shape in pool.meta["columns"].items() if name not in dropped}
    if profile.readouts is not None:
        columns[schema.TOKEN_INDEX.name] = []
    header = header_of(pool.meta)
    description = header | {
        "run": header["run"] | {"profile": profile.to_json()},
        "columns": columns,
        "steps": pool.meta["steps"],
        "texts": texts,
        "provenance": _provenance(pool),
        "layout": layout.VERSION,
    }
    (directory / "data").mkdir()
    rows = _rows(pool, kinds, profile, description)
    counts = _write_rollouts(directory / "data", rows, layout.fields(description), progress)
    labels = pool.path / schema.LABELS
    if files.exists(labels):
        table = read_table(labels, LABEL_FIELDS, restore="grade the pool again")
        write_table(table, directory / "data" / "labels-00000-of-00001.parquet")
        counts["data/labels-00000-of-00001.parquet"] = len(table)
    files.write_atomic(directory / schema.TOKENIZER_JSON, pool.vocab.json)
    entries = {name: layout.entry(directory / name) | {"rows": count} for name, count in counts.items()}
    description["files"] = entries | {schema.TOKENIZER_JSON: layout.entry(directory / schema.TOKENIZER_JSON)}
    files.write_atomic(directory / layout.DESCRIPTION, schema.seal_json(description))
    exported = Exported(
        str(directory),
        len(pool.problems),
        len(pool),
        pool.tokens,
        sum(entry["bytes"] for entry in description["files"].values()),
        profile.readouts,
        texts,
        counts.get("data/labels-00000-of-00001.parquet", 0),
    )
    files.write_atomic(directory / layout.CARD, card(description, exported).encode())
    return exported


def _provenance(pool: Pool) -> list[dict[str, Any]]:
    """What the shards say of where they come from, each once, without the name of the machine."""
    told = [{name: what for name, what in one.items() if name != "host"} for one in pool.provenance.values()]
    return list({str(one): one for one in told}.values())


def _kinds(pool: Pool) -> Mapping[str, Kind]:
    """The kind of every problem, as selection takes it: what is not recorded is told by the markers."""
    try:
        return settle_kinds(pool, where=str(pool.path), readout="all").kinds
    except InputError:
        raise InputError(
            f"{pool.path} does not say of which kind its answers are, nor do their markers, so nobody knows which windows matter: "
            "export it with --full"
        ) from None


def _rows(
    pool: Pool, kinds: Mapping[str, Kind | None], profile: Profile, description: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Every rollout of a pool, in the order of its problems, as its row of the data set."""
    named = layout.fields(description)
    own = [name for name in named.names if name not in layout.arrays(description["columns"])]
    runs = pool.runs([*own, "shard", "row"])
    names = zip(runs["problem_id"].to_pylist(), runs["rollout_index"].to_pylist(), strict=True)
    places = {name: at for at, name in enumerate(names)}
    for group in pool.groups():
        for index, rollout in zip(pool.rollout_indices(group.problem_id), group.rollouts, strict=True):
            assert isinstance(rollout, StoredRollout)
            (run,) = runs.slice(places[group.problem_id, index], 1).to_pylist()
            run["kind"] = kinds[group.problem_id]
            if run.get("steps") is not None and not description["texts"]:
                run["steps"] = [{"start": step["start"], "kept": None} for step in run["steps"]]
            positions = rollout.positions
            if positions is None:
                positions = profile.kept_rows(rollout.token_ids, pool.vocab, run["kind"], rollout.starts)
            ids, weights = rollout.rows(0, len(rollout)) if positions is None else rollout.rows_of(positions)
            found = {schema.EXPERT_IDS: ids, schema.EXPERT_WEIGHTS: weights, schema.TOKEN_INDEX: positions}
            shard, row = pool.shards[run.pop("shard")], run.pop("row")
            for name, (column, _) in layout.arrays(description["columns"]).items():
                array = found[column] if column in found else shard.read(column, row)
                run[name] = np.ravel(np.asarray(array))
            yield run


def _write_rollouts(
    directory: Path, rows: Iterator[dict[str, Any]], fields: pa.Schema, progress: Callable[[int], None]
) -> dict[str, int]:
    """Write rows as files of about FILE_BYTES, and return how many each has, by its path in the data set."""
    counts: list[int] = []
    writer: pq.ParquetWriter | None = None
    batches: list[pa.RecordBatch] = []
    held = 0

    def flush() -> None:
        nonlocal held
        if writer is not None and batches:
            writer.write_table(pa.Table.from_batches(batches, fields), row_group_size=len(batches))
        batches.clear()
        held = 0

    for done, row in enumerate(rows, 1):
        if writer is None:
            counts.append(0)
            writer = pq.ParquetWriter(directory / f"{len(counts):05}", fields, compression="zstd")
        batch = pa.RecordBatch.from_arrays([_array(row[one.name], one.type) for one in fields], schema=fields)
        batches.append(batch)
        counts[-1] += 1
        held += batch.nbytes
        if held >= _GROUP_BYTES:
            flush()
            if (directory / f"{len(counts):05}").stat().st_size >= FILE_BYTES:
                writer.close()
                writer = None
        progress(done)
    flush()
    if writer is not None:
        writer.close()
    names = [f"rollouts-{number:05}-of-{len(counts):05}.parquet" for number in range(len(counts))]
    for number, name in enumerate(names, 1):
        (directory / f"{number:05}").rename(directory / name)
        files.sync(directory / name)
    return {f"data/{name}": count for name, count in zip(names, counts, strict=True)}


def _array(value: Any, kind: pa.DataType) -> pa.Array:
    """One value as an array of a column; of numbers nothing is copied."""
    if isinstance(value, np.ndarray):
        return pa.ListArray.from_arrays(pa.array([0, len(value)], pa.int32()), pa.array(value, kind.value_type), kind)
    return pa.array([value], kind)
