"""Checks the content of a pool for contradictions that checksums do not reveal, as in a forged pool.

`check_shards` holds for every pool that opens; the rest is part of `Pool.verify`, because it reads whole tables.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from radmoe.errors import InputError, PoolCorrupt, PoolError, RolloutError, VocabError
from radmoe.pool import documents, files, schema
from radmoe.pool.fault import Fault, Run
from radmoe.pool.limits import check_json
from radmoe.pool.schema import (
    COLUMNS,
    EXPERT_IDS,
    EXPERT_WEIGHTS,
    PROMPT_IDS,
    PROMPT_WEIGHTS,
    TOKEN_IDS,
    TOKEN_INDEX,
    TOPK,
    StoredColumn,
)
from radmoe.pool.steps import stored_steps
from radmoe.pool.tables import LABEL_FIELDS, read_table
from radmoe.types import RouterShape, check_ids, check_kind, check_weights
from radmoe.vocab import Vocab

if TYPE_CHECKING:
    from radmoe.pool.journal import Record
    from radmoe.pool.profile import Profile
    from radmoe.pool.reader import Pool

_ROUTED = (EXPERT_IDS, EXPERT_WEIGHTS, PROMPT_IDS, PROMPT_WEIGHTS)


def check_shards(pool: Pool) -> None:
    """Refuse a pool whose shards disagree with pool.json about the router, or about the columns and their shapes."""
    if not pool.shards:
        return
    where = pool.path / schema.POOL_JSON
    shapes: dict[str, list[int]] = pool.meta["columns"]
    routed = [pool.shape.layers, pool.shape.top_k]
    for column in COLUMNS:
        shape = shapes.get(column.name)
        if column in _ROUTED and shape not in (None, routed):
            raise PoolCorrupt(f"{where} gives {column.name} the shape {shape}, the router has {routed}: restore it")
    wanted = {EXPERT_IDS.name, TOKEN_IDS.name} | (set() if pool.profile.readouts is None else {TOKEN_INDEX.name})
    if not wanted <= shapes.keys() or (TOKEN_INDEX.name in shapes) != (TOKEN_INDEX.name in wanted):
        raise PoolCorrupt(f"{where} lists the columns {', '.join(sorted(shapes))}, its profile needs {sorted(wanted)}")
    for shard in pool.shards.values():
        meta = shard.meta
        router = (meta["layers"], meta["experts"], meta["top_k"])
        if router != (pool.shape.layers, pool.shape.experts, pool.shape.top_k):
            raise PoolCorrupt(
                f"{shard.path} is of router {router}, pool.json says {pool.shape}: restore it from a copy"
            )
        if meta["runs"] and meta["columns"].keys() != shapes.keys():
            lost = ", ".join(sorted(meta["columns"].keys() ^ shapes.keys()))
            raise PoolCorrupt(
                f"{shard.path} and pool.json do not have the same columns ({lost}): restore it from a copy"
            )
        for name, reader in shard.columns.items():
            if reader.per_row != math.prod(shapes[name]):
                raise PoolCorrupt(
                    f"{reader.path} has {reader.per_row} items in a row, pool.json says {shapes[name]}: restore it"
                )


class Contents(NamedTuple):
    """What the rollouts of a pool have in common.

    `columns` are those of the pool; None means that the pool has not decided on them, which it does with the first rollout.
    `words` is the number of tokens of its vocabulary.
    """

    columns: dict[str, list[int]] | None
    shape: RouterShape
    profile: Profile
    words: int


def check_rollout(pool: Contents, record: Record) -> None:
    """Refuse a rollout, with a RolloutError, if its arrays contradict the pool, each other or the router.

    A writer asks before it takes a rollout in, and recovery before it seals one: what goes in comes out.
    """
    columns, shape, profile, words = pool
    meta, arrays = record
    shapes = {name: list(array.shape[1:]) for name, array in arrays.items()}
    if columns is None or shapes != columns:
        raise RolloutError(f"it has the columns {shapes}, the pool has {columns}")
    if meta["kind"] is not None:
        check_kind(meta["kind"])
    stored_steps(meta["steps"], meta["given"], meta["tokens"])
    tokens = arrays.get(TOKEN_IDS.name)
    positions = arrays.get(TOKEN_INDEX.name)
    if tokens is None or EXPERT_IDS.name not in arrays or (positions is None) != (profile.readouts is None):
        raise RolloutError(f"it has not the columns that its pool's profile needs: {sorted(shapes)}")
    counts = {
        schema.TOK_PTR: meta["tokens"],
        schema.MOE_PTR: meta["tokens"] if positions is None else len(positions),
        schema.PROMPT_PTR: len(arrays.get(PROMPT_IDS.name, ())),
    }
    for column in COLUMNS:
        if (array := arrays.get(column.name)) is None:
            continue
        if array.ndim > (3 if column in _ROUTED else 2 if column is TOPK else 1) or 0 in array.shape[1:]:
            raise RolloutError(f"it has {column.name} of shape {array.shape}")
        if len(array) != counts[column.pointer]:
            raise RolloutError(f"it has {len(array)} rows of {column.name}, it must have {counts[column.pointer]}")
        if column in _ROUTED and array.shape[1:] != (shape.layers, shape.top_k):
            raise RolloutError(f"it has {column.name} of shape {array.shape}, the router is {shape}")
        check_values(column, array, shape, words)
    check_words(np.array([token for given in meta["given"] or () for token in given], np.int64), words)
    if positions is not None and not ascending(positions, meta["tokens"]):
        raise RolloutError(f"its rows do not stand for ascending tokens of {meta['tokens']}")


def check_values(column: StoredColumn, array: NDArray[Any], shape: RouterShape, words: int) -> None:
    """Raise a RolloutError for values that cannot be: no expert of the router, no token of the vocabulary, or NaN."""
    if column in (EXPERT_IDS, PROMPT_IDS):
        check_ids(array, shape.experts, column.name)
    elif column in (EXPERT_WEIGHTS, PROMPT_WEIGHTS):
        check_weights(array, column.name)
    elif column is TOKEN_IDS:
        check_words(array, words)
    elif array.dtype.kind == "f" and np.isnan(array).any():
        raise RolloutError(f"it has NaN in {column.name}")


def check_words(tokens: NDArray[Any], words: int) -> None:
    """Refuse token ids outside the vocabulary."""
    if tokens.size and (tokens.min() < 0 or tokens.max() >= words):
        raise RolloutError(
            f"it has token ids from {tokens.min()} to {tokens.max()}, and the vocabulary ends at {words - 1}: wrong tokenizer?"
        )


def ascending(positions: NDArray[Any], tokens: int) -> bool:
    """Whether positions rise and all of them are among so many tokens."""
    if not len(positions):
        return True
    return bool(positions[0] >= 0 and positions[-1] < tokens and (np.diff(positions) > 0).all())


def check_places(directory: Path, table: pa.Table) -> None:
    """Refuse the run table of a sealed shard that names other places than rows of this shard, each at most once."""
    number, runs = schema.shard_number(directory.name), documents.read_shard(directory / schema.SHARD_META)["runs"]
    rows = table["row"].to_pylist()
    sound = table["shard"].to_pylist() == [number] * len(table) and len(set(rows)) == len(rows)
    sound = sound and all(row is not None and 0 <= row < runs for row in rows)
    sound = sound and table["problem_id"].null_count == 0
    sound = sound and all(index is None or index >= 0 for index in table["rollout_index"].to_pylist())
    if not sound:
        raise PoolCorrupt(f"{directory} does not hold the runs that are listed of it: restore it from a copy")


def check_tables(pool: Pool) -> Iterator[Fault]:
    """Faults in what the run table, the labels and the tokenizer say. Reads all of them, but no shard."""
    yield from _check_runs(pool)
    yield from _check_labels(pool)
    yield from _check_vocab(pool)


def _check_runs(pool: Pool) -> Iterator[Fault]:
    columns = ["run_id", "problem_id", "problem_index", "kind", "rollout_index", "shard", "row", "tokens"]
    rows = pool.runs([*columns, "steps", "given"]).to_pylist()
    runs: list[Run] = [(row["problem_id"], row["rollout_index"]) for row in rows]
    if [row["run_id"] for row in rows] != list(range(len(rows))):
        yield Fault(schema.RUNS, "run_id does not count up from 0")
    if repeated := [run for run, count in Counter(runs).items() if count > 1]:
        yield Fault(schema.RUNS, "rollouts are listed more than once", tuple(repeated))
    places = Counter((row["shard"], row["row"]) for row in rows)
    if shared := [run for run, row in zip(runs, rows, strict=True) if places[row["shard"], row["row"]] > 1]:
        yield Fault(schema.RUNS, "several runs point at one row of a shard", tuple(shared))
    for name in ("kind", "problem_index"):
        values: dict[str, set[Any]] = {}
        for row in rows:
            if row[name] is not None:
                values.setdefault(row["problem_id"], set()).add(row[name])
        if several := [problem for problem, choices in values.items() if len(choices) > 1]:
            yield Fault(schema.RUNS, f"problem {several[0]!r} has more than one {name}: {sorted(values[several[0]])}")
    for name, number in (("problems", len({problem for problem, _ in runs})),):
        if pool.meta.get(name) != number:
            yield Fault(schema.POOL_JSON, f"says {pool.meta.get(name)} {name}, {schema.RUNS} has {number}")
    if bool(pool.meta["steps"]) != any(row["steps"] is not None for row in rows):
        yield Fault(schema.POOL_JSON, f"says steps is {pool.meta['steps']}, {schema.RUNS} says otherwise")
    yield from _check_each(pool, rows)


def _check_each(pool: Pool, rows: list[dict[str, Any]]) -> Iterator[Fault]:
    """Faults of single runs: kinds that are unknown, and steps that no trajectory has."""
    for row in rows:
        try:
            if row["kind"] is not None:
                check_kind(row["kind"])
            steps = stored_steps(row["steps"], row["given"], row["tokens"])
            highest = max((token for step in steps for token in step.given), default=0)
            if highest >= len(pool.vocab):
                raise RolloutError(f"a step was given token {highest}, the vocabulary ends at {len(pool.vocab) - 1}")
        except (InputError, PoolError) as e:
            yield Fault(schema.RUNS, str(e), ((row["problem_id"], row["rollout_index"]),))


def _check_labels(pool: Pool) -> Iterator[Fault]:
    path = pool.path / schema.LABELS
    try:
        if not files.exists(path):
            return
        rows = read_table(path, LABEL_FIELDS, restore="grade the pool again").to_pylist()
    except PoolError as e:
        yield Fault(schema.LABELS, str(e))
        return
    names = [(row["problem_id"], row["rollout_index"]) for row in rows]
    there = {(problem, index) for problem in pool.problems for index in pool.rollout_indices(problem)}
    if strange := [name for name in names if name not in there]:
        yield Fault(schema.LABELS, f"{len(strange)} labels are of rollouts that are not in the pool", tuple(strange))
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        yield Fault(schema.LABELS, "rollouts have more than one label", tuple(repeated))
    if unsaid := [name for name, row in zip(names, rows, strict=True) if row["correct"] is None]:
        yield Fault(schema.LABELS, "labels do not say whether the rollout is right", tuple(unsaid))


def _check_vocab(pool: Pool) -> Iterator[Fault]:
    try:
        fingerprint = pool.vocab.fingerprint
    except PoolError as e:
        yield Fault(schema.VOCAB_TABLE, str(e))
        return
    if fingerprint != pool.meta.get("vocab"):
        yield Fault(schema.VOCAB_TABLE, "is another vocabulary than pool.json names")
    try:
        check_json(pool.path / schema.TOKENIZER_JSON, content := pool.vocab.json)
        if Vocab.from_json(content, where=schema.TOKENIZER_JSON).fingerprint != fingerprint:
            yield Fault(schema.TOKENIZER_JSON, f"does not spell its tokens as {schema.VOCAB_TABLE} does")
    except (VocabError, PoolError) as e:
        yield Fault(schema.TOKENIZER_JSON, str(e))
