"""Reads a pool. Opening it reads descriptions and row pointers only, and a window reads only the blocks it lies in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from radmoe.errors import InputError, PoolCorrupt, PoolIncomplete, PoolNotFound, RolloutError
from radmoe.pool import documents, files, journal, schema
from radmoe.pool.columns import check_size
from radmoe.pool.hold import holder, workplace
from radmoe.pool.limits import check_claim
from radmoe.pool.profile import joined, spans
from radmoe.pool.sense import check_shards
from radmoe.pool.shard import Shard, Stretch
from radmoe.pool.steps import StoredSteps
from radmoe.pool.tables import RUN_FIELDS, read_table
from radmoe.types import (
    KINDS,
    Kind,
    RolloutGroup,
    RouterShape,
    Rows,
    Step,
    check_ids,
    check_weights,
    html_table,
    places_of,
    rows_at,
)
from radmoe.vocab import Vocab

if TYPE_CHECKING:
    from radmoe.pool.completion import Dropped
    from radmoe.pool.fault import Fault, SetAside

_INDEX = ["problem_id", "problem_index", "kind", "rollout_index", "shard", "row", "tokens"]
_INDEX_ROWS = 4096
_EXPECTED_ROWS = 256  # of a rollout, at most, that are read together with those of others
_TOKEN_BYTES = 8  # its id and the logprob of it are in memory as long as the group is
_EXPERT_BYTES = 8  # a route vector has a float32 for each expert of each layer, and there is a copy


class StoredRollout:
    """A trace whose routing stays on disk. A column is read when it is first asked for, and a window by itself.

    What every rollout of a group will be asked for (token ids, logprobs, and the rows of a pool that keeps only
    some) is read at once for the whole stretch of neighbours on disk.
    """

    def __init__(
        self,
        stretch: Stretch,
        row: int,
        shape: RouterShape,
        load_steps: Callable[[], tuple[Step, ...]],
        load_starts: Callable[[], NDArray[np.int64]],
    ) -> None:
        token_ids = stretch.read(schema.TOKEN_IDS, row)
        if token_ids is None:
            raise PoolCorrupt(f"{stretch.shard.path} has no token ids: restore it from a copy")
        self.token_ids: NDArray[np.int32] = token_ids[:, 0]
        self._stretch, self._shard, self._row = stretch, stretch.shard, row
        self._shape, self._load_steps, self._load_starts = shape, load_steps, load_starts

    def __len__(self) -> int:
        return len(self.token_ids)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return self._load_steps()

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        return self._load_starts()

    @cached_property
    def expert_ids(self) -> NDArray[np.int16]:
        ids, _ = self.rows(0, len(self), weights=False)
        self._checked(lambda: check_ids(ids, self._shape.experts))
        return ids

    @cached_property
    def weights(self) -> NDArray[np.float16] | None:
        _, weights = self.rows(0, len(self))
        if weights is not None:
            self._checked(lambda: check_weights(weights))
        return weights

    @cached_property
    def sampled_logprobs(self) -> NDArray[np.float32] | None:
        column = self._stretch.read(schema.SAMPLED, self._row)
        return None if column is None else column[:, 0]

    @cached_property
    def topk_logprobs(self) -> NDArray[np.float32] | None:
        column = self._stretch.read(schema.TOPK, self._row)
        return None if column is None else column.astype(np.float32)

    @property
    def has_weights(self) -> bool:
        return schema.EXPERT_WEIGHTS.name in self._shard.columns

    @cached_property
    def positions(self) -> NDArray[np.int32] | None:
        """The positions of the tokens whose routing the pool keeps, ascending; None if it keeps all."""
        index = self._stretch.read(schema.TOKEN_INDEX, self._row)
        return None if index is None else index[:, 0]

    def expect(self, spans: Sequence[tuple[int, int]], *, weights: bool = True) -> None:
        if self.positions is None and 0 < sum(stop - start for start, stop in spans) <= _EXPECTED_ROWS:
            for start, stop in joined(spans):
                self._stretch.expect(self._row, start, min(stop, len(self)), weights=weights)

    def rows(self, start: int, stop: int, *, weights: bool = True) -> Rows:
        first, last = rows_at(self.positions, start, min(stop, len(self)), f"a rollout in {self._shard.path}")
        return self._rows(slice(first, last), weights)

    def rows_of(self, tokens: NDArray[np.integer[Any]], *, weights: bool = True) -> Rows:
        if self.positions is not None:  # few rows are kept, and all are read at once
            return self._rows(places_of(self.positions, tokens, f"a rollout in {self._shard.path}"), weights)
        parts = [self.rows(start, stop, weights=weights) for start, stop in spans(tokens) or [(0, 0)]]
        mass = [one for _, one in parts if one is not None]
        return np.concatenate([ids for ids, _ in parts]), np.concatenate(mass) if mass else None

    def _rows(self, at: Any, weights: bool) -> Rows:
        shape = (-1, self._shape.layers, self._shape.top_k)
        ids = self._routing(schema.EXPERT_IDS, at)
        mass = self._routing(schema.EXPERT_WEIGHTS, at) if weights else None
        assert ids is not None
        return ids.reshape(shape), None if mass is None else mass.reshape(shape)

    def _routing(self, column: schema.StoredColumn, at: Any) -> NDArray[Any] | None:
        if self.positions is None:
            return self._stretch.rows(column, self._row, at.start, at.stop)
        rows = self._stretch.read(column, self._row)
        return None if rows is None else rows[at]

    def _checked(self, check: Callable[[], None]) -> None:
        try:
            check()
        except RolloutError as e:
            raise PoolCorrupt(f"{self._shard.path}, run {self._row}: {e}") from None


class Pool:
    """A complete pool. Opening it reads no routing; the rollouts of a `group` read theirs when asked for it.

    The run record says what was captured: `model`, `task` (the data set), `style`, `sampling` and `profile`. `router` is
    the model's, `shape` the router as stored: a pool of a layer subset has that many layers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dropped: tuple[Dropped | SetAside, ...] = ()
        self.meta = meta = manifest(path)
        run = meta["run"]
        self.model: str = run["model"]
        self.task: str | None = run["task"]
        self.style: str | None = run["style"]
        self.sampling: dict[str, Any] = dict(run["sampling"] or {})
        self.shape, self.profile = documents.stored_router(meta)
        self.router = RouterShape(meta["layers"], meta["experts"], meta["top_k"])
        for name in schema.LISTED if not files.in_store(path) else ():
            check_size(path / name, meta["files"][name]["bytes"])
        shards = files.each(path, lambda entry: Shard(path / entry[0], entry[1]), meta["shards"].items())
        self.shards = {schema.shard_number(shard.path.name): shard for shard in shards}
        self.kinds: dict[str, Kind | None] = {}
        check_shards(self)
        self._disk_bytes = sum(shard.bytes for shard in self.shards.values())
        self._index = self._read_index()
        self._steps = StoredSteps(path / schema.RUNS, meta["steps"])

    @classmethod
    def recover(cls, path: str | Path) -> Pool:
        """Complete a pool whose writers were killed, and open it. Raises PoolBusy if a process still writes to it.

        A rollout that is there twice is kept once: the older one. A record of a journal that is damaged, or holds no rollout,
        is set aside in a file of its own. `dropped` of the pool says what was left out.
        """
        from radmoe.pool.completion import recover

        dropped = recover(files.place(path))
        pool = cls(files.place(path))
        pool.dropped = dropped
        return pool

    def verify(self, *, progress: Callable[[int], None] | None = None) -> list[Fault]:
        """Every fault of the pool. An empty list means that all bytes and values are as written.

        `progress` is called after each column with the number of bytes in it.
        """
        from radmoe.pool.verify import verify

        return verify(self, progress=progress)

    def delete(self, problem_ids: Collection[str]) -> Pool:
        """Delete problems with all that the pool holds of them, and open what is left.

        The shards that hold them are written anew, which needs room for the largest one without compression. A kill leaves a pool
        that recovery, or the next writer, finishes. Raises PoolBusy if a process writes to the pool.
        """
        from radmoe.pool.completion import recover
        from radmoe.pool.verify import verify

        for problem_id in problem_ids:
            self.check_problem(problem_id)
        if files.in_store(self.path):
            raise InputError(
                f"{self.path} is in a store, where nothing is deleted from a pool: copy it to a disk first"
            )
        stay = Counter(run[1] for problem, runs in self._index.items() if problem not in problem_ids for run in runs)
        changed = [number for number, shard in self.shards.items() if stay[number] < shard.meta["runs"]]
        if faults := verify(self, shards=changed):
            raise PoolCorrupt(
                f"{self.path} is damaged, and new shards would hide it: {faults[0]}; restore it from a copy"
            )
        recover(self.path, problem_ids)
        return Pool(self.path)

    @property
    def provenance(self) -> dict[str, dict[str, Any]]:
        """Where the rollouts of each shard come from: versions, host, engine."""
        return {shard.path.name: shard.meta["provenance"] for shard in self.shards.values()}

    @cached_property
    def vocab(self) -> Vocab:
        return documents.read_vocab(self.path)

    @property
    def problems(self) -> list[str]:
        """Problem ids in the order in which they were asked, or, where that was not recorded, first added."""
        return list(self._index)

    @property
    def has_weights(self) -> bool:
        return all(schema.EXPERT_WEIGHTS.name in shard.columns for shard in self.shards.values())

    @property
    def has_logprobs(self) -> bool:
        """Whether every shard keeps log-probabilities."""
        return all(schema.SAMPLED.name in shard.columns for shard in self.shards.values())

    @property
    def tokens(self) -> int:
        """The number of generated tokens in the pool."""
        return sum(tokens for runs in self._index.values() for *_, tokens in runs)

    def routing_bytes(self) -> tuple[int, int, int]:
        """Three sizes: the routing of all tokens and layers, the part that the profile keeps, and that part on disk."""
        captured_bytes = kept_bytes = stored_bytes = 0
        for shard in self.shards.values():
            captured_bytes += int(shard.meta["captured_bytes"])
            for column in schema.ROUTING:
                if (entry := shard.meta["columns"].get(column.name)) is not None:
                    kept_bytes += entry["rows"] * entry["per_row"] * column.dtype.itemsize
                    stored_bytes += entry["bytes"]
        return captured_bytes, kept_bytes, stored_bytes

    def __len__(self) -> int:
        """The number of rollouts in the pool."""
        return int(self.meta["runs"])

    def check_problem(self, problem_id: str) -> None:
        """Refuse a problem that is not in the pool."""
        if problem_id not in self._index:
            some = ", ".join(repr(p) for p in self.problems[:5])
            raise InputError(f"{self.path} has no problem {problem_id!r}; it has {len(self._index)}, such as {some}")

    def group(self, problem_id: str, *, first: int | None = None) -> RolloutGroup:
        """The rollouts of one problem, or the first of them, sorted by rollout index."""
        self.check_problem(problem_id)
        shape, indices = self.shape, self.rollout_indices(problem_id)[:first]
        places = ((part, row) for part in self._stretches(problem_id) for row in range(part.first, part.stop))
        rollouts = [
            StoredRollout(
                stretch,
                row,
                shape,
                partial(self._steps.steps, problem_id, index),
                partial(self._steps.starts, problem_id, index),
            )
            for (stretch, row), index in zip(places, indices, strict=first is None)
        ]
        return RolloutGroup(problem_id, rollouts, shape, self.vocab, self.kinds[problem_id], tuple(indices))

    def rollout_indices(self, problem_id: str) -> list[int]:
        """The rollout index of each member of `group(problem_id)`, in its order."""
        return [index for index, *_ in self._index[problem_id]]

    def texts(self, problem_id: str) -> list[str]:
        """The text of each member of `group(problem_id)`. Selection does not read it. Where the pool keeps no text,
        it is decoded from the tokens."""
        rows = self.runs(["rollout_index", "text"], where={"problem_id": problem_id}).to_pydict()
        kept = dict(zip(rows["rollout_index"], rows["text"], strict=True))
        members = zip(self.rollout_indices(problem_id), self.group(problem_id).rollouts, strict=True)
        decode = self.vocab.decode_bytes
        return [
            decode(rollout.token_ids).decode("utf-8", "replace") if kept.get(index) is None else kept[index]
            for index, rollout in members
        ]

    def groups(self) -> Iterator[RolloutGroup]:
        """Every problem's rollouts, one problem at a time."""
        for problem_id in self._index:
            yield self.group(problem_id)

    def to_pandas(self) -> Any:
        """The rollouts as a pandas DataFrame, one row each: problem, kind, index, lengths, how it ended, text. No routing is read."""
        try:
            import_module("pandas")
        except ImportError:
            raise InputError("to_pandas needs pandas, which is not installed: pip install pandas") from None
        return self.runs().to_pandas()

    def __repr__(self) -> str:
        return (
            f"Pool({str(self.path)!r}: {len(self.problems)} problems, {len(self)} rollouts, {self.model} {self.shape})"
        )

    def _repr_html_(self) -> str:
        rows = [(problem, self.kinds[problem] or "", len(self.rollout_indices(problem))) for problem in self.problems]
        return html_table(repr(self), ("problem", "kind", "rollouts"), rows)

    def runs(self, columns: list[str] | None = None, where: Mapping[str, Any] | None = None) -> pa.Table:
        """The table in runs.parquet, or some columns of it, and only the rows that have the values in `where`."""
        return read_table(self.path / schema.RUNS, RUN_FIELDS, columns=columns, where=where)

    def _stretches(self, problem_id: str) -> Iterator[Stretch]:
        """The rollouts of a problem in their order. Those that lie next to each other on disk are one stretch."""
        runs = self._index[problem_id]
        first = 0
        while first < len(runs):
            _, number, row, _ = runs[first]
            last = first + 1
            while last < len(runs) and runs[last][1:3] == (number, row + last - first):
                last += 1
            yield Stretch(self.shards[number], row, last - first)
            first = last

    def _read_index(self) -> dict[str, list[tuple[int, int, int, int]]]:
        """For each problem, in the order of `problems`, its sorted list of (rollout index, shard, row, tokens).

        Sets `kinds` on the way.
        """
        index: dict[str, list[tuple[int, int, int, int]]] = {}
        places: dict[str, int] = {}
        kinds: dict[str, Kind] = {}
        batches = self.runs(_INDEX).to_batches(max_chunksize=_INDEX_ROWS)  # few rows at a time are Python's objects
        rows = (row for batch in batches for row in zip(*(part.to_pylist() for part in batch.columns), strict=True))
        for problem, place, kind, rollout, shard, row, tokens in rows:
            if problem is None or rollout is None or rollout < 0:
                raise PoolCorrupt(f"{self.path / schema.RUNS} has a run without problem or rollout index: restore it")
            if shard not in self.shards or row is None or not 0 <= row < self.shards[shard].meta["runs"]:
                raise PoolCorrupt(
                    f"{self.path / schema.RUNS} names run {row} of shard {shard}, which is not there: restore it"
                )
            pointer = self.shards[shard].pointer(schema.TOKEN_IDS)
            if tokens is None or tokens < 1 or int(pointer[row + 1] - pointer[row]) != tokens:
                raise PoolCorrupt(
                    f"{self.path / schema.RUNS} gives run {row} of shard {shard} {tokens} tokens, "
                    f"its row pointer {int(pointer[row + 1] - pointer[row])}: restore it from a copy"
                )
            index.setdefault(problem, []).append((rollout, shard, row, tokens))
            if place is not None:
                places.setdefault(problem, place)
            if kind is not None and kind not in KINDS:
                raise PoolCorrupt(
                    f"{self.path / schema.RUNS} has a run of kind {kind!r}, the kinds are {', '.join(KINDS)}"
                )
            if kind is not None:
                kinds.setdefault(problem, kind)
        if sum(len(runs) for runs in index.values()) != self.meta["runs"]:
            raise PoolCorrupt(
                f"{self.path / schema.RUNS} does not list {self.meta['runs']} runs: restore it from a copy"
            )
        for runs in index.values():
            runs.sort()
            self._check_group(runs)
        ordered = sorted(index, key=lambda problem: (problem not in places, places.get(problem)))
        self.kinds = {problem: kinds.get(problem) for problem in ordered}
        return {problem: index[problem] for problem in ordered}

    def _check_group(self, runs: list[tuple[int, int, int, int]]) -> None:
        """Refuse a problem whose tokens and route vectors would take more memory than the limit."""
        tokens = sum(tokens for *_, tokens in runs)
        check_claim(
            self.path,
            f"{len(runs):,} rollouts of {tokens:,} tokens for a problem, and a router of {self.shape}",
            _TOKEN_BYTES * tokens + _EXPERT_BYTES * len(runs) * self.shape.layers * self.shape.experts,
            self._disk_bytes,
        )


def open_pool(path: str | Path) -> Pool:
    """Open a complete pool."""
    return Pool(files.place(path))


def manifest(path: Path) -> dict[str, Any]:
    """The content of pool.json of a complete pool, without opening the pool.

    Raises PoolNotFound where there is no pool, and PoolIncomplete where it is not complete.
    """
    if not files.in_store(path):
        if not path.is_dir():
            raise PoolNotFound(f"there is no pool at {path}: give the directory that holds {schema.POOL_JSON}")
        files.check_tree(path)
    if files.exists(path / schema.POOL_JSON):
        return documents.read_pool(path / schema.POOL_JSON)
    if not files.exists(path / schema.OPEN_JSON):
        raise PoolNotFound(f"{path} is not a pool: it has no {schema.POOL_JSON}")
    writer = holder(path)
    state = f"it is being written by {writer}" if writer else f"finish it with: radmoe verify --recover {path}"
    raise PoolIncomplete(f"{path} is incomplete: {safe_rollouts(path)} rollouts are safe in it; {state}")


def safe_rollouts(path: Path) -> int:
    """How many rollouts of a pool that is not complete are safe on disk, counted there."""
    safe = 0
    for directory, names in schema.shard_files(path).items():
        if schema.SHARD_META in names:
            safe += int(documents.read_shard(directory / schema.SHARD_META)["runs"])
        elif schema.JOURNAL in names and (local := workplace(directory)) is not None:
            safe += journal.count(local / schema.JOURNAL)
    return safe
