"""A Ray cluster for `--on`: workers fill a pool together, each with an engine and shards of its own, or evaluate one.

The driver hands out names of rollouts in pieces, and workers say which of them they have added. What a worker did not
add before it was lost is handed out again, to a new worker in its place or to another, which looks first what the lost one
left in the pool. A rollout that is made twice all the same has one name, and completing the pool keeps one.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from radmoe import __version__
from radmoe.capture.plan import Plan
from radmoe.capture.run import Captured, PlanWork, interrupted
from radmoe.errors import (
    ClusterError,
    EngineError,
    InputError,
    PoolBusy,
    PoolNotFound,
    PoolUnreachable,
    PoolWriteError,
    RadmoeError,
)
from radmoe.pool import PoolWriter, files
from radmoe.pool.completion import difference, recover
from radmoe.pool.hold import holder
from radmoe.pool.work import Name, Progress, Tally, Work
from radmoe.system.cluster import Cluster, Crew
from radmoe.system.side_by_side import in_order
from radmoe_integrations.ray_connection import connected

DEATHS = 3  # in a row, without a rollout between them, after which a worker is given up
_PASSING = (EngineError, PoolWriteError, PoolUnreachable)  # errors of a worker at work that the next one may not have
_REPORT_SECONDS = 1.0  # between what a worker tells the driver
_PUBLISH_SECONDS = 300.0  # the same at most, after twice as long each time, where only what was sent to a store is safe
_RELEASE_SECONDS = 120.0  # until a killed process must have let go of the pool; a lease in a store lapses after 90

Part = TypeVar("Part")
Made = TypeVar("Made")


def capture_on_ray(
    make_plan: Callable[[], Plan],
    out: str | Path,
    crew: Crew,
    *,
    cpus: int | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Captured:
    """Sample what the pool at `out` lacks of a plan, as `capture_pool` does, by the workers of a Ray cluster.

    Every worker builds the plan, and with it an engine of its own, by `make_plan`, which is sent to it by `pickle`.
    """
    return fill_on_ray(partial(_plan_work, make_plan), out, crew, progress, cpus=cpus)


def fill_on_ray(
    make_work: Callable[[], Work],
    out: str | Path,
    crew: Crew,
    progress: Callable[[Progress], None],
    *,
    cpus: int | None = None,
) -> Captured:
    """Make what the pool at `out` lacks of a work, which every worker builds by `make_work` and does with `cpus`.

    The pool lies where all workers see it under this path. A worker that dies is replaced; one that dies DEATHS times
    without having made a rollout, or that cannot work at all, is given up, and the others go on. ClusterError if none is
    left; what was made until then is safe, and the same call goes on.
    """
    out, began = files.absolute(out), time.perf_counter()
    with connected(crew.on) as ray:
        needs = {"CPU": cpus or 1, "GPU": crew.gpus_per_worker}
        _check_room(ray, needs)
        driver = _Driver(ray, make_work, out, crew.workers, needs, progress)
        try:
            work, tally = driver.run()
        except KeyboardInterrupt:
            raise interrupted(out) if out.is_dir() else KeyboardInterrupt from None
        finally:
            driver.dismiss()
    return Captured.of(out, work, tally, began, tuple(driver.given_up))


def map_on_ray(
    on: str,
    start: Callable[..., None],
    arguments: tuple[Any, ...],
    function: Callable[[Part], list[Made]],
    parts: Sequence[Part],
) -> Iterator[list[Made]]:
    """What `function` gives for each of the parts, in their order, by all cores of a Ray cluster.

    A process there calls `start` with the arguments before its first part. One that is lost is replaced.
    """
    with connected(on) as ray:
        task, key = ray.remote(_map_there), uuid4().hex
        boxed = [ray.put((start, arguments))]  # a reference in a list is not fetched for every part

        def work(part: Part) -> list[Made]:
            made: list[Made] = ray.get(task.remote(key, boxed, function, part))
            return made

        try:
            with closing(in_order(work, parts, int(ray.cluster_resources().get("CPU", 1)))) as results:
                for _, made in results:
                    yield made
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, RadmoeError):
                raise cause from None
            reason = str(cause or error).strip().splitlines()[0]
            raise ClusterError(f"problems could not be evaluated on the cluster: {reason}") from None


_key = ""  # of the map that this process has started last


def _map_there(key: str, boxed: list[Any], function: Callable[[Part], list[Made]], part: Part) -> list[Made]:
    """What a process of a cluster does, which may have worked for other maps before."""
    global _key
    if _key != key:
        import ray

        start, arguments = ray.get(boxed[0])
        start(*arguments)
        _key = key
    return function(part)


def _check_room(ray: Any, needs: dict[str, float]) -> None:
    """Raise ClusterError where no node could ever hold a worker, for which Ray would wait without end."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(node.get(what, 0) >= count for what, count in needs.items()) for node in nodes):
        needed, most = (
            " and ".join(f"{count:g} {what}" for what, count in counts.items())
            for counts in (needs, {what: max((node.get(what, 0) for node in nodes), default=0) for what in needs})
        )
        raise ClusterError(
            f"a worker needs {needed}, and no node of the cluster has that (the most are {most}): start Ray there with "
            "--num-gpus, or ask for less by --gpus-per-worker and --threads"
        )


def _plan_work(make_plan: Callable[[], Plan]) -> Work:
    plan = make_plan()
    if plan.adaptive is not None:
        raise InputError("an adaptive capture looks at its pool after every few rollouts: leave --on or --adaptive out")
    return PlanWork(plan)


@dataclass
class _Description:
    """A work as the driver knows it, who does none."""

    record: dict[str, Any]
    names: Sequence[Name]
    batch_size: int


class _Worker:
    """The process of a worker, an actor of Ray's."""

    def __init__(self, pickled: bytes, out: str) -> None:
        self._pickled, self._out = pickled, files.place(out)
        self._pause, self._longest = _REPORT_SECONDS, _PUBLISH_SECONDS if files.in_store(self._out) else _REPORT_SECONDS
        self._writer: PoolWriter | None = None

    def start(self) -> dict[str, Any]:
        """Build the work: its engine. Returns what must be the same for all workers."""
        self._work: Work = pickle.loads(self._pickled)()
        record = self._work.record
        own = {"router": str(record["shape"]), "vocab": record["vocab"].fingerprint, "radmoe": __version__}
        made_by = {key: record["provenance"].get(key) for key in ("checkpoint", "versions")}
        return {key: record.get(key) for key in ("model", "task", "style", "sampling")} | own | made_by

    def describe(self) -> _Description:
        return _Description(self._work.record, self._work.names, self._work.batch_size)

    def make(self, names: Sequence[Name], again: bool) -> Iterator[tuple[list[Name], int]]:
        """Make a piece; yields from time to time which rollouts were added and are safe, and how many tokens they have.

        Where some of it is handed out again, this worker looks first what the pool has got of lost ones meanwhile. Into a store it
        sends soon what it makes first and less often as it goes on, so that one that is lost with its disk loses half at most.
        """
        if again and self._writer is not None:
            self._writer.publish()
            self._writer.abandon()
            self._writer = None
        if self._writer is None:
            if not files.in_store(self._out) and holder(self._out) is None:
                raise PoolNotFound(f"{self._out} is not the driver's pool here: give an --out that all nodes see")
            self._writer = PoolWriter(self._out, workers=True, **self._work.record)
        added = [name for name in names if self._writer.has(*name)]  # by a lost worker, who did not come to say so
        tokens, told = 0, time.monotonic()
        with closing(self._work.make([name for name in names if name not in added], self._writer)) as rollouts:
            for name, count in rollouts:
                added.append(name)
                tokens += count
                if time.monotonic() - told >= self._pause:
                    self._publish()
                    yield added, tokens
                    added, tokens, told = [], 0, time.monotonic()
                    self._pause = min(2 * self._pause, self._longest)
        self._publish()
        yield added, tokens

    def _publish(self) -> None:
        if self._writer is not None and files.in_store(self._out):
            self._writer.publish()  # what is not in the store yet would be lost with this machine

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@dataclass
class _Place:
    """The place of a worker, which another takes when it is lost. `answer` is what it was asked for last."""

    name: str
    actor: Any = None
    answer: Any = None
    started: bool = False
    piece: dict[Name, None] = field(default_factory=dict)  # what it has not yet said to have added, in order
    deaths: int = 0


class _Driver:
    def __init__(
        self,
        ray: Any,
        make_work: Callable[[], Work],
        out: Path,
        workers: int,
        needs: dict[str, float],
        progress: Callable[[Progress], None],
    ) -> None:
        self._ray, self._out, self._progress = ray, out, progress
        self._actor = ray.remote(_Worker).options(
            num_cpus=needs["CPU"], num_gpus=needs["GPU"], scheduling_strategy="SPREAD"
        )
        self._arguments = ray.put(ray.cloudpickle.dumps(make_work)), str(out)
        self._places = [_Place(f"worker {number}") for number in range(1, workers + 1)]
        self._same: dict[str, Any] = {}
        self._work: _Description | None = None
        self._writer: PoolWriter | None = None
        self._tally: Tally | None = None
        self._queue: deque[Name] = deque()
        self._lost: set[Name] = set()  # handed out once already
        self.given_up: list[str] = []

    def run(self) -> tuple[_Description, Tally]:
        """Fill the pool and complete it."""
        for place in self._places:
            self._hire(place)
        while self._tally is None or self._queue or any(place.piece for place in self._places):
            if not self._places:
                raise ClusterError(f"no worker is left, and what was made is safe: {self.given_up[-1]}")
            for place in self._with_news():
                try:
                    self._take(place)
                except self._ray.exceptions.RayError as error:
                    self._lose(place, error)
            for place in self._places:  # also those that had nothing to do when another was lost
                if place.started and place.answer is None and self._queue:
                    self._hand_out(place)
            if self._tally is not None:
                self._progress(self._tally.progress(sum(place.started for place in self._places)))
        self._complete()
        assert self._work is not None
        return self._work, self._tally

    def dismiss(self) -> None:
        """Let all workers go. What they added is safe."""
        for place in self._places:
            self._ray.kill(place.actor)
        if self._writer is not None:
            self._writer.abandon()

    def _with_news(self) -> list[_Place]:
        """The workers that have something to say, once there is one; after a second, none."""
        waiting = {place.answer: place for place in self._places if place.answer is not None}
        first, _ = self._ray.wait(list(waiting), timeout=1.0)
        ready, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=0) if first else ([], [])
        return [waiting[answer] for answer in ready]

    def _hire(self, place: _Place) -> None:
        place.started, place.actor = False, self._actor.remote(*self._arguments)
        place.answer = place.actor.start.remote()

    def _take(self, place: _Place) -> None:
        """Take what a worker has to say."""
        answer, place.answer = place.answer, None
        if place.started:
            assert self._tally is not None
            try:
                added, tokens = self._ray.get(next(answer))
            except StopIteration:
                place.piece = {}
                return
            place.answer = answer
            self._tally.add(added, tokens)
            for name in added:
                del place.piece[name]
            place.deaths = 0 if added else place.deaths
            return
        same = self._ray.get(answer)
        if self._tally is None:
            self._work, self._same = self._ray.get(place.actor.describe.remote()), same
            self._open(self._work)
        elif (odd := difference(self._same, same)) is not None:
            self._give_up(
                place, f"it has {odd[0]} = {odd[2]!r}, the first worker {odd[1]!r}: install the same everywhere"
            )
            return
        place.started = True

    def _open(self, work: _Description) -> None:
        """Open the pool alone, to see what it lacks and that nobody else writes to it, and then let workers in."""
        self._writer = PoolWriter(self._out, **work.record)
        self._tally = Tally(work.names, self._writer)
        self._queue.extend(self._tally.missing)
        self._writer.share()

    def _hand_out(self, place: _Place) -> None:
        """Hand out a piece: most of a worker's share of what is left.

        All workers then end at about the same time after few pieces, at each of whose ends a batch is not full.
        """
        assert self._work is not None
        size = max(len(self._queue) * 3 // (4 * len(self._places)), self._work.batch_size // 4, 1)
        names = [self._queue.popleft() for _ in range(min(size, len(self._queue)))]
        place.piece = dict.fromkeys(names)
        again = not self._lost.isdisjoint(names)
        place.answer = place.actor.make.options(num_returns="streaming").remote(names, again)

    def _lose(self, place: _Place, error: Any) -> None:
        """Put what a lost worker did not add to the end of the queue, and put another in its place."""
        self._queue.extend(place.piece)
        self._lost.update(place.piece)
        place.piece, place.answer = {}, None
        place.deaths += 1
        cause = getattr(error, "cause", None) or error
        reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        hopeless = isinstance(cause, RadmoeError) and not (place.started and isinstance(cause, _PASSING))
        if hopeless or place.deaths >= DEATHS:
            self._give_up(
                place, reason if hopeless else f"lost {place.deaths} times in a row, the last time by: {reason}"
            )
            if not self._places and isinstance(cause, InputError):
                raise cause
            return
        self._ray.kill(place.actor)
        self._hire(place)

    def _give_up(self, place: _Place, reason: str) -> None:
        self._ray.kill(place.actor)
        self._places.remove(place)
        self.given_up.append(f"{place.name} was given up: {reason}")

    def _complete(self) -> None:
        """Let workers seal their shards, and complete the pool, with one of each rollout that was made twice."""
        assert self._writer is not None
        closing_down = [place.actor.close.remote() for place in self._places if place.started]
        for answer in closing_down:
            try:
                self._ray.get(answer)
            except self._ray.exceptions.RayError:
                continue  # what it added is sealed below
        self.dismiss()
        deadline = time.monotonic() + _RELEASE_SECONDS
        while True:
            try:
                recover(self._out)
                return
            except PoolBusy:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


RAY = Cluster(capture_on_ray, fill_on_ray, map_on_ray)
