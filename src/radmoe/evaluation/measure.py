"""From a graded pool to its records: every method's pick on every problem, each window read once."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe import baselines
from radmoe.anchors import find_all, spec_for
from radmoe.confidence import SCALARS, every_scalar, token_confidence
from radmoe.errors import InputError
from radmoe.evaluation import cache, naming
from radmoe.evaluation.records import NO_PICK, Problem, Records, Settings
from radmoe.grading.labels import Label, read_labels
from radmoe.pool import Pool, open_pool
from radmoe.pool.reader import manifest
from radmoe.readout import same_anchors
from radmoe.selector import choose, similarity
from radmoe.types import RolloutGroup, Selection

CHUNK = 16  # problems a worker takes at a time
FEW = 20_000  # rollouts that one process is through with before more of them would have started
DEEPCONF = {vote: "deepconf" if vote == "bottom-window" else f"deepconf-{vote}" for vote in baselines.DEEPCONF}
CONFIDENT = ("confident", "rad+dc", "strict+dc", *DEEPCONF.values())  # methods that need logprobs

Scalars = dict[str, list[float]]


class Graded(NamedTuple):
    """A problem to evaluate: the answer and the verdict of each of its rollouts, in their order."""

    problem_id: str
    answers: list[str | None]
    correct: list[bool]


def evaluate_pool(
    path: str | Path,
    settings: Settings | None = None,
    *,
    dataset: str | None = None,
    jobs: int = 1,
    use_cache: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Records:
    """Evaluate every labelled problem of a pool, or take it from the cache.

    `jobs` processes share the problems and change no result. `progress` is told of problems done, and of all.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    path, settings = Path(path), settings or Settings()
    meta = manifest(path)
    key = cache.identity(path)
    records = cache.load(path, settings, key) if use_cache else None
    if records is None:
        pool = open_pool(path)
        graded, notes = _graded(pool)
        done = []
        for problem in _measured(pool, settings, graded, jobs):
            done.append(problem)
            progress(len(done), len(graded))
        records = Records.collect(done, pool=str(path), settings=settings, notes=notes)
        if use_cache:
            cache.save(path, settings, key, records)
    return replace(records, pool=str(path), model=naming.model(meta), dataset=dataset or naming.dataset(meta, path))


def _graded(pool: Pool) -> tuple[list[Graded], tuple[str, ...]]:
    """The labelled problems, and what to say of the others."""
    labels = read_labels(pool.path)
    graded, absent, partial = [], 0, 0
    for problem_id in pool.problems:
        known = labels.get(problem_id, {})
        indices = pool.rollout_indices(problem_id)
        if not known:
            absent += 1
        elif any(i not in known for i in indices):
            partial += 1
        else:
            graded.append(_take(problem_id, [known[i] for i in indices]))
    if not graded:
        raise InputError(_nothing_graded(pool, labels, partial))
    notes = []
    if absent:
        notes.append(f"{absent} of {len(pool.problems)} problems have no labels and are left out")
    if partial:
        notes.append(f"{partial} of {len(pool.problems)} problems have labels for some rollouts only and are left out")
    return graded, tuple(notes)


def _take(problem_id: str, labels: list[Label]) -> Graded:
    return Graded(problem_id, [label.answer for label in labels], [label.correct for label in labels])


def _nothing_graded(pool: Pool, labels: dict[str, dict[int, Label]], partial: int) -> str:
    if not pool.problems:
        return f"{pool.path} holds no problems: there is nothing to evaluate"
    if partial:
        return f"no problem of {pool.path} has a label for every rollout: grade it again with radmoe grade {pool.path}"
    other = repr(next(iter(labels))) if labels else "none"
    return (
        f"the labels of {pool.path} are of other problems ({other}) than the pool's ({pool.problems[0]!r}): "
        f"grade it again with radmoe grade {pool.path}"
    )


# -- one problem -----------------------------------------------------------------------------------------------------


def measure(group: RolloutGroup, graded: Graded, settings: Settings) -> Problem:
    """Every method on one problem. Selections are made before a label is looked at."""
    task, k, kernel = settings.task, settings.k, settings.kernel
    missing: dict[str, str] = {}
    S, reading = similarity(group, readout=settings.readout, task=task, kernel=kernel)
    members = np.flatnonzero(reading.located)
    rad = choose(S, reading, k=k)
    picked: dict[str, Selection] = {"rad": rad, "medoid": choose(S, reading, k=max(1, len(group)))}
    scalars = _scalars(group)
    trust = None if isinstance(scalars, str) else np.array(scalars["bottom-window"])[members]
    if trust is not None:
        picked["rad+dc"] = choose(S, reading, k=k, confidence="conf50", trust=trust)
    if settings.strict is not None:
        known = reading.anchors if same_anchors(settings.readout, settings.strict) else None
        S, reading = similarity(group, readout=settings.strict, task=task, kernel=kernel, anchors=known)
        picked["strict"] = choose(S, reading, k=k)
        if trust is not None:
            picked["strict+dc"] = choose(S, reading, k=k, confidence="conf50", trust=trust)
    picks: dict[str, int | None] = {name: selection.index for name, selection in picked.items()}
    lengths, steps = [len(rollout) for rollout in group.rollouts], _steps(group, task)
    picks |= {"longest": baselines.highest(lengths), "shortest": baselines.lowest(lengths)}
    picks |= {"most-steps": baselines.highest(steps), "fewest-steps": baselines.lowest(steps)}
    if isinstance(scalars, str):
        missing |= dict.fromkeys(CONFIDENT, scalars)
    else:
        picks["confident"] = baselines.highest(scalars["bottom-window"])
        for vote, name in DEEPCONF.items():
            picks[name] = baselines.deepconf(graded.answers, scalars, vote)
    picks["majority"] = baselines.majority(graded.answers)
    correct = np.array(graded.correct)
    picks["oracle"] = int(correct.argmax()) if correct.any() else None
    return Problem(
        graded.problem_id,
        _counts(graded, correct, rad),
        {name: NO_PICK if index is None else index for name, index in picks.items()},
        {name: index is not None and bool(correct[index]) for name, index in picks.items()},
        missing,
    )


def _counts(graded: Graded, correct: NDArray[np.bool_], rad: Selection) -> dict[str, int]:
    votes = Counter(answer for answer in graded.answers if answer is not None)
    return {
        "rollouts": len(correct),
        "right": int(correct.sum()),
        "answered": votes.total(),
        "distinct": len(votes),
        "plurality": max(votes.values(), default=0),
        "located": int(rad.located.sum()),
        "located_right": int(correct[rad.located].sum()),
        "basin": len(rad.basin),
    }


def _scalars(group: RolloutGroup) -> Scalars | str:
    """DeepConf's scalars of every rollout, or why there are none."""
    found: Scalars = {name: [] for name in SCALARS}
    for i, rollout in enumerate(group.rollouts):
        if rollout.topk_logprobs is None:
            return "no top-k logprobs"
        try:
            scalars = every_scalar(token_confidence(rollout.topk_logprobs))
        except InputError as error:
            return f"rollout {i} of {group.problem_id}: {error}"
        for name, value in scalars.items():
            found[name].append(value)
    return found


def _steps(group: RolloutGroup, task: str) -> list[int]:
    """How many steps each rollout took: action boundaries of an agent, paragraph breaks of everyone else."""
    if task != "agent":
        return [group.vocab.decode_bytes(rollout.token_ids).count(b"\n\n") for rollout in group.rollouts]
    spec = spec_for("boundary", task, group.vocab)
    return [len(find_all(spec, rollout.token_ids, group.vocab)) for rollout in group.rollouts]


# -- many problems ---------------------------------------------------------------------------------------------------

_pool: Pool  # of a worker process


def _measured(pool: Pool, settings: Settings, graded: list[Graded], jobs: int) -> Iterator[Problem]:
    """In the problems' order."""
    if jobs == 1 or sum(len(problem.answers) for problem in graded) < FEW:
        for problem in graded:
            yield measure(pool.group(problem.problem_id), problem, settings)
        return
    source = iter(graded)
    chunks = list(iter(lambda: list(islice(source, CHUNK)), []))
    workers = ProcessPoolExecutor(
        min(jobs, len(chunks)), get_context("spawn"), initializer=_start, initargs=(pool.path,)
    )
    try:
        with _deaf():
            done = workers.map(_work, chunks, [settings] * len(chunks))
        for problems in done:
            yield from problems
    except BrokenProcessPool:
        raise InputError("a worker process died, perhaps for want of memory: try again with --jobs 1") from None
    finally:
        workers.shutdown(cancel_futures=True)


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes started here hear no interrupt: the parent hears it, at the end of the block, and stops them in order."""
    resource_tracker.ensure_running()  # it unblocks the signal when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited, unlike a handler
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(path: Path) -> None:
    global _pool
    _pool = open_pool(path)


def _work(chunk: list[Graded], settings: Settings) -> list[Problem]:
    return [measure(_pool.group(problem.problem_id), problem, settings) for problem in chunk]
