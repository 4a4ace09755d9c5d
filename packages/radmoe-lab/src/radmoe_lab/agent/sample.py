"""Sample an agent's trajectories at size: `python -m radmoe_lab.agent.sample lab-agent-qwen --weights DIR --out DIR`.

It leads the conversations that mini-swe-agent would lead (loop.py), thousands at a time: one batch on the GPU samples all
replies, and worker processes run the commands, confined, in a repository of its own for each trajectory. It
needs torch, transformers, numpy, bash and python3. Patches are judged in the end, where there is git. The result is one
file, DIR/lab-agent-qwen.npz.xz.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from radmoe.engines.base import Completion, sampling_for
from radmoe.errors import InputError
from radmoe.problems import DEFAULT_SEED
from radmoe.system.printing import say
from radmoe_lab.agent.loop import BOUNDARY, SUBMITTED, LabConversation
from radmoe_lab.agent.records import AgentStep, AgentTrajectory, judged, write_trajectories
from radmoe_lab.agent.repositories import SIZE, BuggyRepository, repositories
from radmoe_lab.agent.verdicts import RESOLVED
from radmoe_lab.agent.workplace import Printed, Workplace, probe
from radmoe_lab.models import AGENTS, model_named, weights
from radmoe_lab.sample import checksums, device_name, open_lab_engine, sampler

if TYPE_CHECKING:
    from radmoe.engines.batches import Batcher
    from radmoe_lab.inference.engine import LabEngine

N = 16
_SAY_EVERY_S = 10.0


@dataclass
class _Trajectory:
    """A trajectory that is being sampled."""

    place: int  # of its repository
    number: int
    conversation: LabConversation
    directory: Path
    steps: list[AgentStep] = field(default_factory=list)


def sample(
    model: str,
    out: Path,
    *,
    n: int = N,
    limit: int = SIZE,
    seed: int = DEFAULT_SEED,
    device: str = "cpu",
    batch_size: int = 768,
    jobs: int | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seconds: float | None = None,
    checkpoint: Path | None = None,
    unconfined: bool = False,
    command: str = "",
) -> Path:
    """Sample n trajectories in every repository, judge their patches, and return the file they are in.

    After `seconds` no further repository is begun; the file has those that are complete. `unconfined` runs commands with
    limits of time and memory only.
    """
    if model not in AGENTS:
        raise InputError(f"{model!r} is no agent of the lab: use one of {', '.join(AGENTS)}")
    if not 1 <= n <= np.iinfo(np.uint8).max:
        raise InputError(f"-n must lie between 1 and {np.iinfo(np.uint8).max}, got {n}")
    path = out / f"{model_named(model).name}.npz.xz"
    if path.exists():
        raise InputError(f"{path} is there already: use another --out, or remove it")
    out.mkdir(parents=True, exist_ok=True)
    jobs = jobs or max(1, len(os.sched_getaffinity(0)))
    tasks = repositories(seed=seed, limit=limit)
    engine = open_lab_engine(model, checkpoint or weights(model), device)
    sampling = sampling_for(engine, temperature=temperature, max_tokens=max_tokens, seed=seed)
    sampling = replace(sampling, topk_logprobs=1)
    assert engine.checkpoint is not None
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="radmoe-agent-") as place:
        probe(Path(place), unconfined=unconfined)
        with ExitStack() as open_pools:
            # A trajectory's commands all go to one process, which keeps its confinement from step to step.
            workers = [open_pools.enter_context(ProcessPoolExecutor(1, get_context("spawn"))) for _ in range(jobs)]
            work = _Work(engine, tasks, n, Path(place), workers, unconfined, began + seconds if seconds else None)
            failure: Exception | None = None
            try:
                with engine.batcher(batch_size=batch_size, topk_logprobs=1) as batch:
                    work.run(batch, sampling, most=batch_size + batch_size // 4 + jobs)
            except Exception as error:  # what is complete is worth keeping, whatever went wrong then
                failure = error
    sampled = time.perf_counter() - began
    trajectories = work.complete()
    try:
        trajectories = judged(trajectories, tasks, jobs=jobs)
    except InputError as error:
        say(f"radmoe: {error}; radmoe_lab.agent.export --trajectories judges them elsewhere", err=True)
    judging = time.perf_counter() - began - sampled
    header = {
        "model": model,
        "seed": seed,
        "n": n,
        "sampling": asdict(sampling),
        "dtype": engine.dtype,
        "checkpoint": checksums(engine.checkpoint),
        "command": command,
        "confined": not unconfined,
        "device": device_name(engine),
        "batch_size": batch_size,
        "jobs": jobs,
        "versions": engine.versions | {"numpy": np.__version__, "python": platform.python_version()},
        "router": list(vars(engine.shape).values()),
        "seconds": round(sampled, 1),
        "seconds_of_verdicts": round(judging, 1),
    }
    write_trajectories(path, header, trajectories)
    for line in _summary(path, trajectories, tasks, n, sampled, judging):
        say(line)
    if failure is not None:
        raise failure
    return path


def _summary(
    path: Path,
    trajectories: Sequence[AgentTrajectory],
    tasks: Sequence[BuggyRepository],
    n: int,
    sampled: float,
    judging: float,
) -> list[str]:
    """Summarise what was sampled in a few lines."""
    right = Counter(each.repository_id for each in trajectories if each.verdict == RESOLVED)
    owners = {each.repository_id for each in trajectories}
    mixed = sum(0 < right[owner] < n for owner in owners)
    steps = sum(len(each.steps) for each in trajectories)
    tokens = sum(len(step.tokens) for each in trajectories for step in each.steps)
    total = max(len(trajectories), 1)
    families: dict[str, list[int]] = {}
    for task in tasks:
        if task.repository_id in owners:
            families.setdefault(f"open number {task.level}" if task.number_open else task.family, []).append(
                right[task.repository_id]
            )
    by_family = ", ".join(
        f"{name} {100 * sum(each) / (n * len(each)):.0f} ({len(each)})" for name, each in sorted(families.items())
    )
    return [
        f"{path}: {len(owners)} repositories x {n}, {steps / total:.1f} steps and {tokens / total:.0f} tokens a "
        f"trajectory, {sampled:.0f} s and {judging:.0f} s of verdicts, {path.stat().st_size:,} bytes",
        f"resolved {100 * right.total() / total:.1f}%, mixed {mixed}, none right {sum(not right[o] for o in owners)}",
        f"resolved by family (repositories): {by_family}",
        f"verdicts {dict(Counter(each.verdict for each in trajectories).most_common())}",
        f"ends {dict(Counter(each.exit_status for each in trajectories).most_common())}",
    ]


class _Work:
    """The trajectories of a call by their state: waiting, running and finished."""

    def __init__(
        self,
        engine: LabEngine,
        tasks: Sequence[BuggyRepository],
        n: int,
        place: Path,
        workers: Sequence[ProcessPoolExecutor],
        unconfined: bool,
        deadline: float | None,
    ) -> None:
        self._engine, self._tasks, self._n, self._workers = engine, tasks, n, workers
        self._place, self._unconfined, self._deadline = place, unconfined, deadline
        self._events: SimpleQueue[tuple[_Trajectory, Completion | Printed | BaseException]] = SimpleQueue()
        self._finished: dict[tuple[int, int], AgentTrajectory] = {}
        self._boundary = engine.tokenizer.convert_tokens_to_ids(BOUNDARY)
        self._steps = 0

    def run(self, batch: Batcher, sampling: Any, *, most: int) -> None:
        """Run all conversations, up to `most` at a time."""
        waiting, under_way = self._all(), 0
        last = began = time.perf_counter()
        while True:
            while under_way < most and (one := next(waiting, None)) is not None:
                self._ask(batch, sampling, one)
                under_way += 1
            if not under_way:
                return
            one, event = self._events.get()
            if isinstance(event, BaseException):
                raise event
            if isinstance(event, Completion):
                command = self._replied(one, event)
                if command is not None:
                    self._execute(one, command)
                    continue
            else:
                shown = one.conversation.observe(event.output, event.code, stopped=event.stopped)
                one.steps[-1] = replace(one.steps[-1], observation=shown)
            if not self._ask(batch, sampling, one):
                under_way -= 1
            if (now := time.perf_counter()) - last > _SAY_EVERY_S:
                last = now
                total = len(self._tasks) * self._n
                say(f"{len(self._finished):,} of {total:,} done, {self._steps / (now - began):.0f} steps/s", err=True)

    def complete(self) -> list[AgentTrajectory]:
        """The trajectories of the repositories that have all of theirs."""
        whole = [p for p in range(len(self._tasks)) if all((p, i) in self._finished for i in range(self._n))]
        return [self._finished[place, i] for place in whole for i in range(self._n)]

    def _all(self) -> Iterator[_Trajectory]:
        tokenizer, context = self._engine.tokenizer.backend_tokenizer, self._engine.context or 1 << 30

        def encode(text: str) -> list[int]:
            return list(tokenizer.encode(text, add_special_tokens=False).ids)

        for place, task in enumerate(self._tasks):
            if self._deadline is not None and time.perf_counter() > self._deadline:
                return
            for number in range(self._n):
                yield _Trajectory(
                    place,
                    number,
                    LabConversation(task.issue, encode, context),
                    self._place / f"work-{place:05d}-{number:03d}",
                )

    def _ask(self, batch: Batcher, sampling: Any, one: _Trajectory) -> bool:
        """Request the next reply. Returns False if the conversation has ended."""
        prompt = one.conversation.prompt()
        if prompt is None:
            self._end(one)
            return False
        key = f"{self._tasks[one.place].repository_id}/{len(one.steps)}"
        future = batch.submit(prompt, sampling=sampling, key=key, rollout_index=one.number)
        future.add_done_callback(lambda done: self._events.put((one, _result(done))))
        return True

    def _replied(self, one: _Trajectory, completion: Completion) -> str | None:
        rollout, ended = completion.rollout, completion.finish_reason == "stop"
        assert rollout.sampled_logprobs is not None
        command = one.conversation.reply(completion.text, rollout.token_ids.tolist(), ended=ended)
        places = np.flatnonzero(rollout.token_ids == self._boundary)
        experts = np.sort(rollout.expert_ids[places[-1]], -1).astype(np.uint8) if len(places) else None
        one.steps.append(
            AgentStep(
                rollout.token_ids.astype(np.uint16),
                completion.finish_reason,
                float(rollout.sampled_logprobs.sum(dtype=np.float64)),
                "" if command is not None else one.conversation.messages[-1]["content"],
                command is not None,
                experts,
            )
        )
        self._steps += 1
        return command

    def _execute(self, one: _Trajectory, command: str) -> None:
        files = self._tasks[one.place].files
        ran = self._worker(one).submit(_run_in_copy, files, one.directory, command, self._unconfined)
        ran.add_done_callback(lambda done: self._events.put((one, _result(done))))

    def _end(self, one: _Trajectory) -> None:
        conversation = one.conversation
        patch = conversation.patch if conversation.exit_status == SUBMITTED else ""
        self._finished[one.place, one.number] = AgentTrajectory(
            self._tasks[one.place].repository_id, one.number, tuple(one.steps), conversation.exit_status, patch
        )
        self._worker(one).submit(_leave, one.directory)

    def _worker(self, one: _Trajectory) -> ProcessPoolExecutor:
        return self._workers[(one.place * self._n + one.number) % len(self._workers)]


def _result(done: Future[Any]) -> Any:
    error = done.exception()
    return done.result() if error is None else error


_PLACES: dict[Path, Workplace] = {}  # of the trajectories whose commands this process runs


def _run_in_copy(files: Mapping[str, str], directory: Path, command: str, unconfined: bool) -> Printed:
    """Run a command in a trajectory's own repository, which the first command makes."""
    if directory not in _PLACES:
        _PLACES[directory] = Workplace(files, unconfined=directory if unconfined else None)
    return _PLACES[directory].run(command)


def _leave(directory: Path) -> None:
    if (place := _PLACES.pop(directory, None)) is not None:
        place.close()


def main(arguments: Sequence[str] | None = None) -> None:
    sampler(
        "python -m radmoe_lab.agent.sample",
        __doc__,
        sample,
        arguments,
        model=", ".join(AGENTS),
        n={"flag": "-n", "type": int, "default": N, "help": "trajectories per repository"},
        limit={"type": int, "default": SIZE, "help": "only so many repositories"},
        batch_size={"type": int, "default": 768},
        jobs={"type": int, "help": "processes that run commands; default: as many as cores"},
        max_tokens={"type": int, "help": "of one reply; default: the model's own"},
        seconds={"type": float, "help": "begin no further repository after so long"},
        unconfined={"action": "store_true", "help": "only on a machine that is thrown away"},
    )


if __name__ == "__main__":
    main()
