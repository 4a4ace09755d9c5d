"""Grades a pool: decides which rollouts are right. Answers are compared with gold answers only here.

Mathematics is compared by equivalence classes (`equivalence.py`), letters and texts by their one spelling (`choices.py`,
`texts.py`), and programs by hidden tests in a sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radmoe.errors import InputError
from radmoe.grading import equivalence
from radmoe.grading.answers import extract, normalise
from radmoe.grading.choices import letter_of
from radmoe.grading.equivalence import Classes, Equivalence
from radmoe.grading.labels import Label, write_labels
from radmoe.grading.sources import problems_of
from radmoe.grading.texts import TextClasses, text_key
from radmoe.pool import open_pool
from radmoe.problems import Problem
from radmoe.problems.datasets import listed
from radmoe.selection.closing import BOX

if TYPE_CHECKING:
    from radmoe.grading.programs import Verdict
    from radmoe.pool import Pool
    from radmoe.types import Kind

CONTEST_TIMEOUT_S = 6.0  # per test, as LiveCodeBench has it
CONTEST_MEMORY = 1 << 30
_LETTERS = "ABCDEFGHIJ"
_OPTION = re.compile(r"(?:^|[\n\s])[*(]{0,3}([A-Ja-j])[*]{0,2}[).:\]]", re.MULTILINE)  # "A) 12", "(b) 12", "**C.** 12"


@dataclass(frozen=True)
class Summary:
    """The result of grading a pool. `average` is the mean over problems of the share of right rollouts (Avg@N), in [0, 1].

    `unmarked` counts the answers to math and choice problems in rollouts without a `\\boxed{`, which is what selection
    looks for: those in an `\\fbox{...}` or a box without braces, and letters that are stated in words.
    """

    problems: int
    rollouts: int
    graded: int
    parseable: int
    unmarked: int
    right: int
    average: float


@dataclass(frozen=True)
class AnswerKey:
    """One problem, the kind of its answers, and how to read them.

    `integer` says whether a math answer is a whole number. `letters` are those of the options of a choice; empty where
    nothing says which there are.
    """

    problem: Problem
    kind: Kind
    integer: bool
    letters: str = ""

    def extract(self, text: str) -> str | None:
        """The normalised answer of a rollout to this problem; None where there is none."""
        return extract(self.kind, text, integer=self.integer, letters=self.letters)


def answer_key(problem: Problem, recorded: Kind | None = None, prompt: str | None = None) -> AnswerKey:
    """How the answers to a problem are compared.

    The kind is the problem's own, else the one that the pool recorded, else what tests, the answer and the prompt tell.
    A problem with tests is code. An answer of a single letter is a choice if the prompt lists options under letters; if
    there is no prompt to look at, a capital from A to J is, and any other letter is a variable. All else is math. A math
    answer is a whole number where the data set says so, or where it says nothing and the right answer is one. The options
    of a choice have the letters under which the data set or the prompt lists them, if the right one is among them.
    """
    kind = problem.kind or recorded
    if kind is None:
        kind = "code" if problem.tests else "choice" if _is_choice(problem, prompt) else "math"
    integer = problem.integer
    if integer is None:
        integer = re.fullmatch(r"-?\d+", normalise("math", problem.answer) or "") is not None
    return AnswerKey(problem, kind, integer, _letters(problem, prompt) if kind == "choice" else "")


def _letters(problem: Problem, prompt: str | None) -> str:
    """The letters of a choice's options, from A on; empty where the problem does not tell, or tells too few."""
    listed = _listed_letters(problem, prompt)
    letters = _LETTERS[: len(problem.options)] or "".join(takewhile(listed.__contains__, _LETTERS))
    return letters if len(letters) > 1 and set(letter_of(problem.answer) or "") <= set(letters) else ""


def _listed_letters(problem: Problem, prompt: str | None) -> set[str]:
    """The letters under which the prompt lists something; the recorded prompt, or else the problem's own."""
    own = problem.prompt
    if not isinstance(own, str):
        own = "\n".join(str(message.get("content")) for message in own)
    return {match[1].upper() for match in _OPTION.finditer(prompt or own)}


def _is_choice(problem: Problem, prompt: str | None) -> bool:
    letter = problem.answer.strip()
    if re.fullmatch(r"[A-Za-z]", letter) is None:
        return False
    if not prompt and not problem.prompt:
        return letter in _LETTERS
    return {"A", "B", letter.upper()} <= _listed_letters(problem, prompt)


def grade_pool(
    path: str | Path,
    problems: Mapping[str, Problem] | Iterable[Problem] | None = None,
    *,
    jobs: int = 1,
    timeout: float | None = None,
    unconfined: bool = False,
    progress: Callable[[int], object] = lambda done: None,
) -> Summary:
    """Grade a pool, write its labels and return a summary. Without `problems`, the task that the pool records is loaded.

    Rollouts of problems that are not among them get no label. `timeout` is in seconds: of CPU per program (1) or, in
    a contest, per test (6); of wall time per comparison of LaTeX (3). `progress` is called with 1 for every rollout
    done. With `unconfined`, programs are run even where the system cannot confine them. Raises InputError where nothing
    can be graded, or where pool and problems disagree about a kind.
    """
    pool = open_pool(path)
    if "agent" in pool.kinds.values():
        raise InputError(f"{path} holds trajectories of kind agent: patches cannot be graded yet")
    if problems is None:
        problems = problems_of(pool)
    known = dict(problems) if isinstance(problems, Mapping) else {problem.problem_id: problem for problem in problems}
    prompts = dict(_prompts(pool, {i for i, kind in pool.kinds.items() if i in known and _is_unclear(known[i], kind)}))
    keys = {
        problem_id: _checked_key(known[problem_id], recorded, prompts.get(problem_id), path)
        for problem_id, recorded in pool.kinds.items()
        if problem_id in known
    }
    if not keys:
        have, want = (", ".join(map(repr, list(ids)[:3])) or "none" for ids in (pool.problems, known))
        raise InputError(
            f"{path} holds problems ({have}) that are not among the {len(known)} known ({want}): "
            "give the --task, --data or --answers they come from"
        )
    _check_options(pool, {problem_id: key.problem for problem_id, key in keys.items() if key.problem.options})
    without_box: set[tuple[str, int]] = set()
    labels = grade_texts(
        keys,
        _noted(_texts(pool, keys), without_box),
        jobs=jobs,
        timeout=timeout,
        unconfined=unconfined,
        progress=progress,
    )
    write_labels(path, labels)
    right: dict[str, list[bool]] = {}
    for label in labels:
        right.setdefault(label.problem_id, []).append(label.correct)
    return Summary(
        problems=len(keys),
        rollouts=len(pool),
        graded=len(labels),
        parseable=sum(label.answer is not None for label in labels),
        unmarked=sum(
            label.answer is not None
            and keys[label.problem_id].kind in ("math", "choice")
            and (label.problem_id, label.rollout_index) in without_box
            for label in labels
        ),
        right=sum(label.correct for label in labels),
        average=sum(sum(marks) / len(marks) for marks in right.values()) / len(right),
    )


def grade_texts(
    keys: Mapping[str, AnswerKey],
    texts: Iterable[tuple[str, int, str]],
    *,
    timeout: float | None = None,
    progress: Callable[[int], object] = lambda done: None,
    **programs: Any,
) -> list[Label]:
    """The labels of rollouts, each given as problem, rollout index and text; the options are those of `grade_pool`.

    Those of `programs` say how programs are run (`judge_many`).
    """
    extracted = [Label(problem_id, index, keys[problem_id].extract(text), False) for problem_id, index, text in texts]
    verdicts = _verdicts(extracted, keys, timeout, **programs)
    return list(_judged(extracted, keys, verdicts, timeout, progress))


def _prompts(pool: Pool, problem_ids: Collection[str]) -> list[tuple[str, str]]:
    """The recorded prompts of these problems, each once, with the problem's id."""
    if not problem_ids:
        return []
    runs = pool.runs(["problem_id", "prompt"]).to_pydict()
    shown = dict.fromkeys(zip(runs["problem_id"], runs["prompt"], strict=True))
    return [(problem_id, prompt) for problem_id, prompt in shown if prompt is not None and problem_id in problem_ids]


def _is_unclear(problem: Problem, recorded: Kind | None) -> bool:
    """Whether the recorded prompt must tell the kind of a problem, or the letters of its options."""
    kind = problem.kind or recorded
    return kind is None or (kind == "choice" and not problem.options and not problem.prompt)


def _noted(texts: Iterable[tuple[str, int, str]], without_box: set[tuple[str, int]]) -> Iterator[tuple[str, int, str]]:
    """Passes texts through, and adds the rollouts in which selection finds no box to a set."""
    for problem_id, index, text in texts:
        if BOX not in text:
            without_box.add((problem_id, index))
        yield problem_id, index, text


def _checked_key(problem: Problem, recorded: Kind | None, prompt: str | None, path: str | Path) -> AnswerKey:
    key = answer_key(problem, recorded, prompt)
    where = f"problem {problem.problem_id!r}"
    if recorded is not None and key.kind != recorded:
        raise InputError(
            f"{path} records that {where} is of kind {recorded}, but in {problem.task} it is of kind {key.kind}: grade the "
            f"pool against what it was captured from, or replay it with radmoe replay {path} --kind {key.kind}"
        )
    if key.kind == "agent":
        raise InputError(f"{where} is of kind agent: patches cannot be graded yet")
    if key.kind == "code" and not problem.tests:
        raise InputError(
            f"{where} is of kind code, and only tests can tell whether a program is right: give --task or --data with the "
            "problem's tests (see docs/grading.md for their form)"
        )
    if key.kind != "code" and not problem.answer:
        raise InputError(f"{where} is of kind {key.kind} and has no answer to compare with")
    return key


def _check_options(pool: Pool, shuffled: Mapping[str, Problem]) -> None:
    """Refuse a pool whose prompts show the options in another order: a letter means what the prompt says it means."""
    for problem_id, prompt in _prompts(pool, shuffled):
        if listed(shuffled[problem_id].options) not in prompt:
            raise InputError(
                f"{pool.path}: the prompt of {problem_id!r} does not show its options as they are now shuffled: "
                "give the --seed and --data that it was captured with"
            )


def _texts(pool: Pool, problem_ids: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """The rollouts of problems as texts, with their indices."""
    for problem_id in problem_ids:
        for index, text in zip(pool.rollout_indices(problem_id), pool.texts(problem_id), strict=True):
            yield problem_id, index, text


def _judged(
    labels: list[Label],
    keys: Mapping[str, AnswerKey],
    verdicts: Iterator[Verdict],
    timeout: float | None,
    progress: Callable[[int], object],
) -> Iterator[Label]:
    """The labels, each with whether its answer is right. An answer becomes the one that stands for its class."""
    with Equivalence(timeout=timeout or equivalence.TIMEOUT_S) as equal:
        classes: dict[str, Classes | TextClasses] = {}
        for label in labels:
            key = keys[label.problem_id]
            if label.answer is None:
                correct = False
            elif key.kind == "code":
                correct = next(verdicts).passed
            else:
                if label.problem_id not in classes:
                    classes[label.problem_id] = _classes(key, equal)
                answers = classes[label.problem_id]
                same_meaning = _means_the_same(key.problem, label.answer)
                label = label._replace(answer=answers.add(label.answer))
                correct = same_meaning or label.answer == answers.gold
            progress(1)
            yield label._replace(correct=correct)


def _means_the_same(problem: Problem, answer: str) -> bool:
    """Whether a text means the same as the gold answer, where the data set defines what texts mean."""
    if problem.meaning is None:
        return False
    meaning = problem.meaning(answer)
    return meaning is not None and meaning == problem.meaning(problem.answer)


def _classes(key: AnswerKey, equal: Equivalence) -> Classes | TextClasses:
    """The object that sorts the answers to a problem into classes: by value, by letter, or by text."""
    if key.kind == "math":
        return Classes(equal, key.problem.answer, integer=key.integer)
    gold = normalise(key.kind, key.problem.answer, letters=key.letters) or ""
    return TextClasses(gold, partial(letter_of, letters=key.letters) if key.kind == "choice" else text_key)


def _verdicts(
    labels: list[Label],
    keys: Mapping[str, AnswerKey],
    timeout: float | None,
    **limits: Any,
) -> Iterator[Verdict]:
    """Verdicts on the programs among the answers, in order. The sandbox is not imported where there are none."""
    programs = [
        (label.answer, key.problem.tests, key.problem.entry, key.problem.bare)
        for label in labels
        if label.answer is not None and (key := keys[label.problem_id]).kind == "code"
    ]
    if not programs:
        return iter(())
    from radmoe.grading.programs import Program, judge_many
    from radmoe.sandbox import MEMORY, TIMEOUT_S

    contest = any(entry != "f" for _, _, entry, _ in programs)
    return judge_many(
        (Program(*program) for program in programs),
        timeout=timeout or (CONTEST_TIMEOUT_S if contest else TIMEOUT_S),
        memory=CONTEST_MEMORY if contest else MEMORY,
        **limits,
    )
