"""A real Ray cluster of several nodes on this machine, and captures on it that something happens to."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from radmoe.capture import Plan
from radmoe.engines import EngineOptions
from radmoe.engines.base import Completion, Engine, Job, Sampling
from radmoe.engines.replay import ReplayWork
from radmoe.pool import open_pool
from radmoe.problems import Question
from radmoe.selection.online import Stopping
from radmoe.types import Rollout, RouterShape
from vocabularies import small_vocab

STORE_BYTES = 80 << 20
QUESTIONS = [Question(f"q{i}", f"So the sum is {i}", ("math", "code", None)[i % 3]) for i in range(12)]


class _Tokenizer:
    """Just what an engine asks of a tokenizer: every letter is a token. It loads in no time, which transformers does not."""

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) - 32 for letter in text]}

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return "".join(chr(32 + token) for token in ids)


class WaitingEngine(Engine):
    """An engine that waits instead of computing. A rollout is a function of its name, and something can happen before it."""

    name, model_name, context, tokens_sampled, replays = "waiting", "waiting", 256, 0, True
    shape, versions = RouterShape(2, 8, 3), {"waiting": "1"}

    def __init__(self, seconds: float = 0.0, happens: Callable[[str], object] = lambda key: None) -> None:
        self.seconds, self.happens = seconds, happens
        self.tokenizer, self.vocab = _Tokenizer(), small_vocab([chr(32 + token) for token in range(95)])

    @classmethod
    def open(cls, model: str | None, options: EngineOptions) -> Self:
        return cls(float(model or 0))

    def run(self, jobs: Sequence[Job], batch_size: int, profile: Any) -> Iterator[Completion]:
        self.tokens_sampled = 0
        for job in jobs:
            time.sleep(self.seconds)
            self.happens(job.key)
            yield self._completion(job)

    def _completion(self, job: Job) -> Completion:
        rng = np.random.default_rng([job.sampling.seed, job.rollout_index, *job.key.encode()])
        length = int(rng.integers(1, job.limit + 1))
        tokens = rng.integers(95, size=length).astype(np.int32)
        self.tokens_sampled += length
        top = -np.sort(rng.gamma(2.0, 1.0, (length, 4)).astype(np.float32))
        made = Rollout(tokens, *self.teacher_forced(tokens.tolist()), top[:, 0].copy(), top)
        text = self.tokenizer.decode(tokens.tolist(), True)
        return Completion(job.prompt_index, job.rollout_index, made, text, "length")

    def teacher_forced(self, token_ids: Sequence[int]) -> Any:
        rngs = [np.random.default_rng(token) for token in token_ids]
        ids = np.array([[rng.permutation(8)[:3] for _ in range(2)] for rng in rngs], np.int16)
        return ids, np.array([rng.dirichlet(np.ones(3), 2) for rng in rngs]).astype(np.float16)


def make_plan(n: int = 8, seconds: float = 0.0, questions: int = 12, max_tokens: int = 12) -> Plan:
    engine = WaitingEngine(seconds)
    return Plan(QUESTIONS[:questions], engine, Sampling(max_tokens=max_tokens, seed=3), n=n, task="sums", batch_size=8)


def cursed_plan(node: str, curse: str) -> Plan:
    """The plan, with an engine that on one node dies, has another library or other weights, or cannot be used."""
    import ray

    from radmoe.errors import EngineError

    plan = make_plan(seconds=0.4 if curse == "dies" else 0.02)
    assert isinstance(plan.engine, WaitingEngine)
    if ray.get_runtime_context().get_node_id() == node:
        if curse == "dies":
            plan.engine.happens = lambda key: os._exit(1)
        elif curse == "another version":
            plan.engine.versions = {"waiting": "2"}
        elif curse == "other weights":
            made_by = plan.engine.provenance() | {"checkpoint": "0123"}
            plan.engine.provenance = lambda: made_by  # type: ignore[method-assign]
        else:
            raise EngineError("no GPU is visible here")
    return plan


def poisoned_plan() -> Plan:
    """The plan, in which one problem kills whoever tries it."""
    plan = make_plan()
    assert isinstance(plan.engine, WaitingEngine)
    plan.engine.happens = lambda key: os._exit(1) if key == "q5" else None
    return plan


def mortal_plan(left: int) -> Plan:
    """The plan, whose workers die when they have made so many rollouts, and the disk of their machine with them."""
    plan, deaths = make_plan(n=4, seconds=0.3), itertools.count()

    def dies(key: str) -> None:
        if next(deaths) == left:
            shutil.rmtree(os.environ["RADMOE_SPOOL"])
            os._exit(1)

    assert isinstance(plan.engine, WaitingEngine)
    plan.engine.happens = dies
    return plan


def adaptive_plan() -> Plan:
    return replace(make_plan(questions=1), adaptive=Stopping())


def replay_work(source: Path) -> ReplayWork:
    return ReplayWork(source, WaitingEngine())


def content(pool: str | os.PathLike[str]) -> dict[tuple[str, int], tuple[bytes, ...]]:
    """Every rollout of a pool by its name, to the last bit."""
    opened = open_pool(pool)
    named: dict[tuple[str, int], tuple[bytes, ...]] = {}
    for group in opened.groups():
        for index, rollout in zip(opened.rollout_indices(group.problem_id), group.rollouts, strict=True):
            assert (group.problem_id, index) not in named
            arrays = [
                rollout.token_ids,
                *rollout.rows(0, len(rollout)),
                rollout.sampled_logprobs,
                rollout.topk_logprobs,
            ]
            named[group.problem_id, index] = tuple(b"" if array is None else array.tobytes() for array in arrays)
    return named


@contextmanager
def cluster(nodes: int, cpus: int = 1) -> Iterator[Any]:
    """A Ray cluster of so many nodes; `.address` is HOST:PORT of its head."""
    from ray.cluster_utils import Cluster

    options = {"num_cpus": cpus, "object_store_memory": STORE_BYTES}
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray's own 15 lets workers starve beside other work
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # by nodes and workers
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [str(Path(__file__).parent), *inherited])))
    made = Cluster(initialize_head=True, head_node_args=options | {"include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            made.add_node(**options)
        yield made
    finally:
        made.shutdown()


_OWN = Path("/proc") / str(os.getpid())


def _parent(process: Path) -> Path:
    return _OWN.parent / (process / "stat").read_text().rpartition(")")[2].split()[1]


def workers() -> list[int]:
    """The processes that make rollouts on a cluster of this one, by what Ray calls them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            node = _parent(process)
            if (process / "cmdline").read_bytes().startswith(b"ray::_Worker.make") and _parent(node) == _OWN:
                found.append(int(process.name))
    return sorted(found)


class Killer:
    """Kills one worker after another while the block runs; `killed` counts them."""

    def __init__(self, every: float, most: int = 1000) -> None:
        self.killed, self._every, self._most, self._ended = 0, every, most, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while self.killed < self._most and not self._ended.wait(self._every):
            alive = workers()
            if alive:
                with suppress(ProcessLookupError):
                    os.kill(alive[self.killed % len(alive)], 9)
                    self.killed += 1
