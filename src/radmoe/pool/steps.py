"""The steps of trajectories, as runs.parquet holds them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import PoolCorrupt, RolloutError
from radmoe.pool.tables import RUN_FIELDS, read_table
from radmoe.types import Step, check_starts, check_steps

_NO_STARTS = np.empty(0, np.int64)


class StoredSteps:
    """The steps of a pool's runs, read when they are first asked for; `there` says whether any run has steps."""

    def __init__(self, path: Path, there: bool) -> None:
        self._path, self._there = path, there
        self._problem: tuple[str | None, dict[int, dict[str, Any]]] = (None, {})

    def steps(self, problem_id: str, rollout_index: int) -> tuple[Step, ...]:
        """The steps of a run, with all tokens that it was given. Those of its neighbours are read too."""
        if not self._there:
            return ()
        known, rows = self._problem
        if known != problem_id:
            columns = ["rollout_index", "tokens", "steps", "given"]
            table = read_table(self._path, RUN_FIELDS, columns=columns, where={"problem_id": problem_id})
            rows = {row["rollout_index"]: row for row in table.to_pylist()}
            self._problem = problem_id, rows
        if (row := rows.get(rollout_index)) is None:
            raise PoolCorrupt(f"{self._path} has no rollout {rollout_index} of {problem_id!r}: restore it")
        try:
            return stored_steps(row["steps"], row["given"], row["tokens"])
        except RolloutError as e:
            raise PoolCorrupt(f"{self._path}, rollout {rollout_index} of {problem_id!r}: {e}") from None

    def starts(self, problem_id: str, rollout_index: int) -> NDArray[np.int64]:
        """The offsets of the steps of a run."""
        return self._every_start.get((problem_id, rollout_index), _NO_STARTS)

    @cached_property
    def _every_start(self) -> dict[tuple[str, int], NDArray[np.int64]]:
        """The offsets of the steps of all runs, read at once: `given`, the large part of steps, is not."""
        if not self._there:
            return {}
        every: dict[tuple[str, int], NDArray[np.int64]] = {}
        table = read_table(self._path, RUN_FIELDS, columns=["problem_id", "rollout_index", "tokens", "steps"])
        for problem, index, tokens, steps in zip(*table.to_pydict().values(), strict=True):
            starts = [step["start"] for step in steps or () if step is not None and step["start"] is not None]
            try:
                if len(starts) < len(steps or ()):
                    raise RolloutError("a step lacks its start")
                check_starts(starts, tokens)
            except RolloutError as e:
                raise PoolCorrupt(f"{self._path}, rollout {index} of {problem!r}: {e}") from None
            every[problem, index] = np.array(starts, np.int64)
        return every


def stored_steps(steps: list[Any] | None, given: list[Any] | None, tokens: int) -> tuple[Step, ...]:
    """The steps of a run as runs.parquet holds them. Raises a RolloutError if no trajectory has such steps."""
    if len(steps or ()) != len(given or ()):
        raise RolloutError(f"it has {len(steps or ())} steps, and {len(given or ())} lists of tokens that were given")
    try:
        pairs = zip(given or (), steps or (), strict=True)
        return check_steps([Step(tuple(tokens), step["start"], step["kept"]) for tokens, step in pairs], tokens)
    except TypeError:
        raise RolloutError("a step lacks its start or the tokens it was given") from None
