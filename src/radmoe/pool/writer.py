"""Writing a pool, from one process or several, through kills and full disks."""

from __future__ import annotations

import fcntl
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import InputError, PoolError, PoolMismatch, PoolNotFound, RolloutError
from radmoe.pool import journal, schema
from radmoe.pool.profile import Profile
from radmoe.pool.schema import disk_errors
from radmoe.pool.shard import RUN_FIELDS, seal, write_runs
from radmoe.types import Rollout, RouterShape, check_ids, check_routing, check_weights
from radmoe.vocab import Vocab

SHARD_BYTES = 2 << 30
_LOWEST_LOGPROB = float(np.finfo(np.float16).min)


class PoolWriter:
    """Appends rollouts to a pool directory, new or existing.

    A rollout is safe from a kill of this process once `add` has returned, and from power loss after
    `flush`. While any writer is open the pool has no pool.json and says that it is incomplete; `close`
    seals what this writer added and, when no other writer is left, completes the pool. Several processes
    may each open a writer on the same path: each fills shards of its own. What a killed writer left
    behind is recovered by the next writer, or by `recover`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        shape: RouterShape,
        vocab: Vocab,
        model: str,
        sampling: dict[str, Any] | None = None,
        profile: Profile | None = None,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self.path = Path(path)
        self.shape, self.vocab, self.profile = shape, vocab, profile or Profile()
        self._stored = self.profile.stored_shape(shape)
        self._shard_bytes = shard_bytes
        self._journal: journal.Journal | None = None
        self._columns: dict[str, list[int]] | None = None
        self._closed = False
        self._header = {
            "schema_version": schema.SCHEMA_VERSION,
            "model": str(model),
            "layers": shape.layers,
            "experts": shape.experts,
            "top_k": shape.top_k,
            "vocab": vocab.fingerprint,
            "sampling": sampling,
            "profile": self.profile.to_json(),
        }
        try:
            json.dumps(sampling)
        except (TypeError, ValueError) as e:
            raise InputError(f"sampling must be JSON-able, got {sampling!r}: {e}") from None
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with _locked(self.path):
                self._columns = _join(self.path, self._header, vocab)
                seal_orphans(self.path)
                sealed = [d for d in schema.shard_dirs(self.path) if not (d / schema.JOURNAL).exists()]
                known = [_shard_runs(self.path, d, ["problem_id", "rollout_index"]) for d in sealed]
        self._explicit = {pair for table in known for pair in zip(*table.to_pydict().values(), strict=True)}
        self._done = Counter(problem for table in known for problem in table["problem_id"].to_pylist())

    def done(self, problem_id: str) -> int:
        """How many rollouts of a problem this writer knows to be in the pool."""
        return self._done[str(problem_id)]

    def has(self, problem_id: str, rollout_index: int) -> bool:
        """Whether this writer knows this rollout, named by its index, to be in the pool."""
        return (str(problem_id), rollout_index) in self._explicit

    def add(
        self,
        problem_id: str,
        rollout: Rollout,
        *,
        rollout_index: int | None = None,
        text: str | None = None,
        prompt: str | None = None,
        finish_reason: str | None = None,
        extra: dict[str, Any] | None = None,
        prompt_routing: tuple[ArrayLike, ArrayLike | None] | None = None,
    ) -> None:
        """Append one rollout. Without `rollout_index` it gets the problem's next free one on closing.

        `prompt_routing` is (expert_ids, weights) of the prompt's own positions, [P, L, K] each.
        """
        if self._closed:
            raise PoolError(f"the writer of {self.path} is closed: open a new one to append")
        problem_id = str(problem_id)
        where = f"rollout of problem {problem_id!r}"
        check_routing(rollout, self.shape, where)
        if int(rollout.token_ids.max()) >= len(self.vocab):
            raise RolloutError(
                f"{where} has token id {int(rollout.token_ids.max())}, the vocabulary ends at {len(self.vocab) - 1}: wrong tokenizer?"
            )
        if rollout_index is not None:
            rollout_index = int(rollout_index)
            if rollout_index < 0:
                raise InputError(f"rollout_index must not be negative, got {rollout_index}")
            if (problem_id, rollout_index) in self._explicit:
                raise PoolMismatch(f"{self.path} already holds rollout {rollout_index} of problem {problem_id!r}")
        arrays = self._arrays(rollout, prompt_routing)
        columns = {name: list(a.shape[1:]) for name, a in arrays.items()}
        if self._columns is not None and columns != self._columns:
            raise PoolMismatch(
                f"{where} brings columns {_describe(columns)}, this pool has {_describe(self._columns)}: they must agree"
            )
        elements = len(rollout) * self.shape.layers * self.shape.top_k
        meta = {
            "problem_id": problem_id,
            "rollout_index": rollout_index,
            "tokens": len(rollout),
            "finish_reason": finish_reason,
            "text": text,
            "prompt": prompt,
            "extra": None if extra is None else json.dumps(extra),
            "captured_bytes": elements * (4 if rollout.has_weights else 2),
        }
        with disk_errors(self.path):
            if self._journal is not None and self._journal.size >= self._shard_bytes:
                self._seal()
            if self._journal is None:
                self._journal = self._new_shard(columns)
            self._journal.append(meta, arrays)
        self._done[problem_id] += 1
        if rollout_index is not None:
            self._explicit.add((problem_id, rollout_index))

    def flush(self) -> None:
        """Make everything added so far safe from power loss."""
        if self._journal is not None:
            with disk_errors(self.path):
                schema.sync(self._journal.path)

    def close(self) -> None:
        """Seal what was added; the last writer to close completes the pool."""
        if self._closed:
            return
        with disk_errors(self.path):
            self._seal()
            self._closed = True
            with _locked(self.path):
                seal_orphans(self.path)
                complete(self.path)

    def abandon(self) -> None:
        """Stop without completing: the pool stays incomplete, what was added stays recoverable."""
        self._closed = True
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _arrays(self, rollout: Rollout, prompt: tuple[ArrayLike, ArrayLike | None] | None) -> dict[str, NDArray[Any]]:
        rows = self.profile.kept_rows(rollout.token_ids, self.vocab, kind)
        every = slice(None) if rows is None else rows
        ids, weights = self.profile.routing(
            rollout.expert_ids[every], None if rollout.weights is None else rollout.weights[every]
        )
        arrays: dict[schema.Column, NDArray[Any]] = {schema.EXPERT_IDS: ids, schema.TOKEN_IDS: rollout.token_ids}
        if weights is not None:
            arrays[schema.EXPERT_WEIGHTS] = weights
        if rows is not None:
            arrays[schema.TOKEN_INDEX] = rows
        if rollout.sampled_logprobs is not None:
            arrays[schema.SAMPLED] = rollout.sampled_logprobs
        if rollout.topk_logprobs is not None:
            arrays[schema.TOPK] = np.maximum(rollout.topk_logprobs, _LOWEST_LOGPROB)
        if prompt is None and self._columns is not None and schema.PROMPT_IDS.name in self._columns:
            none = np.empty((0, self.shape.layers, self.shape.top_k), np.int16)  # kept with another rollout
            prompt = none, none.astype(np.float16) if schema.PROMPT_WEIGHTS.name in self._columns else None
        if prompt is not None:
            prompt_ids, prompt_weights = self.profile.routing(*self._checked_prompt(*prompt))
            arrays[schema.PROMPT_IDS] = prompt_ids
            if prompt_weights is not None:
                arrays[schema.PROMPT_WEIGHTS] = prompt_weights
        return {column.name: a.astype(column.dtype, copy=False) for column, a in arrays.items()}

    def _checked_prompt(
        self, ids: ArrayLike, weights: ArrayLike | None
    ) -> tuple[NDArray[np.int16], NDArray[np.float16] | None]:
        experts = np.asarray(ids)
        if experts.ndim != 3 or experts.shape[1:] != (self.shape.layers, self.shape.top_k):
            raise RolloutError(f"prompt routing has shape {experts.shape}, the router is {self.shape}")
        check_ids(experts, self.shape.experts, "prompt expert_ids")
        if weights is None:
            return experts, None
        mass = np.asarray(weights)
        if mass.shape != experts.shape:
            raise RolloutError(f"prompt weights have shape {mass.shape}, ids {experts.shape}: they must agree")
        check_weights(mass, "prompt weights")
        return experts, mass

    def _new_shard(self, columns: dict[str, list[int]]) -> journal.Journal:
        """Make the next shard; the first one of a pool settles which columns all of them have."""
        with _locked(self.path):
            settled = _join(self.path, self._header, self.vocab)  # again: another writer may have completed the pool
            self._columns = settled or columns
            if columns != self._columns:
                raise PoolMismatch(
                    f"{self.path} has columns {_describe(self._columns)}, this rollout {_describe(columns)}: they must agree"
                )
            if settled is None:
                opened = self._header | {"columns": columns}
                schema.write_atomic(self.path / schema.OPEN_JSON, schema.seal_json(opened))
            taken = [int(d.name.rpartition("_")[2]) for d in schema.shard_dirs(self.path)]
            directory = self.path / schema.shard_name(max(taken, default=-1) + 1)
            directory.mkdir()
            return journal.Journal(directory / schema.JOURNAL)

    def _seal(self) -> None:
        if self._journal is not None:
            seal(self._journal.path.parent, self._stored, self.profile)
            self._journal.close()
            self._journal = None


def recover(path: str | Path) -> int:
    """Complete a pool whose writers were killed; returns its rollouts. Live writers are an error."""
    path = Path(path)
    if not (path / schema.OPEN_JSON).exists() and not (path / schema.POOL_JSON).exists():
        raise PoolNotFound(f"{path} is not a pool: it has neither {schema.POOL_JSON} nor {schema.OPEN_JSON}")
    with disk_errors(path), _locked(path):
        if live := seal_orphans(path):
            raise PoolError(f"{path} still has {live} live writer(s): let them close, or stop them, then recover")
        return complete(path)


def seal_orphans(path: Path) -> int:
    """Seal every journal whose writer is gone; returns how many live ones remain. Needs the pool's lock."""
    live = 0
    for directory in schema.shard_dirs(path):
        if not (directory / schema.JOURNAL).exists():
            if not (directory / schema.SHARD_META).exists():
                directory.rmdir()  # killed between making the directory and its journal
        elif journal.is_live(directory / schema.JOURNAL):
            live += 1
        else:
            header = schema.read_json(path / schema.OPEN_JSON)
            profile = Profile.from_json(header["profile"])
            shape = RouterShape(header["layers"], header["experts"], header["top_k"])
            seal(directory, profile.stored_shape(shape), profile)
    return live


def complete(path: Path) -> int:
    """Write runs.parquet and, last, pool.json, unless a shard is still filling. Needs the pool's lock."""
    if not (path / schema.OPEN_JSON).exists():
        return int(schema.read_json(path / schema.POOL_JSON)["runs"])  # another writer did
    directories = schema.shard_dirs(path)
    if any((d / schema.JOURNAL).exists() for d in directories):
        return 0
    table = pa.concat_tables([_shard_runs(path, d) for d in directories] or [RUN_FIELDS.empty_table()])
    problems = table["problem_id"].to_pylist()
    numbers = _number(problems, table["rollout_index"].to_pylist(), table["shard"].to_pylist(), path)
    for name, values in (("run_id", range(len(table))), ("rollout_index", numbers)):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.array(values, pa.int64()))
    schema.write_atomic(path / schema.RUNS, lambda p: write_runs(table, p))
    body = schema.read_json(path / schema.OPEN_JSON) | {
        "runs": len(table),
        "problems": len(set(problems)),
        "shards": {d.name: _entry(d / schema.SHARD_META) for d in directories},
        "files": {name: _entry(path / name) for name in (schema.RUNS, schema.TOKENIZER_JSON, schema.VOCAB_TABLE)},
    }
    schema.write_atomic(path / schema.POOL_JSON, schema.seal_json(body))
    (path / schema.OPEN_JSON).unlink()
    for directory in directories:
        (directory / schema.RUNS).unlink(missing_ok=True)
    return len(table)


def _join(path: Path, header: dict[str, Any], vocab: Vocab) -> dict[str, list[int]] | None:
    """Open a pool for writing: the header must agree with what is there; returns the columns it has."""
    finished, opened = path / schema.POOL_JSON, path / schema.OPEN_JSON
    current = opened if opened.exists() else finished if finished.exists() else None
    if current is None:
        if any(path.iterdir()) and [p.name for p in path.iterdir()] != [schema.LOCK]:
            raise PoolMismatch(f"{path} is not empty and not a pool: choose another directory")
        schema.write_atomic(path / schema.TOKENIZER_JSON, vocab.json)
        schema.write_atomic(path / schema.VOCAB_TABLE, vocab.to_table())
    else:
        there = schema.read_json(current)
        for key, value in header.items():
            if there[key] != value:
                raise PoolMismatch(
                    f"{path} was made with {key} = {there[key]!r}, this writer has {value!r}: use a new pool"
                )
        header = header | {key: there[key] for key in ("columns",) if key in there}
    if not opened.exists():
        schema.write_atomic(opened, schema.seal_json(header))
    finished.unlink(missing_ok=True)
    columns: dict[str, list[int]] | None = header.get("columns")
    return columns


def _shard_runs(path: Path, directory: Path, columns: list[str] | None = None) -> pa.Table:
    """Runs of a sealed shard: from its own file while the pool is open, else from the completed pool's."""
    own = directory / schema.RUNS
    if own.exists():
        return pq.read_table(own, columns=columns)
    number = int(directory.name.rpartition("_")[2])
    return pq.read_table(path / schema.RUNS, columns=columns, filters=[("shard", "=", number)])


def _number(problems: list[str], indices: list[int | None], shards: list[int], path: Path) -> list[int]:
    """Rollout indices, with the problem's next free one for every rollout added without."""
    taken: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for problem, index, shard in zip(problems, indices, shards, strict=True):
        if index is not None and index in taken[problem]:
            both = f"{schema.shard_name(taken[problem][index])} and {schema.shard_name(shard)}"
            raise PoolMismatch(f"{path}: {both} both hold rollout {index} of problem {problem!r}: delete one shard")
        if index is not None:
            taken[problem][index] = shard
    numbers = []
    for problem, index, shard in zip(problems, indices, shards, strict=True):
        if index is None:
            used = taken[problem]
            index = next(i for i in range(len(used) + 1) if i not in used)
            used[index] = shard
        numbers.append(index)
    return numbers


def _entry(path: Path) -> dict[str, Any]:
    entry = {"bytes": path.stat().st_size, "crc32": schema.crc32_file(path)}
    if path.name == schema.SHARD_META:
        entry["runs"] = schema.read_json(path)["runs"]
    return entry


def _describe(columns: dict[str, list[int]]) -> str:
    return ", ".join(f"{name}{shape}" for name, shape in sorted(columns.items()))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the pool's lock: opening, numbering shards and completing happen one process at a time."""
    with (path / schema.LOCK).open("ab") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield
