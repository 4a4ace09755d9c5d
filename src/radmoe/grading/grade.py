"""Grading a pool: what each rollout answered, and whether that is right.

The only place where answers are read. Math and choice: the last `\\boxed{...}`; code: the last fenced block of what
follows the thinking, run against hidden tests in a sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from radmoe.errors import InputError
from radmoe.grading.labels import Label, write_labels
from radmoe.grading.sandbox import MEMORY, TIMEOUT_S, run_many
from radmoe.lab.tasks import DEFAULT_SEED, TASKS, Problem, named, problems
from radmoe.pool import open_pool

if TYPE_CHECKING:
    from radmoe.pool import Pool

_BOX = "\\boxed{"
_BRACE = re.compile(r"\\boxed\{|[{}]")
_FINAL = ("</think>", "<|channel|>final<|message|>")
_END = re.compile(r"(<\|[a-z_]+\|>|\s)+\Z")
_FENCE = re.compile(r"^([ \t]*)(`{3,})([^`\n]*)$")
_WRAP = re.compile(r"\\(?:text|mathrm|mathbf|textbf|operatorname|mbox|boxed)\s*\{([^{}]*)\}")
_NOISE = re.compile(r"\\[,;!: ]|[$\s*]|\\(?:left|right)(?![A-Za-z])")
_INTEGER = re.compile(r"([+-]?)(\d{1,3}(?:,\d{3})+|\d+)(?:\.0*)?")
_LETTER = re.compile(r"\(?\s*([A-Za-z])\s*\)?\s*(?:$|[.):,])")


@dataclass(frozen=True)
class Summary:
    """How a pool did. `average` is the mean over problems of the share of right rollouts (Avg@N), in [0, 1]."""

    problems: int
    rollouts: int
    graded: int
    parseable: int
    right: int
    average: float


# -- what was answered -----------------------------------------------------------------------------------------------


def boxed(text: str) -> str | None:
    """What stands in the last `\\boxed{...}` whose braces balance; None without one."""
    found, opened = (-1, -1), list[int]()  # where the braces that are open begin; -1 for one that opens no box
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            opened.append(brace.end() if brace[0] == _BOX else -1)
        elif opened:
            start = opened.pop()
            if start > found[0]:
                found = start, brace.start()
    return text[slice(*found)] if found[0] >= 0 else None


def fenced(text: str) -> str | None:
    """The body of the last fenced block behind the thinking; one left open runs to the end. None without one."""
    for marker in _FINAL:
        if marker in text:
            text = text.rpartition(marker)[2]
    found: list[str] | None = None
    opened: tuple[str, int] | None = None
    for line in _END.sub("", text).split("\n"):
        fence = _FENCE.match(line.rstrip("\r"))
        if opened is None:
            if fence:
                opened, found = (fence[1], len(fence[2])), []
        elif fence and not fence[3].strip() and len(fence[2]) >= opened[1] and len(fence[1]) <= len(opened[0]) + 3:
            opened = None
        elif found is not None:
            found.append(line.removeprefix(opened[0]))
    return None if found is None else "\n".join(found)


def normalise(kind: str, answer: str) -> str | None:
    """One string per answer: an integer without ornament, a capital letter, or the text itself; None if empty."""
    if kind == "code":
        return answer.strip("\n").rstrip() or None
    before = None
    while before != answer:
        before, answer = answer, _WRAP.sub(r"\1", answer)
    if kind == "choice":
        letter = _LETTER.match(_NOISE.sub(" ", answer).strip())
        return letter[1].upper() if letter else _NOISE.sub("", answer) or None
    plain = _NOISE.sub("", answer).replace("{,}", ",")
    integer = _INTEGER.fullmatch(plain.rstrip("."))
    if integer is None:
        return plain or None
    digits = integer[2].replace(",", "").lstrip("0") or "0"
    return ("-" if integer[1] == "-" and digits != "0" else "") + digits


def extract(kind: str, text: str) -> str | None:
    """The normalised answer of a rollout; None where there is none."""
    found = fenced(text) if kind == "code" else boxed(text)
    return None if found is None else normalise(kind, found)


# -- what is right ---------------------------------------------------------------------------------------------------


def kind_of(problem: Problem) -> str:
    """math, choice or code: from the task, or for a problem of one's own from its tests and answer."""
    if problem.task in TASKS:
        return TASKS[problem.task].kind
    if problem.tests:
        return "code"
    return "choice" if re.fullmatch(r"[A-Za-z]", problem.answer) else "math"


def read_answers(path: Path) -> dict[str, Problem]:
    """Problems from a JSONL file of problem_id and answer: an integer, a letter or any other string."""
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
        normal = normalise(kind_of(problem), problem.answer)
        if normal is None:
            raise InputError(f"{path}, line {number}: the answer to {problem_id!r} is empty")
        found[problem_id] = Problem(problem_id, "answers", "", normal)
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
    timeout: float = TIMEOUT_S,
    memory: int = MEMORY,
    progress: Callable[[int], object] = lambda done: None,
) -> Summary:
    """Write a pool's labels, and say how it did. Without problems, the lab's own are found by their ids.

    Rollouts of problems that are not among them get no label. `progress` is told of every rollout that is done.
    """
    pool = open_pool(path)
    if against is None:
        against = problems_of(pool)
    known = dict(against) if isinstance(against, Mapping) else {problem.problem_id: problem for problem in against}
    asked = [problem_id for problem_id in pool.problems if problem_id in known]
    if not asked:
        have = ", ".join(map(repr, pool.problems[:3])) or "none"
        raise InputError(
            f"{path} holds problems ({have}) that are not among the {len(known)} known: give --task or --answers"
        )
    labels = [label for problem_id in asked for label in _extracted(pool, known[problem_id])]
    labels = list(_judged(labels, known, jobs, timeout, memory, progress))
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


def _extracted(pool: Pool, problem: Problem) -> Iterable[Label]:
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
    timeout: float,
    memory: int,
    progress: Callable[[int], object],
) -> Iterable[Label]:
    programs = [
        (label.answer, known[label.problem_id].tests)
        for label in labels
        if label.answer is not None and known[label.problem_id].tests
    ]
    verdicts = run_many(programs, jobs=jobs, timeout=timeout, memory=memory)
    for label in labels:
        problem = known[label.problem_id]
        if label.answer is None:
            correct = False
        elif problem.tests:
            correct = next(verdicts).passed
        else:
            correct = label.answer == problem.answer
        progress(1)
        yield label._replace(correct=correct)
