"""Work that fills a pool: rollouts by name, made by one process here or by many (`radmoe.system.cluster`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from radmoe.pool.writer import PoolWriter

Name = tuple[str, int]  # of a rollout: its problem, and its index
# rollouts as they are added, each with the tokens since the one before
Making = Generator[tuple[Name, int], None, None]


class Named(Protocol):
    """What shall be in a pool."""

    record: dict[str, Any]  # the arguments of `PoolWriter`
    names: Sequence[Name]  # of every rollout, in the pool's order


class Work(Named, Protocol):
    """Makes rollouts of a pool, each from its name alone, so that it does not matter who makes it."""

    batch_size: int  # rollouts that are made together

    def make(self, names: Sequence[Name], writer: PoolWriter) -> Making:
        """Make these rollouts and add each as soon as it is finished."""


class Progress(NamedTuple):
    """How far a pool is: rollouts of this call, problems that have all of theirs, tokens, and workers if there are any."""

    rollouts: int
    of_rollouts: int
    problems: int
    of_problems: int
    tokens: int
    workers: int | None = None


class Tally:
    """What a pool lacked when it was opened, and what was added since."""

    def __init__(self, names: Sequence[Name], writer: PoolWriter) -> None:
        self.missing = [name for name in names if not writer.has(*name)]
        self.set_aside = len(writer.set_aside)
        self.rollouts = self.tokens = 0
        self._left = Counter(problem for problem, _ in self.missing)
        self._of_problems = len({problem for problem, _ in names})
        self._problems = self._of_problems - len(self._left)

    def add(self, names: Sequence[Name], tokens: int) -> None:
        self.rollouts, self.tokens = self.rollouts + len(names), self.tokens + tokens
        for problem, _ in names:
            self._left[problem] -= 1
            self._problems += not self._left[problem]

    def progress(self, workers: int | None = None) -> Progress:
        return Progress(self.rollouts, len(self.missing), self._problems, self._of_problems, self.tokens, workers)


def fill(work: Work, out: str | Path, progress: Callable[[Progress], None] = lambda progress: None) -> Tally:
    """Make what the pool at `out` lacks of a work, in this process."""
    with PoolWriter(out, **work.record) as writer:
        tally = Tally(work.names, writer)
        with closing(work.make(tally.missing, writer)) as made:
            for name, tokens in made:
                tally.add([name], tokens)
                progress(tally.progress())
    return tally
