"""A graded pool as methods see it: labels joined to rollouts, and the setting of every problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from radmoe.errors import InputError
from radmoe.evaluation.cohort.problem import GradedProblem, Marks
from radmoe.grading.behaviours import Behaviours, read_behaviours
from radmoe.grading.labels import Label, read_labels
from radmoe.pool import Pool, open_pool
from radmoe.selection.confidence import WINDOW
from radmoe.selection.kinds import settle_kinds
from radmoe.selection.selector import Setting, setting_for
from radmoe.types import Kind


@dataclass(frozen=True, eq=False)
class Cohort:
    """The problems of a pool that are graded in full.

    `marks` holds the labels of every such problem in its rollouts' order, and `settings` how rollouts of each kind are
    read. `notes` says which problems were left out, and `inferred` which kind was told from markers (empty where the
    pool or the caller said all kinds).
    """

    pool: Pool
    marks: dict[str, Marks]
    kinds: dict[str, Kind]
    settings: dict[Kind, Setting]
    confidence_window: int = WINDOW
    notes: tuple[str, ...] = ()
    inferred: str = ""

    @property
    def problems(self) -> list[str]:
        """The graded problems, in the pool's order."""
        return list(self.marks)

    def __len__(self) -> int:
        return len(self.marks)

    def setting(self, problem_id: str) -> Setting:
        """How the rollouts of a problem are read."""
        return self.settings[self.kinds[problem_id]]

    def graded(self, problem_id: str) -> GradedProblem:
        """One problem with its labels. Every call gives a new one, which has computed nothing yet."""
        if problem_id not in self.marks:
            raise InputError(f"{self.pool.path} has no graded problem {problem_id!r}: it has {len(self)} others")
        return graded(self.pool, problem_id, self.setting(problem_id), self.marks[problem_id], self.confidence_window)

    def __iter__(self) -> Iterator[GradedProblem]:
        return map(self.graded, self.marks)


def open_cohort(
    path: str | Path,
    *,
    kind: str | None = None,
    readout: str | None = None,
    k: int | None = None,
    kernel: str | None = None,
    confidence_window: int = WINDOW,
    n: int | None = None,
) -> Cohort:
    """Open a graded pool. What is not given follows from the kind of each problem, as in `select`.

    A problem is part of the cohort if every one of its rollouts has a label; the others are left out, and `notes`
    counts them. With `n` only the first n rollouts of each problem are there, and problems with fewer are left out.
    Raises InputError where none is left, or where the kinds contradict each other (`settle_kinds`).
    """
    if confidence_window < 1:
        raise InputError(f"the confidence window must be at least 1 token, got {confidence_window}")
    if n is not None and n < 1:
        raise InputError(f"n must be at least 1, got {n}: it is how many rollouts of each problem are looked at")
    pool = open_pool(path)
    marks, notes = _join(pool, read_labels(pool.path), read_behaviours(pool.path))
    if n is not None:
        marks, notes = _cut(marks, notes, n, pool.path)
    settled = settle_kinds(pool, kind, where=str(pool.path), readout=readout, problems=list(marks))
    settings = {
        own: setting_for(own, readout=readout, k=k, kernel=kernel) for own in dict.fromkeys(settled.kinds.values())
    }
    return Cohort(pool, marks, settled.kinds, settings, confidence_window, notes, settled.note)


def _join(
    pool: Pool, labels: dict[str, dict[int, Label]], behaviours: Behaviours
) -> tuple[dict[str, Marks], tuple[str, ...]]:
    """The labels of every problem whose rollouts all have one, and a note for each way in which others lack them."""
    marks: dict[str, Marks] = {}
    absent = partial = 0
    for problem_id in pool.problems:
        own = labels.get(problem_id, {})
        indices = pool.rollout_indices(problem_id)
        if not own:
            absent += 1
        elif any(index not in own for index in indices):
            partial += 1
        else:
            ordered = [own[index] for index in indices]
            acts = behaviours.get(problem_id)
            marks[problem_id] = Marks(
                tuple(label.answer for label in ordered),
                tuple(label.correct for label in ordered),
                None if acts is None else tuple(acts.get(index) for index in indices),
            )
    if not marks:
        raise InputError(_nothing_graded(pool, labels, partial))
    notes = []
    if absent:
        notes.append(f"{absent} of {len(pool.problems)} problems have no labels and are left out")
    if partial:
        notes.append(f"{partial} of {len(pool.problems)} problems have labels for some rollouts only and are left out")
    return marks, tuple(notes)


def graded(pool: Pool, problem_id: str, setting: Setting, marks: Marks, confidence_window: int) -> GradedProblem:
    """A problem with as many of its rollouts as there are marks."""
    return GradedProblem(pool.group(problem_id, first=len(marks.answers)), setting, marks, confidence_window)


def _cut(
    marks: dict[str, Marks], notes: tuple[str, ...], n: int, path: Path
) -> tuple[dict[str, Marks], tuple[str, ...]]:
    """The marks of the first n rollouts of every problem that has so many, and a note if some have fewer."""
    kept = {name: own.first(n) for name, own in marks.items() if len(own.answers) >= n}
    if not kept:
        most = max(len(own.answers) for own in marks.values())
        raise InputError(f"no problem of {path} has {n} rollouts, the most are {most}: ask for fewer")
    if len(kept) < len(marks):
        notes += (f"{len(marks) - len(kept)} of {len(marks)} problems have fewer than {n} rollouts and are left out",)
    return kept, notes


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
