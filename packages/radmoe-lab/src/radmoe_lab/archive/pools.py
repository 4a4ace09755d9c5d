"""Pools from packed rollouts: what a pool lacks is replayed, and the result is compared with what the GPU had.

A pool is built under the name NAME.unchecked, and gets its own name when replay has met the GPU's log-probabilities and
expert sets and its labels are written. So a pool under its own name is whole, and one that failed the comparison stays
beside it, to be looked at.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from radmoe.errors import InputError, PoolMismatch
from radmoe.grading.grade import answer_key
from radmoe.grading.labels import Label, write_labels
from radmoe.pool import open_pool
from radmoe.pool.reader import safe_rollouts
from radmoe.problems.gold import load_problems
from radmoe_lab.archive.files import Archive, ArchiveError, PackedTask
from radmoe_lab.archive.source import PackedSource, check_checkpoint
from radmoe_lab.tasks import TASKS

if TYPE_CHECKING:
    from radmoe.engines.base import Engine
    from radmoe.engines.replay import Agreement, Replayed
    from radmoe.pool import Pool
    from radmoe.problems import Problem

# These lie between what rounding does in float32 and what any other computation does. Of 3,072 rollouts of the three models that
# were sampled with another batch size, the median sum differs by 4e-6 and all packed expert sets are equal; but where two experts
# are nearly tied they can change places, so that 4 rollouts differ by more than 1e-4, and one by 0.04. In bfloat16 the median is
# 0.05 and the worst 1.3, and 96.8% of expert sets are equal. Behind another problem's prompt every sum differs by more than 17.
MEDIAN_TOLERANCE = 0.001  # of a pool's rollouts: how far the sum of log-probabilities may be from the GPU's, in nats
WORST_TOLERANCE = 3.0  # of each rollout
EXPERT_SETS = 0.999  # the share of (token, layer) of the problem with packed routing that must have the same experts


@dataclass(frozen=True)
class WantedPool:
    """The first n rollouts of the first problems of one task of a configuration, and where their pool is to be."""

    configuration: str
    task: str
    problems: int
    n: int
    tokens: int
    path: Path

    @property
    def unchecked(self) -> Path:
        return self.path.with_name(f"{self.path.name}.unchecked")

    @property
    def rollouts(self) -> int:
        return self.problems * self.n


class Differences(NamedTuple):
    """The differences between the log-probabilities of replayed rollouts, summed, and those with which they were
    sampled.
    """

    median: float
    worst: float

    @property
    def tolerable(self) -> bool:
        return self.median <= MEDIAN_TOLERANCE and self.worst <= WORST_TOLERANCE  # which is false of NaN

    def __str__(self) -> str:
        return f"differ from those of the sampling by {self.median:.1g} (the worst by {self.worst:.1g})"


class BuiltPool(NamedTuple):
    """The result of building a pool. If the pool was there already, nothing was compared."""

    path: Path
    rollouts: int
    replayed: int
    average: float
    differences: Differences | None = None
    agreement: Agreement | None = None

    def facts(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return self._asdict() | {
            "path": str(self.path),
            "differences": self.differences and self.differences._asdict(),
            "agreement": self.agreement and self.agreement.share,
        }

    def __str__(self) -> str:
        if self.differences is None:
            return f"{self.path}: all {self.rollouts:,} rollouts are there already, {self.average:.1%} right"
        line = f"{self.path}: {self.rollouts:,} rollouts, {self.replayed:,} replayed now, {self.average:.1%} right"
        line += f"; log-probabilities {self.differences}"
        return line + ("" if self.agreement is None else f", {self.agreement.share:.3%} of expert sets equal")


class Remainder(NamedTuple):
    """The work left for a pool: rollouts and tokens to replay, and the estimated time and size."""

    rollouts: int
    tokens: int
    seconds: float
    disk_bytes: float


class PoolBuilder:
    """Turns packed rollouts of an archive into pools under a directory."""

    def __init__(self, archive: Archive, out: Path, *, device: str = "cpu", threads: int | None = None) -> None:
        self.archive, self.out = archive, out
        self._device, self._threads = device, threads
        self._packed = cache(archive.read)
        self._engine = cache(self._open)
        self._replayed: Counter[WantedPool] = Counter()  # rollouts of this builder

    def wanted(
        self,
        configurations: Sequence[str] = (),
        tasks: Sequence[str] = (),
        *,
        n: int | None = None,
        limit: int | None = None,
    ) -> list[WantedPool]:
        """Return the wanted pools, by default all of the archive. Every file and checkpoint that they need is checked."""
        names = self.archive.check_names(configurations)
        packed = [task for task in TASKS if any(task in self.archive.configurations[name]["tasks"] for name in names)]
        for task in tasks:
            if task not in packed:
                raise InputError(f"no rollouts of task {task!r} are packed: use one of {', '.join(packed)}")
        if limit is not None and limit < 1:
            raise InputError(f"--limit must be at least 1, got {limit}")
        most = min(int(self.archive.configurations[name]["n"]) for name in names)
        if n is not None and not 1 <= n <= most:
            raise InputError(f"-n must lie between 1 and {most}, the rollouts that were sampled of a problem, got {n}")
        pools = []
        for name in names:
            entry = self.archive.configurations[name]
            check_checkpoint(entry["model"], entry["checkpoint"], name)
            for task, rollouts in self._packed(name).tasks.items():
                if not tasks or task in tasks:
                    lengths = rollouts.lengths[:limit, :n]
                    problems, each, tokens = *lengths.shape, int(lengths.sum(dtype=np.int64))
                    pools.append(WantedPool(name, task, problems, each, tokens, self.out / f"{name}-{task}"))
        return pools

    def missing(self, wanted: WantedPool) -> int:
        """Count the rollouts that are yet to be replayed. Raises PoolMismatch if another pool is at the path."""
        if not wanted.path.exists():
            safe = safe_rollouts(wanted.unchecked) if wanted.unchecked.exists() else 0
            return max(wanted.rollouts - safe, 0)
        if wanted.unchecked.exists():
            raise PoolMismatch(f"both {wanted.path} and {wanted.unchecked} are there: remove one of them")
        pool, entry = open_pool(wanted.path), self.archive.configurations[wanted.configuration]
        source = pool.sampling.get("source")
        if not isinstance(source, dict) or source.get("sha256") != entry["sha256"]:
            raise PoolMismatch(f"{wanted.path} was not made from these rollouts: use another --out, or remove it")
        there = sum(
            len([index for index in pool.rollout_indices(problem_id) if index < wanted.n])
            for problem_id in pool.problems[: wanted.problems]
        )
        return wanted.rollouts - there

    def estimate(self, pools: Sequence[WantedPool]) -> dict[WantedPool, Remainder]:
        """Estimate the work left for every pool that is incomplete.

        A few problems of each model are replayed to measure the speed; they stay in their pools.
        """
        incomplete = [pool for pool in pools if self.missing(pool) or not pool.path.exists()]
        rates: dict[str, tuple[float, float]] = {}
        for pool in incomplete:
            model, missing = self._model(pool), self.missing(pool)
            if missing and model not in rates:
                rates[model] = self._measure(pool, (pool.rollouts - missing) // pool.n, self._engine(model).streams)
        remainders = {}
        for pool in incomplete:
            missing = self.missing(pool)
            tokens = pool.tokens * missing // pool.rollouts
            # Of a model that was not measured nothing is missing: its pools are only to be compared and labelled.
            seconds, disk_bytes = rates.get(self._model(pool), (0.0, 0.0))
            remainders[pool] = Remainder(missing, tokens, seconds * tokens, disk_bytes * tokens)
        return remainders

    def _measure(self, pool: WantedPool, done: int, streams: int) -> tuple[float, float]:
        """Measure seconds and bytes per token of replay, on a second batch of problems: the first one warms up."""
        rate = 0.0, 0.0
        for problems in (done + streams, done + 2 * streams):
            before, began = _disk_bytes(pool), time.perf_counter()
            tokens = self._replay(pool, min(problems, pool.problems), None).tokens
            if tokens:
                rate = (time.perf_counter() - began) / tokens, (_disk_bytes(pool) - before) / tokens
        return rate

    def _model(self, pool: WantedPool) -> str:
        return str(self.archive.configurations[pool.configuration]["model"])

    def build(self, wanted: WantedPool, progress: Callable[[int, int], None] | None = None) -> BuiltPool:
        """Replay what a pool lacks, compare it with the GPU's, write labels, and give the pool its name.

        `progress` is told rollouts done and rollouts in all. Raises ArchiveError where replay is outside its tolerance;
        the pool then keeps the name NAME.unchecked.
        """
        from radmoe.engines.replay import agreement

        rollouts = self._packed(wanted.configuration).tasks[wanted.task]
        if wanted.path.exists() and not self.missing(wanted):
            return BuiltPool(
                wanted.path, wanted.rollouts, 0, float(rollouts.correct[: wanted.problems, : wanted.n].mean())
            )
        self._replay(wanted, wanted.problems, progress)
        pool, seed = open_pool(wanted.unchecked), self.archive.configurations[wanted.configuration]["sampling"]["seed"]
        problems = load_problems(wanted.task, seed=seed)
        differences, agreed = _differences(pool, list(problems), rollouts), agreement(wanted.unchecked)
        remedy = "are torch and the weights as they were? The pool is left there"
        if not differences.tolerable:
            raise ArchiveError(
                f"{wanted.unchecked}: log-probabilities {differences}, and rounding does no more than {MEDIAN_TOLERANCE:g} "
                f"({WORST_TOLERANCE:g}): {remedy}"
            )
        if agreed is not None and not agreed.share >= EXPERT_SETS:
            raise ArchiveError(
                f"{wanted.unchecked}: {agreed.share:.2%} of expert sets are those of the sampling, and at least "
                f"{EXPERT_SETS:.2%} must be: {remedy}"
            )
        labels = list(_labels(pool, problems, rollouts))
        write_labels(wanted.unchecked, labels)
        wanted.unchecked.rename(wanted.path)
        average = sum(label.correct for label in labels) / len(labels)
        return BuiltPool(wanted.path, len(labels), self._replayed[wanted], average, differences, agreed)

    def _replay(self, wanted: WantedPool, problems: int, progress: Callable[[int, int], None] | None) -> Replayed:
        """Replay what the first problems of a pool lack, into the pool under its unchecked name."""
        from radmoe.engines.replay import replay

        engine = self._engine(self._model(wanted))
        packed = self._packed(wanted.configuration)
        source = PackedSource(
            self.archive, wanted.configuration, packed, wanted.task, engine.tokenizer, n=wanted.n, limit=problems
        )
        if wanted.path.exists():
            wanted.path.rename(wanted.unchecked)  # a pool that is enlarged is unchecked again
        replayed = replay(source, engine, wanted.unchecked, progress=progress)
        self._replayed[wanted] += replayed.replayed
        return replayed

    def _open(self, model: str) -> Engine:
        from radmoe.engines import EngineOptions, open_engine

        return open_engine("transformers", model, EngineOptions(device=self._device, threads=self._threads))


def _differences(pool: Pool, problem_ids: list[str], rollouts: PackedTask) -> Differences:
    """Compare all rollouts of a pool with the sums that were packed; `problem_ids` are those of the task, in order."""
    sums = [
        (one.sampled_logprobs.sum(dtype=np.float64), rollouts.logprobs[problem_ids.index(problem_id), index])
        for problem_id in pool.problems
        for index, one in zip(pool.rollout_indices(problem_id), pool.group(problem_id).rollouts, strict=True)
        if one.sampled_logprobs is not None
    ]
    apart = np.abs(np.subtract(*np.array(sums).T))
    return Differences(float(np.median(apart)), float(apart.max()))


def _labels(pool: Pool, problems: dict[str, Problem], rollouts: PackedTask) -> Iterator[Label]:
    """The labels of all rollouts of a pool; answers are extracted again where they are not packed."""
    for place, (problem_id, problem) in enumerate(problems.items()):
        if problem_id in pool.problems:
            key = answer_key(problem)
            for index, text in zip(pool.rollout_indices(problem_id), pool.texts(problem_id), strict=True):
                answer = key.extract(text)
                answer = rollouts.answers.get((place, index), answer)
                yield Label(problem_id, index, answer, bool(rollouts.correct[place, index]))


def _disk_bytes(wanted: WantedPool) -> int:
    return sum(
        file.stat().st_size for path in (wanted.path, wanted.unchecked) for file in path.rglob("*") if file.is_file()
    )
