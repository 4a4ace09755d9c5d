"""behaviours.parquet: what each program of a pool returns for the examples that its prompt shows.

Programs that return the same for all of them behave alike, however they are written. Only inputs are taken from the examples:
whether a program returns what the prompt says it should is not looked at. The programs are those of the labels, and they run in
the sandbox, so this is done when somebody asks for it (`radmoe grade --behaviours`) and not by evaluation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from radmoe.errors import InputError, PoolCorrupt
from radmoe.grading.labels import read_labels, write_rows
from radmoe.grading.sources import problems_of
from radmoe.pool import files, open_pool
from radmoe.pool.schema import BEHAVIOURS
from radmoe.pool.tables import BEHAVIOUR_FIELDS, read_table
from radmoe.problems import Problem
from radmoe.problems.base import Content
from radmoe.sandbox import TIMEOUT_S, Sandbox, run_many

_LONGEST_CALL, _MOST_TRIES = 10_000, 1_000  # characters of a call, and places at which calls of a prompt may end
Call = tuple[Any, ...]
Behaviours = dict[str, dict[int, str | None]]  # by problem and rollout index


def visible_calls(prompt: Content, entry: str) -> list[Call]:
    """The arguments of the calls that a prompt shows, such as `f([1, 2]) == 3` or `>>> f([1, 2])`, each once, in order.

    Only calls with plain values count, so the function's own signature does not. A contest's program is not called by its
    prompt: there are none.
    """
    text = prompt if isinstance(prompt, str) else "\n".join(str(message.get("content", "")) for message in prompt)
    calls: dict[str, Call] = {}
    tries = 0
    for match in re.finditer(rf"(?<![\w.]){re.escape(entry)}\(", text):
        line = text[match.start() : match.start() + _LONGEST_CALL].partition("\n")[0]
        for end in (place.end() for place in re.finditer(r"\)", line)):
            tries += 1
            if tries > _MOST_TRIES:
                return list(calls.values())
            arguments = _arguments(line[:end])
            if arguments is not None:
                calls.setdefault(repr(arguments), arguments)
                break
    return list(calls.values())


def behaviour(sandbox: Sandbox, program: str, calls: list[Call], entry: str) -> str | None:
    """What a program returns for each call, one line each; an exception is a line of its own.

    None for a program that does not come to its end, or that returns nothing for any call.
    """
    outcome = sandbox.call(program, entry, calls)
    lines = outcome.data.decode("ascii", "replace").split("\n") if outcome.data else []
    if outcome.failure(partial=False) or len(lines) != len(calls) or all(line[:1] == "!" for line in lines):
        return None
    return "\n".join(lines)


def write_behaviours(
    path: str | Path,
    problems: Mapping[str, Problem] | None = None,
    *,
    jobs: int = 1,
    timeout: float | None = None,
    unconfined: bool = False,
    progress: Callable[[int], object] = lambda done: None,
) -> int:
    """Run every program of a graded pool on its prompt's examples, and write what it returned. Returns how many programs return something.

    Without `problems`, the task that the pool records is loaded. Raises InputError where no prompt shows a call.
    """
    pool = open_pool(path)
    known = problems_of(pool) if problems is None else problems
    calls = {
        name: (visible_calls(problem.prompt, problem.entry), problem.entry)
        for name, problem in known.items()
        if (pool.kinds.get(name) or problem.kind) == "code"
    }
    calls = {name: own for name, own in calls.items() if own[0]}
    labels = [label for own in read_labels(pool.path).values() for label in own.values() if label.problem_id in calls]
    if not labels:
        raise InputError(
            f"{path}: no prompt of a graded program shows a call, such as f([1, 2]) == 3, to tell programs by"
        )
    work: dict[tuple[str, str], Callable[[Sandbox], str | None]] = {}
    for label in labels:
        if label.answer is not None:
            own_calls, entry = calls[label.problem_id]
            piece = partial(behaviour, program=label.answer, calls=own_calls, entry=entry)
            work.setdefault((label.problem_id, label.answer), piece)
    results: dict[tuple[str, str], str | None] = {}
    pieces = list(work.values())
    with closing(run_many(pieces, jobs=jobs, timeout=timeout or TIMEOUT_S, unconfined=unconfined)) as running:
        for key, result in zip(work, running, strict=True):
            results[key] = result
            progress(1)
    rows = [(one.problem_id, one.rollout_index, results.get((one.problem_id, one.answer or ""))) for one in labels]
    write_rows(
        pool.path / BEHAVIOURS, [dict(zip(BEHAVIOUR_FIELDS.names, row, strict=True)) for row in rows], BEHAVIOUR_FIELDS
    )
    return sum(row[2] is not None for row in rows)


def read_behaviours(pool: str | Path) -> Behaviours:
    """The behaviours of a pool by problem and rollout index; empty where `write_behaviours` was never run."""
    path = files.place(pool) / BEHAVIOURS
    if not files.exists(path):
        return {}
    rows = read_table(path, BEHAVIOUR_FIELDS, restore="grade the pool again with --behaviours").to_pylist()
    if any(row["problem_id"] is None or row["rollout_index"] is None for row in rows):
        raise PoolCorrupt(f"{path} has rows without a problem or a rollout: grade the pool again with --behaviours")
    out: Behaviours = {}
    for row in rows:
        out.setdefault(row["problem_id"], {})[row["rollout_index"]] = row["behaviour"]
    return out


def _arguments(call: str) -> Call | None:
    """The arguments of a call of plain values; None where the text is no such call."""
    try:
        node = ast.parse(call, mode="eval").body
        if not isinstance(node, ast.Call) or node.keywords:
            return None
        return tuple(ast.literal_eval(argument) for argument in node.args)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
