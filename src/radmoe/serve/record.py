"""Served groups kept as a pool, so that what was answered can be inspected, graded and studied later.

A group is written before it is answered, whole or, where something in it or the disk refuses, not at all. A rollout that was
written survives a kill of the gateway; each says how many its group has (`extra.n`), so that a group which a kill cut
short is told from a whole one.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from radmoe.errors import PoolMismatch, PoolNotFound
from radmoe.pool import Pool, PoolWriter, Profile
from radmoe.pool.files import in_store
from radmoe.serve.backends import Backend, Router, SampledRollouts
from radmoe.serve.best_of import ServedPick
from radmoe.types import Rollout, Trace


class PoolRecorder:
    """Writes groups to one pool, of one model; calls may come from several threads."""

    def __init__(self, path: Path, backend: Backend, *, logprobs: bool) -> None:
        self._path, self._backend, self._logprobs = path, backend, logprobs
        self._writer: PoolWriter | None = None
        self._model = ""
        self._lock = threading.RLock()

    def add(self, identity: str, model: str, sampled: SampledRollouts, pick: ServedPick) -> None:
        """Write the rollouts of a request, all or none. Raises a PoolError where they do not fit the pool, or the disk refuses."""
        assert pick.group is not None
        assert sampled.router is not None
        rollouts = [self._kept(rollout) for rollout in pick.group.rollouts]
        extra = {"n": len(pick.group), "pick": pick.order[0], "method": pick.document["method"]}
        with self._lock:
            self._open(model, sampled.router).add_group(
                identity,
                rollouts,
                kind=pick.group.kind,
                texts=[pick.group.vocab.decode_bytes(each.token_ids).decode("utf-8", "replace") for each in rollouts],
                prompt=sampled.prompt,
                finish_reasons=[choice["finish_reason"] for choice in sampled.choices],
                extra=extra | {"served": int(time.time())},
            )

    def _kept(self, rollout: Trace) -> Rollout:
        assert isinstance(rollout, Rollout)
        return rollout if self._logprobs else replace(rollout, sampled_logprobs=None, topk_logprobs=None)

    def close(self) -> None:
        """Seal the pool."""
        with self._lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                try:
                    writer.close()
                finally:
                    writer.abandon()  # where the disk refused, the next writer finishes it

    def expire(self, days: float) -> dict[str, Any]:
        """Delete the groups that were served more than so many days ago, and count them. Others wait to be written meanwhile.

        Those that do not say when they were served stay.
        """
        with self._lock:
            self.close()
            try:
                pool = Pool.recover(self._path)
            except PoolNotFound:  # nothing was recorded yet
                return {}
            runs = pool.runs(["problem_id", "extra"]).to_pylist()
            served = {run["problem_id"]: _served(run["extra"]) for run in runs}
            old = [problem for problem, at in served.items() if at is not None and at < time.time() - days * 86_400]
            left = pool.delete(old) if old else pool
            return {"deleted": len(old), "left": len(left.problems), "undated": [*served.values()].count(None)}

    def open_now(self, model: str, router: Router) -> None:
        """Open the pool before the first request, so that one which does not fit is an error at the start."""
        with self._lock:
            self._open(model, router)

    def _open(self, model: str, router: Router) -> PoolWriter:
        if self._writer is None:
            self._writer, self._model = (
                PoolWriter(
                    self._path,
                    shape=router.shape,
                    vocab=router.vocab,
                    model=model,
                    sampling=self._backend.record | {"gateway": True},
                    profile=Profile(layers=router.layers),
                    provenance=self._backend.provenance,
                    workers=in_store(self._path),  # several servers may record there: their groups differ in name
                ),
                model,
            )
        if model != self._model:
            raise PoolMismatch(f"{self._path} records {self._model}, this group is of {model}: one pool has one model")
        return self._writer


def _served(extra: str | None) -> float | None:
    """When a rollout was served, in seconds since 1970; None where it does not say so."""
    try:
        return float(json.loads(extra or "")["served"])
    except (ValueError, TypeError, KeyError):
        return None
