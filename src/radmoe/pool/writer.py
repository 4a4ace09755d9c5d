"""Writes a pool, from one process or several workers, so that no kill or full disk loses what was added."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe import __version__
from radmoe.errors import PoolCorrupt, PoolError, PoolMismatch, RolloutError
from radmoe.pool import documents, files, journal, schema
from radmoe.pool.completion import complete, describe, join, locked, seal_orphans, shard_runs
from radmoe.pool.hold import hold
from radmoe.pool.profile import Profile
from radmoe.pool.schema import disk_errors
from radmoe.pool.sense import Contents, check_rollout
from radmoe.pool.shard import publish, remove_journal, seal
from radmoe.types import Kind, RouterShape, Rows, Trace, check_kind
from radmoe.vocab import Vocab

SHARD_BYTES = 2 << 30
_KNOWN = ["problem_id", "rollout_index", "kind", "problem_index"]
_LOWEST_LOGPROB = float(np.finfo(np.float16).min)


class _Entry(NamedTuple):
    """A rollout that has been checked."""

    payload: bytes
    columns: dict[str, list[int]]
    kind: Kind | None
    rollout_index: int | None
    problem_index: int | None


class PoolWriter:
    """Appends rollouts to a pool directory, new or existing.

    The run record (`model`, `task`, `style`, `sampling`, `profile`), the router and the vocabulary must be those of the
    pool that is there. `provenance` (versions, host, engine build) may differ: it is kept with each shard.

    A rollout is safe from a kill of this process once `add` has returned, and from power loss after
    `flush`. While any writer is open the pool has no pool.json and says that it is incomplete; `close`
    seals what this writer added and completes the pool. What a killed writer left behind is recovered by the
    next writer, or by `Pool.recover`.

    A pool has one writer; a second one is refused with PoolBusy, which names the process. Where all of them
    say `workers=True`, several may write at once: each fills shards of its own, none knows what the others
    have added since it was opened, and the last one to close completes the pool.

    `set_aside` names the records of a killed writer's journal that were damaged, or are no rollouts.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        shape: RouterShape,
        vocab: Vocab,
        model: str,
        task: str | None = None,
        style: str | None = None,
        sampling: dict[str, Any] | None = None,
        profile: Profile | None = None,
        provenance: dict[str, Any] | None = None,
        workers: bool = False,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self.path = files.place(path)
        self.shape, self.vocab, self.profile = shape, Vocab.of(vocab), profile or Profile()
        self._stored = self.profile.stored_shape(shape)
        self._provenance = {"radmoe": __version__} | (provenance or {})
        self._shard_bytes = shard_bytes
        self._journal: journal.Journal | None = None
        self._shard = self.path  # that the journal is for
        self._columns: dict[str, list[int]] | None = None
        self._closed = False
        self._header = {
            "schema_version": schema.SCHEMA_VERSION,
            "layers": shape.layers,
            "experts": shape.experts,
            "top_k": shape.top_k,
            "vocab": self.vocab.fingerprint,
            "run": {
                "model": str(model),
                "task": task,
                "style": style,
                "sampling": sampling or {},
                "profile": self.profile.to_json(),
            },
        }
        documents.check_header(self._header, self._provenance)
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._hold = hold(self.path, shared=workers)
            try:
                with locked(self.path):
                    self._columns = join(self.path, self._header, self.vocab)
                    _, self.set_aside = seal_orphans(self.path)
                    tables = shard_runs(self.path, _KNOWN)
            except BaseException:
                self._hold.release()
                raise
        rows = [row for table in tables for row in zip(*table.to_pydict().values(), strict=True)]
        self._explicit = {(problem, index) for problem, index, *_ in rows if index is not None}
        self._done = Counter(problem for problem, _ in self._explicit)
        self._done.update(problem for problem, index, *_ in rows if index is None)
        self._kinds: dict[str, Kind] = {problem: kind for problem, _, kind, _ in rows if kind is not None}
        self._places: dict[str, int] = {problem: place for problem, _, _, place in rows if place is not None}

    def done(self, problem_id: str) -> int:
        """How many rollouts of a problem this writer knows to be in the pool."""
        return self._done[str(problem_id)]

    def has(self, problem_id: str, rollout_index: int) -> bool:
        """Whether this writer knows that the rollout of this index is in the pool."""
        return (str(problem_id), rollout_index) in self._explicit

    def add(
        self,
        problem_id: str,
        rollout: Trace,
        *,
        kind: Kind | None = None,
        rollout_index: int | None = None,
        problem_index: int | None = None,
        text: str | None = None,
        prompt: str | None = None,
        finish_reason: str | None = None,
        extra: dict[str, Any] | None = None,
        prompt_routing: tuple[ArrayLike, ArrayLike | None] | None = None,
    ) -> None:
        """Append one rollout.

        `kind` says what an answer to the problem looks like; all rollouts of a problem have the same kind. Without
        `rollout_index` the rollout gets the problem's next free one when the pool is completed. `problem_index` is the
        problem's place among those that were asked: readers list problems in this order, and the first that was given stays.
        The rollout has the routing of every token and layer, or at least of those that the profile keeps. `prompt_routing` is
        (expert_ids, weights) of the prompt's own positions, [P, L, K] each.

        Everything is checked as a reader checks it before a byte is written. An InputError says what is wrong with the rollout,
        which is then not in the pool; the writer goes on.
        """
        about: dict[str, Any] = {"rollout_index": rollout_index, "problem_index": problem_index, "text": text}
        about |= {"prompt": prompt, "finish_reason": finish_reason, "extra": extra}
        self._append(str(problem_id), [self._entry(str(problem_id), rollout, kind, about, prompt_routing)])

    def add_group(
        self,
        problem_id: str,
        rollouts: Sequence[Trace],
        *,
        kind: Kind | None = None,
        texts: Sequence[str | None],
        prompt: str | None = None,
        finish_reasons: Sequence[str | None],
        extra: dict[str, Any] | None = None,
    ) -> None:
        """Append the rollouts of a problem, numbered from 0, as `add` does; where one of them cannot be added, none is.

        A kill while they are written may leave the first ones. All of them are in memory twice meanwhile.
        """
        shared = {"problem_index": None, "prompt": prompt, "extra": extra}
        each = zip(rollouts, texts, finish_reasons, strict=True)
        entries = [
            self._entry(
                str(problem_id), rollout, kind, shared | {"rollout_index": i, "text": text, "finish_reason": reason}
            )
            for i, (rollout, text, reason) in enumerate(each)
        ]
        self._append(str(problem_id), entries)

    def _entry(
        self,
        problem_id: str,
        rollout: Trace,
        kind: Kind | None,
        about: dict[str, Any],
        prompt_routing: tuple[ArrayLike, ArrayLike | None] | None = None,
    ) -> _Entry:
        """A rollout as it will be appended, after all checks; `about` is what `add` is told of it besides."""
        if self._closed:
            raise PoolError(f"the writer of {self.path} is closed: open a new one to append")
        where = f"rollout of problem {problem_id!r}"
        kind = self._checked_kind(problem_id, kind)
        rollout_index = _whole(about["rollout_index"])
        problem_index = _whole(self._places.get(problem_id, about["problem_index"]))
        arrays = self._arrays(rollout, kind, where, prompt_routing)
        columns = {name: list(a.shape[1:]) for name, a in arrays.items()}
        if self._columns is not None and columns != self._columns:
            raise PoolMismatch(
                f"{where} brings columns {describe(columns)}, this pool has {describe(self._columns)}: they must agree"
            )
        elements = len(rollout) * self.shape.layers * self.shape.top_k
        meta = about | {
            "problem_id": problem_id,
            "problem_index": problem_index,
            "kind": kind,
            "rollout_index": rollout_index,
            "tokens": len(rollout),
            "steps": [{"start": step.start, "kept": step.kept} for step in rollout.steps] or None,
            "given": [list(step.given) for step in rollout.steps] or None,
            "captured_bytes": elements * (4 if rollout.has_weights else 2),
        }
        payload = self._checked(meta, arrays, columns, where)
        if rollout_index is not None and (problem_id, rollout_index) in self._explicit:
            raise PoolMismatch(f"{self.path} already holds rollout {rollout_index} of problem {problem_id!r}")
        return _Entry(payload, columns, kind, rollout_index, problem_index)

    def _append(self, problem_id: str, entries: list[_Entry]) -> None:
        """Write entries of one problem to the journal, all or none, and remember them."""
        if not entries:
            return
        columns = entries[0].columns
        if (other := next((e.columns for e in entries if e.columns != columns), None)) is not None:
            raise PoolMismatch(
                f"rollouts of problem {problem_id!r} bring columns {describe(columns)}, and {describe(other)}: they must agree"
            )
        with disk_errors(self.path):
            if self._journal is not None and self._journal.size >= self._shard_bytes:
                self._seal()
            if self._journal is None:
                self._journal = self._new_shard(columns)
            self._journal.append(*(entry.payload for entry in entries))
        self._done[problem_id] += len(entries)
        for _, _, kind, rollout_index, problem_index in entries:
            if rollout_index is not None:
                self._explicit.add((problem_id, rollout_index))
            if problem_index is not None:
                self._places[problem_id] = problem_index
            if kind is not None:
                self._kinds[problem_id] = kind

    def share(self) -> None:
        """Let writers in that say `workers=True`. Until then no other was there, and none that says otherwise comes."""
        self._hold.share()

    def publish(self) -> None:
        """Seal what was added, so that it is in the pool even if this machine is lost: in a store it is here until then."""
        with disk_errors(self.path):
            self._seal()

    def flush(self) -> None:
        """Make everything added so far safe from power loss."""
        if self._journal is not None:
            with disk_errors(self.path):
                files.sync(self._journal.path)

    def close(self) -> None:
        """Seal what was added, and complete the pool unless another worker still writes to it."""
        if self._closed:
            return
        with disk_errors(self.path):
            self._seal()
            self._closed = True
            last = False
            try:
                with locked(self.path):
                    live, _ = seal_orphans(self.path)
                    last = complete(self.path, self._hold, live)
            finally:
                self._hold.release(last=last)

    def abandon(self) -> None:
        """Stop without completing the pool. It stays incomplete, and what was added can be recovered."""
        self._closed = True
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self._hold.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error_type is None:
            self.close()
        else:
            self.abandon()

    def _checked(
        self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], columns: dict[str, list[int]], where: str
    ) -> bytes:
        """A rollout as it goes to the journal, after the checks that its readers make."""
        try:
            if meta["extra"] is not None:
                meta = meta | {"extra": json.dumps(meta["extra"])}
            payload = journal.encode(meta, arrays)
            contents = Contents(self._columns or columns, self._stored, self.profile, len(self.vocab))
            check_rollout(contents, journal.parse(self.path, payload))
        except (TypeError, ValueError, RecursionError, PoolCorrupt) as e:
            raise RolloutError(f"{where}: {(str(e) or type(e).__name__).splitlines()[0]}") from None
        return payload

    def _checked_kind(self, problem_id: str, kind: Kind | None) -> Kind | None:
        known = self._kinds.get(problem_id)
        if kind is None:
            return known
        if known not in (None, check_kind(kind)):
            raise PoolMismatch(
                f"{self.path} holds problem {problem_id!r} as of kind {known}, this rollout is of kind {kind}: "
                "leave the kind out, or use a new pool"
            )
        return kind

    def _routing(self, rollout: Trace, rows: NDArray[np.int32] | None, where: str) -> Rows:
        """The rows and layers of a rollout's routing that the profile keeps, after a check of their shape and values."""
        ids, weights = rollout.rows(0, len(rollout)) if rows is None else rollout.rows_of(rows)
        whole = (self.shape.layers, self.shape.top_k)
        reduced = (self._stored.layers, self._stored.top_k)
        if ids.shape[1:] not in (whole, reduced):
            raise RolloutError(
                f"{where} has routing of {ids.shape[1]} layers, top-{ids.shape[2]}; the router is {self.shape}"
                + ("" if whole == reduced else f", of which {self._stored.layers} layers are kept")
            )
        return self.profile.routing(ids, weights, reduced=ids.shape[1:] != whole)

    def _arrays(
        self, rollout: Trace, kind: Kind | None, where: str, prompt: tuple[ArrayLike, ArrayLike | None] | None
    ) -> dict[str, NDArray[Any]]:
        rows = self.profile.kept_rows(rollout.token_ids, self.vocab, kind, rollout.starts)
        ids, weights = self._routing(rollout, rows, where)
        arrays: dict[schema.StoredColumn, NDArray[Any]] = {schema.EXPERT_IDS: ids, schema.TOKEN_IDS: rollout.token_ids}
        if weights is not None:
            arrays[schema.EXPERT_WEIGHTS] = weights
        if rows is not None:
            arrays[schema.TOKEN_INDEX] = rows
        if rollout.sampled_logprobs is not None:
            arrays[schema.SAMPLED] = rollout.sampled_logprobs
        if rollout.topk_logprobs is not None:
            arrays[schema.TOPK] = np.maximum(rollout.topk_logprobs, _LOWEST_LOGPROB)
        if prompt is None and self._columns is not None and schema.PROMPT_IDS.name in self._columns:
            no_rows = np.empty((0, self.shape.layers, self.shape.top_k), np.int16)  # this rollout brings none
            prompt = no_rows, no_rows.astype(np.float16) if schema.PROMPT_WEIGHTS.name in self._columns else None
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
        if weights is None:
            return experts, None
        mass = np.asarray(weights)
        if mass.shape != experts.shape:
            raise RolloutError(f"prompt weights have shape {mass.shape}, ids {experts.shape}: they must agree")
        return experts, mass

    def _new_shard(self, columns: dict[str, list[int]]) -> journal.Journal:
        """Start the next shard. The first one of a pool decides which columns all of them have."""
        with locked(self.path):
            # The pool is joined once more, because another writer may have completed it in the meantime.
            pool_columns = join(self.path, self._header, self.vocab)
            self._columns = pool_columns or columns
            if columns != self._columns:
                raise PoolMismatch(
                    f"{self.path} has columns {describe(self._columns)}, this rollout {describe(columns)}: they must agree"
                )
            if pool_columns is None:
                header = self._header | {"columns": columns}
                documents.check_header(header, self._provenance)
                files.write_atomic(self.path / schema.OPEN_JSON, schema.seal_json(header))
            number = max(map(schema.shard_number, (d.name for d in schema.shard_files(self.path))), default=-1)
            while True:
                number += 1
                self._shard = self.path / schema.shard_name(number)
                with suppress(FileExistsError):  # another worker was faster, where there is no lock
                    return journal.Journal(self._hold.begin(self._shard) / schema.JOURNAL, self._provenance)

    def _seal(self) -> None:
        if self._journal is not None:
            local = self._journal.path.parent
            seal(local, self._stored, self.profile)
            if local != self._shard:
                self._hold.check()
                publish(local, self._shard)
            self._hold.finish(self._shard)
            with locked(self.path):
                remove_journal(local, self._shard)
            self._journal.close()
            self._journal = None


def _whole(number: Any) -> Any:
    """A whole number of numpy's as an int; anything else as it is, for the checks to come."""
    return int(number) if isinstance(number, np.integer) else number
