"""Reading a pool: opening touches descriptions and pointers only, a window only its own blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from radmoe.errors import InputError, PoolCorrupt, PoolIncomplete, PoolNotFound, RolloutError, VocabError
from radmoe.pool import journal, schema
from radmoe.pool.columns import check_size
from radmoe.pool.profile import Profile
from radmoe.pool.shard import Shard, Stretch
from radmoe.types import Rollout, RolloutGroup, RouterShape, Rows, check_ids, check_weights
from radmoe.vocab import Vocab

_INDEX = ["problem_id", "rollout_index", "shard", "row", "tokens"]


class StoredRollout(Rollout):
    """A rollout whose routing stays on disk: a column is read when first asked for, a window on its own.

    What every rollout of a group will be asked for (logprobs, and all that a window-only pool kept) is read with its
    neighbours on disk.
    """

    token_ids: NDArray[np.int32]
    _near: Stretch
    _shard: Shard
    _row: int
    _shape: RouterShape

    def __init__(self, near: Stretch, row: int, shape: RouterShape) -> None:
        token_ids = near.read(schema.TOKEN_IDS, row)
        if token_ids is None:
            raise PoolCorrupt(f"{near.shard.path} has no token ids: restore it from a copy")
        values = {"_near": near, "_shard": near.shard, "_row": row, "_shape": shape, "token_ids": token_ids[:, 0]}
        for name, value in values.items():
            object.__setattr__(self, name, value)

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
        column = self._shard.read(schema.SAMPLED, self._row)
        return None if column is None else column[:, 0]

    @cached_property
    def topk_logprobs(self) -> NDArray[np.float32] | None:
        column = self._near.read(schema.TOPK, self._row)
        return None if column is None else column.astype(np.float32)

    @property
    def has_weights(self) -> bool:
        return schema.EXPERT_WEIGHTS.name in self._shard.columns

    @cached_property
    def kept(self) -> NDArray[np.int32] | None:
        """Token positions whose routing a window-only pool kept; None when it kept all."""
        index = self._near.read(schema.TOKEN_INDEX, self._row)
        return None if index is None else index[:, 0]

    def rows(self, start: int, stop: int, *, weights: bool = True) -> Rows:
        stop = min(stop, len(self))
        first, last = start, stop
        if self.kept is not None:
            first, last = (int(i) for i in np.searchsorted(self.kept, (start, stop)))
            if last - first != stop - start:
                raise RolloutError(
                    f"{self._shard.path} kept the routing of {len(self.kept)} tokens of this rollout, not all of "
                    f"[{start}, {stop}): use a readout the pool was captured for (radmoe inspect lists them)"
                )
        shape = (-1, self._shape.layers, self._shape.top_k)
        ids = self._routing(schema.EXPERT_IDS, first, last)
        mass = self._routing(schema.EXPERT_WEIGHTS, first, last) if weights else None
        assert ids is not None
        return ids.reshape(shape), None if mass is None else mass.reshape(shape)

    def _routing(self, column: schema.Column, first: int, last: int) -> NDArray[Any] | None:
        if self.kept is None:
            return self._shard.read(column, self._row, first, last)
        rows = self._near.read(column, self._row)
        return None if rows is None else rows[first:last]

    def _checked(self, check: Callable[[], None]) -> None:
        try:
            check()
        except RolloutError as e:
            raise PoolCorrupt(f"{self._shard.path}, run {self._row}: {e}") from None


class Pool:
    """A complete pool. Opening reads no routing; `group` hands out rollouts that read themselves."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meta = meta = manifest(path)
        try:
            self.profile = Profile.from_json(meta["profile"])
            self.router = RouterShape(meta["layers"], meta["experts"], meta["top_k"])
            self.model, self.sampling = str(meta["model"]), meta["sampling"]
            for name, entry in meta["files"].items():
                check_size(path / name, entry["bytes"])
            self.shards = {
                int(name.rpartition("_")[2]): Shard(path / name, entry) for name, entry in meta["shards"].items()
            }
            self._index = self._read_index()
        except (KeyError, TypeError, AttributeError, InputError) as e:
            raise PoolCorrupt(
                f"{path / schema.POOL_JSON} lacks what it must say ({e!r}): restore it from a copy"
            ) from None

    @property
    def kind(self) -> str | None:
        """The kind of task the rollouts answer (math, choice, code or agent), if capture said so."""
        said = self.sampling.get("kind") if isinstance(self.sampling, dict) else None
        return said if isinstance(said, str) else None

    @property
    def shape(self) -> RouterShape:
        """The router as stored: a pool of a layer subset has that many layers."""
        return self.profile.stored_shape(self.router)

    @cached_property
    def vocab(self) -> Vocab:
        table = (self.path / schema.VOCAB_TABLE).read_bytes()
        try:
            return Vocab.from_table(table, (self.path / schema.TOKENIZER_JSON).read_bytes)
        except VocabError as e:
            raise PoolCorrupt(f"{self.path / schema.VOCAB_TABLE}: {e}") from None

    @property
    def problems(self) -> list[str]:
        """Problem ids in the order they were first added."""
        return list(self._index)

    @property
    def has_weights(self) -> bool:
        return all(schema.EXPERT_WEIGHTS.name in shard.columns for shard in self.shards.values())

    @property
    def tokens(self) -> int:
        return sum(int(shard.meta["tokens"]) for shard in self.shards.values())

    def routing_bytes(self) -> tuple[int, int, int]:
        """Bytes of routing of all tokens and layers, as the profile kept it, and as it lies on disk."""
        captured = kept = stored = 0
        for shard in self.shards.values():
            captured += int(shard.meta["captured_bytes"])
            for column in schema.ROUTING:
                if (entry := shard.meta["columns"].get(column.name)) is not None:
                    kept += entry["rows"] * entry["per_row"] * column.dtype.itemsize
                    stored += entry["bytes"]
        return captured, kept, stored

    def __len__(self) -> int:
        """Rollouts in the pool."""
        return int(self.meta["runs"])

    def group(self, problem_id: str) -> RolloutGroup:
        """The rollouts of one problem, by rollout index."""
        if problem_id not in self._index:
            some = ", ".join(repr(p) for p in self.problems[:5])
            raise InputError(f"{self.path} has no problem {problem_id!r}; it has {len(self._index)}, such as {some}")
        shape = self.shape
        rollouts = [
            StoredRollout(near, row, shape)
            for near in self._stretches(problem_id)
            for row in range(near.first, near.first + near.runs)
        ]
        return RolloutGroup(problem_id, rollouts, shape, self.vocab)

    def rollout_indices(self, problem_id: str) -> list[int]:
        """The rollout index of each member of `group(problem_id)`, in its order."""
        return [index for index, *_ in self._index[problem_id]]

    def texts(self, problem_id: str) -> list[str | None]:
        """The text of each member of `group(problem_id)`: for what comes after selection."""
        columns = ["rollout_index", "text"]
        rows = self.runs(columns, filters=[("problem_id", "=", problem_id)]).to_pydict()
        by_index = dict(zip(rows["rollout_index"], rows["text"], strict=True))
        return [by_index[index] for index in self.rollout_indices(problem_id)]

    def groups(self) -> Iterator[RolloutGroup]:
        """Every problem's rollouts, one problem at a time."""
        for problem_id in self._index:
            yield self.group(problem_id)

    def runs(self, columns: list[str] | None = None, filters: list[Any] | None = None) -> pa.Table:
        """runs.parquet, or some columns and rows of it."""
        try:
            return pq.read_table(
                self.path / schema.RUNS, columns=columns, filters=filters, page_checksum_verification=True
            )
        except (OSError, pa.ArrowException) as e:
            raise PoolCorrupt(f"{self.path / schema.RUNS} cannot be read ({e}): restore it from a copy") from None

    def _stretches(self, problem_id: str) -> Iterator[Stretch]:
        """A problem's rollouts in their order, neighbours on disk together."""
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
        """problem id -> [(rollout index, shard, row, tokens)], sorted."""
        index: dict[str, list[tuple[int, int, int, int]]] = {}
        columns = self.runs(_INDEX).to_pydict()
        for problem, rollout, shard, row, tokens in zip(*(columns[name] for name in _INDEX), strict=True):
            if shard not in self.shards or not 0 <= row < self.shards[shard].meta["runs"]:
                raise PoolCorrupt(
                    f"{self.path / schema.RUNS} names run {row} of shard {shard}, which is not there: restore it"
                )
            pointer = self.shards[shard].pointer(schema.TOKEN_IDS)
            if tokens < 1 or int(pointer[row + 1] - pointer[row]) != tokens:
                raise PoolCorrupt(
                    f"{self.path / schema.RUNS} gives run {row} of shard {shard} {tokens} tokens, "
                    f"its row pointer {int(pointer[row + 1] - pointer[row])}: restore it from a copy"
                )
            index.setdefault(problem, []).append((rollout, shard, row, tokens))
        if sum(len(runs) for runs in index.values()) != self.meta["runs"]:
            raise PoolCorrupt(
                f"{self.path / schema.RUNS} does not list {self.meta['runs']} runs: restore it from a copy"
            )
        for runs in index.values():
            runs.sort()
        return index


def open_pool(path: str | Path) -> Pool:
    """Open a complete pool."""
    return Pool(Path(path))


def manifest(path: Path) -> dict[str, Any]:
    """pool.json of a complete pool: what it is, without opening it."""
    if (path / schema.POOL_JSON).is_file():
        return schema.read_json(path / schema.POOL_JSON)
    if not path.is_dir():
        raise PoolNotFound(f"there is no pool at {path}: give the directory that holds {schema.POOL_JSON}")
    if not (path / schema.OPEN_JSON).exists():
        raise PoolNotFound(f"{path} is not a pool: it has no {schema.POOL_JSON}")
    safe = live = 0
    for directory in schema.shard_dirs(path):
        waiting = directory / schema.JOURNAL
        if waiting.exists():
            live += journal.is_live(waiting)
            safe += journal.count(waiting)
        elif (directory / schema.SHARD_META).exists():
            safe += schema.read_json(directory / schema.SHARD_META)["runs"]
    who = f"{live} writer(s) are still open" if live else f"finish it with: radmoe verify --recover {path}"
    raise PoolIncomplete(f"{path} is incomplete: {safe} rollouts are safe in it; {who}")
