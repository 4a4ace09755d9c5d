"""Loads the problems of a pool with their gold answers: from a data set, a file, a list of answers or the pool's record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from radmoe.errors import InputError
from radmoe.problems import Problem, dataset_named, task_names
from radmoe.problems.gold import load_problems
from radmoe.problems.own import read_rows
from radmoe.problems.records import seed_in
from radmoe.system.foreign import check_recorded
from radmoe.system.plugins import functions
from radmoe.types import check_kind

if TYPE_CHECKING:
    from radmoe.pool import Pool

_ANSWER = '{"problem_id": "...", "answer": "..."}'


def problems_of(
    pool: Pool, *, task: str | None = None, data: str | Path | None = None, seed: int | None = None
) -> dict[str, Problem]:
    """The problems that a pool answers: of this task or file, else those that the pool itself names.

    Problems that a plugin knows by their ids (the lab's say task and seed) are its own. For others the pool's recorded task is
    loaded, from `data` where that is given. `seed` is the one that the ids name, unless it is given. Empty where
    the pool names no task. Raises InputError where a task is unknown or cannot be loaded, and where the pool records the
    dotted path of one: importing it would run code that whoever made the pool chose, so it must be given as `task`.
    """
    if task is None and data is None:
        drawn = {name: problem for find in functions("problems") for name, problem in find(pool.problems).items()}
        if drawn or pool.task is None:
            return drawn
    seed = seed_in(pool.problems) if seed is None else seed
    if task is not None:
        return load_problems(task, data, seed=seed)
    if data is not None:
        return load_problems(_task_of_file(Path(data), pool), data, seed=seed)
    recorded = _registered(pool)
    try:
        return load_problems(recorded, seed=seed)
    except InputError as error:
        raise InputError(f"{pool.path} was captured from {recorded!r}: {error}") from None


def _task_of_file(path: Path, pool: Pool) -> str | None:
    """The data set whose rows a file holds, if the pool records one; None where the file says by itself how to read it."""
    recorded = pool.task
    if recorded is None or recorded == path.stem or ("." not in recorded and recorded not in task_names()):
        return None
    return recorded if dataset_named(_registered(pool)).rows is None else None


def _registered(pool: Pool) -> str:
    """The task that a pool records, if it is in the table of data sets."""
    path = f"--task {pool.task} if that is a Dataset of your own, " if "." in str(pool.task) else ""
    return check_recorded(
        pool.task, task_names(), "task", pool.path, f"give {path}--data FILE of the problems or --answers FILE"
    )


def read_answers(path: str | Path) -> dict[str, Problem]:
    """Problems from a JSONL file of problem_id and answer: an integer, a letter, LaTeX or a text.

    A line may also state the `kind` of its answer; where it does not, the pool's record decides (`grade.answer_key`).
    """
    problems: dict[str, Problem] = {}
    for number, row in read_rows(path, "answers", _ANSWER):
        where = f"{path} line {number}"
        problem_id, answer, kind = row.get("problem_id"), row.get("answer"), row.get("kind")
        if not isinstance(problem_id, str) or isinstance(answer, bool) or not isinstance(answer, str | int | float):
            raise InputError(f"{where}: give {_ANSWER} on each line")
        if not str(answer).strip():
            raise InputError(f"{where}: the answer to {problem_id!r} is empty")
        if problem_id in problems:
            raise InputError(f"{where}: problem {problem_id!r} is there already")
        try:
            known = None if kind is None else check_kind(kind)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        problems[problem_id] = Problem(problem_id, "answers", "", str(answer).strip(), kind=known)
    return problems
