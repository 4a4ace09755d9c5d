"""The faults that a check of a pool reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Run = tuple[str, int]  # problem id, rollout index


class SetAside(NamedTuple):
    """A record of a shard's journal that recovery did not take for a rollout, by its number, and the reason."""

    shard: str
    record: int
    reason: str

    def __str__(self) -> str:
        return f"record {self.record} of {self.shard} is set aside in {self.shard}/journal.refused: {self.reason}"


@dataclass(frozen=True)
class Fault:
    """Something wrong in one file, and the rollouts it touches. `runs` is empty where it touches none, or the whole pool."""

    file: str
    message: str
    runs: tuple[Run, ...] = ()

    def __str__(self) -> str:
        some = ", ".join(f"{problem}#{index}" for problem, index in self.runs[:8])
        more = f" and {len(self.runs) - 8} more" if len(self.runs) > 8 else ""
        return f"{self.file}: {self.message}" + (f"; rollouts {some}{more}" if self.runs else "")
