"""A task of a replication: captured, graded, and what each method did on each of its problems."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from radmoe.capture import Plan
from radmoe.cli.capturing import capture_with_bar
from radmoe.errors import InputError, PoolError, PoolNotFound
from radmoe.grading import grade_pool
from radmoe.grading.labels import read_labels
from radmoe.pool import open_pool
from radmoe.problems import Problem, Question, load_questions
from radmoe.problems.gold import load_problems
from radmoe.system.printing import bar, visible
from radmoe_studies.base import Options
from radmoe_studies.beyond.adaptive import ARMS, DEEPCONF, WIDTH, measure, request_of
from radmoe_studies.evidence import Panel, gather
from radmoe_studies.online_filter import window_lows
from radmoe_studies.replicate.choose import Choice, choices
from radmoe_studies.replicate.configs import PaperConfiguration
from radmoe_studies.replicate.document import COUNTS, KINDS, finite
from radmoe_studies.replicate.setup import Setup

ORDERS = 200  # of arrival, over which DeepConf's online filter and RAD at its tokens are averaged
_LONGEST = 500  # characters of a reason


class ReplicatedTask(NamedTuple):
    """The problems of a task, and where its rollouts go."""

    name: str
    questions: list[Question]
    problems: dict[str, Problem]
    pool: Path

    @classmethod
    def load(
        cls, config: PaperConfiguration, name: str, data: Path | None, limit: int | None, out: Path
    ) -> ReplicatedTask:
        """Load a task from the hub, or from TASK.jsonl in a directory `data`, or from a file `data`, with its gold answers."""
        file = data
        if data is not None and data.is_dir():
            file = data / f"{name}.jsonl" if (data / f"{name}.jsonl").exists() else None
        questions, _ = load_questions(name, file, limit=limit)
        if {question.kind for question in questions} - set(KINDS):
            raise InputError(f"{name} is not of kind {', '.join(KINDS)}: choose among {', '.join(config.tasks)}")
        problems = load_problems(name, file)
        asked = {question.problem_id: problems[question.problem_id] for question in questions}
        return cls(name, questions, asked, out / "pools" / name)

    @property
    def digest(self) -> str:
        """What tells these questions from others under the same ids."""
        body = json.dumps([[one.problem_id, one.content] for one in self.questions], sort_keys=True, default=list)
        return hashlib.sha256(body.encode()).hexdigest()

    def refuse_more(self, n: int) -> None:
        """InputError where the pool holds more than n rollouts, or problems that are not asked. An unfinished one is not looked at."""
        try:
            pool = open_pool(self.pool)
        except PoolError:
            return
        most = max((len(pool.rollout_indices(problem)) for problem in pool.problems), default=0)
        if most > n or set(pool.problems) - set(self.problems):
            raise self.differs(len(pool.problems), most, n)

    def differs(self, problems: int, rollouts: int, n: int) -> InputError:
        """The error for a pool of so many problems and rollouts, where n rollouts of each of the task's were asked for."""
        return InputError(
            f"{self.pool} holds {problems} problems x {rollouts} rollouts, and {len(self.problems)} x {n} were asked "
            "for: give -n and --limit as they were, or another --out"
        )


def capture(task: ReplicatedTask, setup: Setup, n: int) -> None:
    """Sample what the task's pool lacks."""
    plan = Plan(
        task.questions,
        setup.engine,
        setup.sampling,
        setup.profile,
        n=n,
        task=task.name,
        style=setup.style,
        batch_size=setup.batch_size,
    )
    capture_with_bar(lambda: plan, task.pool)


def grade(task: ReplicatedTask, jobs: int) -> None:
    """Label the rollouts of a task, unless all of them are labelled."""
    pool = open_pool(task.pool)
    try:
        labels = read_labels(task.pool)
    except PoolNotFound:
        labels = {}
    if all(set(pool.rollout_indices(problem)) <= labels.get(problem, {}).keys() for problem in pool.problems):
        return
    with bar(f"grading {task.name}", total=len(pool)) as update:
        grade_pool(task.pool, task.problems, jobs=jobs, progress=lambda done: update(advance=done))


def choose(task: ReplicatedTask, setup: Setup) -> list[Choice]:
    """Let the model choose among its own answers to every problem of the task."""
    with bar(f"choosing by the model, {task.name}", "problems") as update:
        kept = task.pool.parent / f"{task.name}.choices.jsonl"
        return choices(setup, open_pool(task.pool), task.questions, kept, lambda done, of: update(done, of))


def measured(
    task: ReplicatedTask, config: PaperConfiguration, made: Sequence[Choice] | None, jobs: int
) -> dict[str, Any]:
    """The cell of a task for the document: what every registered method did, problem by problem."""
    evidence = gather([task.pool], confidence_window=config.confidence_window, jobs=jobs)
    (panel,) = evidence.panels
    problems, n = set(panel.problem_ids), {len(marks.correct) for marks in panel.marks.values()}
    if problems != set(task.problems) or n != {config.n}:
        raise task.differs(len(problems), max(n), config.n)
    with bar(f"evaluating {task.name}") as update:
        outcomes = panel.measure(update)
    request = request_of(panel, "paper")
    evidence.read(lambda _: [] if request is None else [request])
    hits = {name: finite(values) for name, values in outcomes.hits.items()}
    return {
        "task": task.name,
        "kind": str(panel.kind),
        "questions": task.digest,
        "problems": list(panel.problem_ids),
        "tokens": np.where(panel.here, panel.lengths, 0).sum(1).tolist(),
        "counts": {name: outcomes.counts[name].tolist() for name in COUNTS},
        "hits": {name: values for name, values in hits.items() if values is not None},
        "missing": {name: visible(reason)[:_LONGEST] for name, reason in outcomes.missing.items()},
        "equal_tokens": _equal_tokens(panel),
        "choice": None if made is None else _chosen(panel, made),
    }


def _equal_tokens(panel: Panel) -> dict[str, Any]:
    """DeepConf's online filter, and what RAD picks among as many rollouts as cost the same on the same problem."""
    lows = window_lows(panel)
    if lows is None:
        return {}
    most = int(panel.here.sum(1).min())
    table = measure(panel, "paper", most, Options(subcohorts=ORDERS), lows, None).table
    fixed, cost = table[:, :most], table[:, most : 2 * most]
    out = {}
    for arm in DEEPCONF:
        at = 3 * most + WIDTH * ARMS.index(arm)
        right, spent = table[:, at], table[:, at + 1]
        rad = [np.interp(tokens, *row) for tokens, *row in zip(spent, cost, fixed, strict=True)]
        parts = {"hits": finite(right), "tokens": finite(spent), "rad": finite(rad)}
        if None not in parts.values():
            out[arm.name] = parts
    return out


def _chosen(panel: Panel, made: Sequence[Choice]) -> dict[str, Any]:
    """The model's choices as a document has them."""
    picks = [panel.correct[row, one.pick] if one.pick >= 0 else False for row, one in enumerate(made)]
    return {
        "hits": [float(right) for right in picks],
        "tokens": [one.tokens for one in made],
        "shown": [one.shown for one in made],
        "named": [int(one.pick >= 0) for one in made],
    }
