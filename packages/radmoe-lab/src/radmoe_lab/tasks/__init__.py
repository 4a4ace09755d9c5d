"""The lab's tasks: seeded, endless, exactly graded, train and test disjoint by construction.

A problem's content (the chain of arithmetic, or what the function computes) decides by its hash whether it is a
test problem, so no training example can be one, whatever the seed. Wording is drawn apart from content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from random import Random

from radmoe.errors import InputError
from radmoe.problems import DEFAULT_SEED, Content, Problem
from radmoe.types import Kind
from radmoe_lab.tasks.base import STYLES, Example, check_style
from radmoe_lab.tasks.code import code_example, code_problem
from radmoe_lab.tasks.draw import seeded
from radmoe_lab.tasks.explain import explain_example, explain_problem
from radmoe_lab.tasks.long_choice import long_choice_example, long_choice_problem
from radmoe_lab.tasks.long_code import long_code_example, long_code_problem
from radmoe_lab.tasks.long_math import long_math_example, long_math_problem
from radmoe_lab.tasks.maths import choice_example, choice_problem, math_example, math_problem

__all__ = [
    "ALL_TASKS",
    "DEFAULT_SEED",
    "LONG_TASKS",
    "STYLES",
    "TASKS",
    "Example",
    "Task",
    "named",
    "problems",
    "stream",
    "task_named",
    "training_example",
]

_ID = re.compile(r"(?P<task>[a-z]+(-\d|-[a-z]+)?)(-s(?P<seed>-?\d{1,18}))?-(?P<number>\d{3,9})")
_MOST = 10_000  # problems drawn to find those of one pool by their ids


@dataclass(frozen=True)
class Task:
    """A task: the kind of its answers, how many test problems it has, and its share of the training text."""

    name: str
    kind: Kind
    size: int
    share: float
    draw: Callable[[Random, str], Problem]
    example: Callable[[Random, str], Example]


def _math(name: str, share: float) -> Task:
    return Task(
        name,
        "math",
        30,
        share,
        lambda rng, problem_id: math_problem(rng, name, problem_id, test=True)[0],
        lambda rng, style: math_example(rng, name, style),
    )


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        *(_math(f"math-{level}", 0.11) for level in (1, 2, 3, 4)),
        Task("choice", "choice", 198, 0.20, lambda rng, name: choice_problem(rng, name, test=True)[0], choice_example),
        Task("code", "code", 167, 0.12, lambda rng, name: code_problem(rng, name, test=True)[0], code_example),
        Task(
            "code-wide",
            "code",
            120,
            0.14,
            lambda rng, name: code_problem(rng, name, test=True, wide=True)[0],
            partial(code_example, wide=True),
        ),
        Task("explain", "text", 120, 0.10, lambda rng, name: explain_problem(rng, name, test=True)[0], explain_example),
    )
}

# Tasks of 500 to 1,500 tokens, of the models in `models.LONG` alone. Their shares are those among each other.
LONG_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "long-math",
            "math",
            200,
            0.32,
            lambda rng, name: long_math_problem(rng, name, test=True)[0],
            long_math_example,
        ),
        Task(
            "long-code",
            "code",
            400,
            0.43,
            lambda rng, name: long_code_problem(rng, name, test=True)[0],
            long_code_example,
        ),
        Task(
            "long-choice",
            "choice",
            200,
            0.25,
            lambda rng, name: long_choice_problem(rng, name, test=True)[0],
            long_choice_example,
        ),
    )
}
ALL_TASKS = TASKS | LONG_TASKS


def task_named(name: str) -> Task:
    if name not in ALL_TASKS:
        raise InputError(f"unknown task {name!r}: use one of {', '.join(ALL_TASKS)}")
    return ALL_TASKS[name]


def stream(task: str, *, seed: int = DEFAULT_SEED) -> Iterator[Problem]:
    """Yield test problems without end, no two with the same prompt. Their ids contain the seed unless it is the
    default.
    """
    drawn = task_named(task)
    rng = seeded("problems", task, seed)
    prefix = task if seed == DEFAULT_SEED else f"{task}-s{seed}"
    seen: set[Content] = set()
    while True:
        problem = drawn.draw(rng, f"{prefix}-{len(seen):03d}")
        if problem.prompt not in seen:
            seen.add(problem.prompt)
            yield problem


def problems(task: str, *, seed: int = DEFAULT_SEED, limit: int | None = None) -> list[Problem]:
    """The task's test problems, or the first `limit` of them; another seed draws fresh ones."""
    size = task_named(task).size
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}")
    return list(islice(stream(task, seed=seed), size if limit is None else min(limit, size)))


def named(problem_ids: Iterable[str]) -> dict[str, Problem]:
    """Return the problems with these ids, which contain task and seed. Unknown ids are left out."""
    wanted: dict[tuple[str, int], set[str]] = {}
    for problem_id in problem_ids:
        match = _ID.fullmatch(problem_id)
        if match and match["task"] in ALL_TASKS and int(match["number"]) < _MOST:
            wanted.setdefault((match["task"], int(match["seed"] or DEFAULT_SEED)), set()).add(problem_id)
    problems_by_id: dict[str, Problem] = {}
    lasts = {key: max(int(problem_id.rpartition("-")[2]) for problem_id in ids) for key, ids in wanted.items()}
    if (drawn := sum(lasts.values()) + len(lasts)) > _MOST:
        raise InputError(
            f"these ids name problems of {len(lasts)} draws, {drawn:,} in all, and at most {_MOST:,} are drawn to find them: give "
            "the problems with --task, --data or --answers"
        )
    for (task, seed), ids in wanted.items():
        last = lasts[task, seed]
        problems_by_id |= {p.problem_id: p for p in islice(stream(task, seed=seed), last + 1) if p.problem_id in ids}
    return problems_by_id


def training_example(
    rng: Random, *, style: str, task: str | None = None, shares: Mapping[str, float] | None = None
) -> Example:
    """Draw a worked training problem, of this task or of a random one by its share; about 0.1 ms, a long one 1 ms.

    `shares` overrides the usual shares of tasks; long ones have none unless it gives them.
    """
    check_style(style)
    if task is not None:
        return task_named(task).example(rng, style)
    weights = {name: each.share for name, each in TASKS.items()} | dict(shares or {})
    u = rng.random() * sum(weights.values())
    for name, weight in weights.items():
        u -= weight
        if u < 0:
            return ALL_TASKS[name].example(rng, style)
    return TASKS["code"].example(rng, style)
