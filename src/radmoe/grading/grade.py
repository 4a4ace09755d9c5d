"""Grading a pool: which rollouts are right. The only place where answers are held against the truth.

Integers and letters are compared as normalised, LaTeX by equivalence classes, programs by hidden tests in a sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from radmoe.errors import InputError
from radmoe.grading import equivalence
from radmoe.grading.answers import extract, normalise
from radmoe.grading.benchmarks import BENCHMARKS, listed
from radmoe.grading.equivalence import Classes, Equivalence
from radmoe.grading.labels import Label, write_labels
from radmoe.lab.tasks import DEFAULT_SEED, TASKS, Problem, named, problems
from radmoe.pool import open_pool
from radmoe.sandbox import run as sandbox
from radmoe.sandbox.run import run_many

if TYPE_CHECKING:
    from radmoe.pool import Pool

CONTEST_TIMEOUT_S = 6.0  # per test, as LiveCodeBench has it
CONTEST_MEMORY = 1 << 30


@dataclass(frozen=True)
class Summary:
    """How a pool did. `average` is the mean over problems of the share of right rollouts (Avg@N), in [0, 1]."""

    problems: int
    rollouts: int
    graded: int
    parseable: int
    right: int
    average: float


def kind_of(problem: Problem) -> str:
    """math, latex, choice or code: from the task or dataset, or for a problem of one's own from its tests and answer."""
    if problem.task in TASKS:
        return TASKS[problem.task].kind
    if problem.task in BENCHMARKS:
        return BENCHMARKS[problem.task].kind
    if problem.tests:
        return "code"
    if re.fullmatch(r"[A-Za-z]", problem.answer):
        return "choice"
    return "math" if re.fullmatch(r"-?\d+", normalise("math", problem.answer) or "") else "latex"


def read_answers(path: Path) -> dict[str, Problem]:
    """Problems from a JSONL file of problem_id and answer: an integer, a letter, or LaTeX."""
    found = {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            problem_id, answer = row["problem_id"], row["answer"]
        except (ValueError, KeyError, TypeError):
            problem_id = answer = None
        if not isinstance(problem_id, str) or isinstance(answer, bool) or not isinstance(answer, str | int | float):
            raise InputError(f'{path}, line {number}: give {{"problem_id": "...", "answer": "..."}} on each line')
        problem = Problem(problem_id, "answers", "", str(answer).strip())
        if normalise(kind_of(problem), problem.answer) is None:
            raise InputError(f"{path}, line {number}: the answer to {problem_id!r} is empty")
        found[problem_id] = problem
    if not found:
        raise InputError(f"{path} holds no answers")
    return found


def problems_of(pool: Pool, *, task: str | None = None, seed: int | None = None) -> dict[str, Problem]:
    """The lab problems a pool answers: of this task, else by the problems' own ids, else as its sampling says."""
    said = pool.sampling or {}
    if task is None:
        found = named(pool.problems)
        if found or not isinstance(said.get("task"), str):
            return found
        task = said["task"]
    if seed is None:
        seed = said["seed"] if isinstance(said.get("seed"), int) else DEFAULT_SEED
    return {problem.problem_id: problem for problem in problems(task, seed=seed)}


def grade_pool(
    path: str | Path,
    against: Mapping[str, Problem] | Iterable[Problem] | None = None,
    *,
    jobs: int = 1,
    timeout: float | None = None,
    memory: int | None = None,
    progress: Callable[[int], object] = lambda done: None,
) -> Summary:
    """Write a pool's labels, and say how it did. Without problems, the lab's own are found by their ids.

    Rollouts of problems that are not among them get no label. `timeout` is in seconds: of CPU per program (1) or, of
    a contest, per test (6); of wall time per comparison of LaTeX (3). `progress` is told of every rollout done.
    """
    pool = open_pool(path)
    if against is None:
        against = problems_of(pool)
    known = dict(against) if isinstance(against, Mapping) else {problem.problem_id: problem for problem in against}
    asked = [known[problem_id] for problem_id in pool.problems if problem_id in known]
    if not asked:
        have, want = (", ".join(map(repr, list(ids)[:3])) or "none" for ids in (pool.problems, known))
        raise InputError(
            f"{path} holds problems ({have}) that are not among the {len(known)} known ({want}): "
            "give the --dataset, --task or --answers they come from"
        )
    _check_options(pool, {problem.problem_id: problem for problem in asked if problem.options})
    extracted = [label for problem in asked for label in _extracted(pool, problem)]
    labels = list(_judged(extracted, known, jobs, timeout, memory, progress))
    write_labels(path, labels)
    right: dict[str, list[bool]] = {}
    for label in labels:
        right.setdefault(label.problem_id, []).append(label.correct)
    return Summary(
        problems=len(asked),
        rollouts=len(pool),
        graded=len(labels),
        parseable=sum(label.answer is not None for label in labels),
        right=sum(label.correct for label in labels),
        average=sum(sum(marks) / len(marks) for marks in right.values()) / len(right),
    )


def _check_options(pool: Pool, shuffled: Mapping[str, Problem]) -> None:
    """A letter means what the prompt said it means: refuse a pool whose prompts show other options."""
    if not shuffled:
        return
    runs = pool.runs(["problem_id", "prompt"]).to_pydict()
    for problem_id, prompt in dict.fromkeys(zip(runs["problem_id"], runs["prompt"], strict=True)):
        if prompt is not None and problem_id in shuffled and listed(shuffled[problem_id].options) not in prompt:
            raise InputError(
                f"{pool.path}: the prompt of {problem_id!r} does not show its options as they are now shuffled: "
                "give the --seed and --data its prompts were written with"
            )


def _extracted(pool: Pool, problem: Problem) -> Iterator[Label]:
    """A problem's rollouts with their answers, not yet judged. Text that was not kept is spelled from the tokens."""
    kind, texts = kind_of(problem), pool.texts(problem.problem_id)
    if None in texts:
        rollouts = pool.group(problem.problem_id).rollouts
        spelled = (pool.vocab.decode_bytes(rollout.token_ids).decode("utf-8", "replace") for rollout in rollouts)
        texts = [other if text is None else text for text, other in zip(texts, spelled, strict=True)]
    for index, text in zip(pool.rollout_indices(problem.problem_id), texts, strict=True):
        yield Label(problem.problem_id, index, extract(kind, text or ""), False)


def _judged(
    labels: list[Label],
    known: Mapping[str, Problem],
    jobs: int,
    timeout: float | None,
    memory: int | None,
    progress: Callable[[int], object],
) -> Iterator[Label]:
    programs = [
        (label.answer, problem.tests, problem.entry)
        for label in labels
        if label.answer is not None and (problem := known[label.problem_id]).tests
    ]
    contest = any(entry != "f" for *_, entry in programs)
    verdicts = run_many(
        programs,
        jobs=jobs,
        timeout=timeout or (CONTEST_TIMEOUT_S if contest else sandbox.TIMEOUT_S),
        memory=memory or (CONTEST_MEMORY if contest else sandbox.MEMORY),
    )
    classes: dict[str, Classes] = {}
    with Equivalence(timeout=timeout or equivalence.TIMEOUT_S) as equal:
        for label in labels:
            problem = known[label.problem_id]
            if label.answer is None:
                correct = False
            elif problem.tests:
                correct = next(verdicts).passed
            elif (kind := kind_of(problem)) == "latex":
                found = classes.setdefault(label.problem_id, Classes(equal, problem.answer))
                label = label._replace(answer=found.add(label.answer))
                correct = label.answer == found.gold
            else:
                correct = label.answer == normalise(kind, problem.answer)
            progress(1)
            yield label._replace(correct=correct)
