"""A graded pool: its problems with their labels, and what every method does on them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError, MethodUnavailable, PoolCorrupt
from radmoe.evaluation import cache, workers
from radmoe.evaluation.families import domain_of, family_of
from radmoe.evaluation.methods import METHODS
from radmoe.evaluation.problem import GradedProblem, Marks
from radmoe.grading.behaviours import Behaviours, read_behaviours
from radmoe.grading.labels import Label, read_labels
from radmoe.pool import Pool, files, open_pool
from radmoe.pool.reader import manifest
from radmoe.selection.kinds import settle_kinds
from radmoe.selection.rule import Rule, Setting
from radmoe.types import Kind

T = TypeVar("T")

Arrays = Mapping[str, NDArray[Any]]
Progress = Callable[[int, int], None]

NO_PICK = -1  # the method abstained, or nobody could vote: this counts as wrong


class Outcomes(NamedTuple):
    """What every method did on the P problems of a graded pool, as arrays [P] by name.

    `counts` holds the number of rollouts, of right ones, of those with an answer, the votes of the
    most frequent answer, the rollouts that the readout located, the right ones among those, and the size of the basin
    that RAD picked from. `picks` has the index of each method's pick, for methods that make one. `hits` is 1 where the
    pick is right and 0 where it is not; for a method that draws one of several rollouts it is the chance that the draw
    is right. `missing` says why a method has no result.
    """

    counts: dict[str, NDArray[np.int64]]
    picks: dict[str, NDArray[np.int64]]
    hits: dict[str, NDArray[np.float64]]
    missing: dict[str, str]


@dataclass(frozen=True, eq=False)
class GradedPool:
    """The problems of a pool that are of one kind and graded in full: P problems, each with up to N rollouts.

    `marks` has the labels of every problem in its rollouts' order. `setting` is how rollouts are read and compared.
    `notes` says which problems were left out, and
    `inferred` which kind was told from markers (empty where the pool or the caller said all kinds).

    What follows from the rollouts is computed when it is first asked for, by `jobs` processes, or `on` a Ray cluster. It is then in `known`, and
    in the user's cache directory under the pool's `identity` (empty: nothing is kept there). A graded pool without a
    `pool` was made by hand and has what is in `known`.
    """

    path: Path
    setting: Setting
    marks: Mapping[str, Marks]
    model: str = ""
    style: str = ""
    dataset: str = ""
    notes: tuple[str, ...] = ()
    inferred: str = ""
    pool: Pool | None = field(default=None, repr=False)
    jobs: int = 1
    identity: str = ""
    on: str = ""
    known: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.marks)

    def __iter__(self) -> Iterator[GradedProblem]:
        return map(self.problem, self.marks)

    @cached_property
    def problem_ids(self) -> tuple[str, ...]:
        """The ids of the problems, in the pool's order."""
        return tuple(self.marks)

    @property
    def kind(self) -> Kind | None:
        return self.setting.kind

    @property
    def domain(self) -> str:
        return domain_of(self.kind or "text")

    @property
    def family(self) -> str:
        return family_of(self.model)

    @property
    def configuration(self) -> str:
        """The model, and its style (reasoning effort, thinking or instruct) where the run had one."""
        return f"{self.model} {self.style}".strip()

    @cached_property
    def here(self) -> NDArray[np.bool_]:
        """Which of the N places of each problem hold a rollout [P, N]."""
        sizes = np.array([len(marks.correct) for marks in self.marks.values()])
        return np.arange(sizes.max()) < sizes[:, None]

    def problem(self, problem_id: str) -> GradedProblem:
        """One problem with its labels. Every call gives a new one, which has computed nothing yet."""
        if problem_id not in self.marks:
            raise InputError(f"{self.path} has no graded problem {problem_id!r}: it has {len(self)} others")
        assert self.pool is not None
        marks = self.marks[problem_id]
        group = self.pool.group(problem_id, first=len(marks.correct))
        return GradedProblem(group, self.setting, marks)

    def map(self, function: Callable[[GradedProblem], T], *, few: int | None = None) -> Iterator[T]:
        """What a function gives for each problem, in order (`workers.map_problems`)."""
        return workers.map_problems(self, function, few=few)

    def load(self, request: object) -> Arrays | None:
        """The arrays that were kept under a request (its repr is part of the key), or None."""
        return cache.load(f"{self.identity} {self.kind} {request!r}") if self.identity else None

    def save(self, request: object, arrays: Arrays, *, small: bool = False) -> None:
        """Keep arrays under a request. `small` compresses the file."""
        if self.identity:
            cache.save(f"{self.identity} {self.kind} {request!r}", arrays, small=small)

    @property
    def outcomes(self) -> Outcomes:
        """What every method does on every problem."""
        return self.measure()

    def measure(self, progress: Progress = lambda done, of: None) -> Outcomes:
        """Measure and return `outcomes`. `progress` is called with the number of rollouts that are done, and that of all."""
        if "outcomes" not in self.known:
            request = "outcomes", self.setting
            kept = self.load(request)
            if kept is None or not _complete(kept, len(self)):
                kept = self._measured(progress)
                self.save(request, kept)
            self.known["outcomes"] = _outcomes(kept)
        outcomes: Outcomes = self.known["outcomes"]
        return outcomes

    def _measured(self, progress: Progress) -> Arrays:
        """The outcomes as arrays. A method that failed on one problem has none, since it would be averaged over fewer problems."""
        rows, done, total = [], 0, int(self.here.sum())
        for row in self.map(measure_problem):
            rows.append(row)
            done += row.counts["rollouts"]
            progress(done, total)
        missing = self._unusable(rows)
        for row in rows:
            missing = row.missing | missing
        measured = [name for name in METHODS if name not in missing and all(name in row.hits for row in rows)]
        picking = [name for name in measured if all(name in row.picks for row in rows)]
        kept = (("counts", rows[0].counts, np.int64), ("picks", picking, np.int64), ("hits", measured, np.float64))
        arrays: dict[str, NDArray[Any]] = {
            f"{part} {name}": np.array([getattr(row, part)[name] for row in rows], dtype)
            for part, names, dtype in kept
            for name in names
        }
        return arrays | {f"missing {name}": np.array(reason) for name, reason in missing.items()}

    def _unusable(self, rows: Sequence[MeasuredProblem]) -> dict[str, str]:
        """Why methods have no result where no rollout has an anchor, or none has an answer."""
        missing: dict[str, str] = {}
        most = max(row.counts["located"] for row in rows)
        if most < 2:
            why = "no rollout has" if most == 0 else "no two rollouts of a problem have"
            reason = f"{why} the anchor of {self.setting.readout} for kind {self.kind}"
            for name, method in METHODS.items():  # a method with a readout of its own may have picked something
                if "routing" in method.reads and all(row.picks.get(name, NO_PICK) == NO_PICK for row in rows):
                    missing[name] = reason
        if not any(row.counts["answered"] for row in rows):
            reason = "no rollout has an answer that could be read"
            missing |= dict.fromkeys((name for name, method in METHODS.items() if "answers" in method.reads), reason)
        return missing


class MeasuredProblem(NamedTuple):
    """One problem, measured by every method: see `Outcomes`."""

    counts: dict[str, int]
    picks: dict[str, int]
    hits: dict[str, float]
    missing: dict[str, str]


def measure_problem(problem: GradedProblem) -> MeasuredProblem:
    """Every method on one problem. Each method reads what it says it reads, and only then is its pick judged."""
    measured = MeasuredProblem(_counts(problem), {}, {}, {})
    for method in METHODS.values():
        try:
            outcome = method.judge(problem)
        except MethodUnavailable as error:
            measured.missing[method.name] = str(error)
            continue
        measured.hits[method.name] = outcome.hit
        if method.form != "draw":
            measured.picks[method.name] = NO_PICK if outcome.pick is None else outcome.pick
    return measured


def _counts(problem: GradedProblem) -> dict[str, int]:
    votes = Counter(answer for answer in problem.answers if answer is not None)
    correct, rad = problem.correct, problem.selection
    return {
        "rollouts": len(problem),
        "right": int(correct.sum()),
        "answered": votes.total(),
        "plurality": max(votes.values(), default=0),
        "located": int(rad.located.sum()),
        "located_right": int(correct[rad.located].sum()),
        "basin": len(rad.basin),
    }


def _outcomes(arrays: Arrays) -> Outcomes:
    """The outcomes in arrays that `_measured` made."""
    parts: dict[str, dict[str, Any]] = {part: {} for part in Outcomes._fields}
    for key, array in arrays.items():
        part, _, name = key.partition(" ")
        parts[part][name] = str(array) if part == "missing" else array
    return Outcomes(**parts)


def _complete(arrays: Arrays, problems: int) -> bool:
    """Whether arrays are the outcomes of all methods on so many problems."""
    sizes = {array.shape for key, array in arrays.items() if not key.startswith("missing ")}
    return sizes == {(problems,)} and all(f"hits {name}" in arrays or f"missing {name}" in arrays for name in METHODS)


def open_graded(
    path: str | Path,
    *,
    kind: str | None = None,
    rule: Rule | None = None,
    n: int | None = None,
    dataset: str | None = None,
    jobs: int = 1,
    on: str = "",
    use_cache: bool = True,
) -> tuple[GradedPool, ...]:
    """Open a graded pool: one `GradedPool` per kind of answer, mostly a single one.

    What the `rule` leaves open follows from the kind of each problem, as in `select`. A problem is included if every one of its
    rollouts has a label; the others are left out, and `notes` counts them. With `n` only the first n rollouts of each
    problem are there, and problems with fewer are left out. `dataset` replaces the name of the task that the pool records
    (its directory's where it records none); where there are several kinds it is followed by the kind, as in
    "mixed (code)". Raises InputError where no problem is left, or where the kinds contradict each other (`settle_kinds`).
    """
    if n is not None and n < 1:
        raise InputError(f"n must be at least 1, got {n}: it is how many rollouts of each problem are looked at")
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    rule = rule or Rule()
    pool = open_pool(path)
    marks, notes = _join(pool, read_labels(pool.path), read_behaviours(pool.path))
    if n is not None:
        marks, notes = _cut(marks, notes, n, pool.path)
    settled = settle_kinds(pool, kind, where=str(pool.path), readout=rule.readout, problems=list(marks))
    run, kinds = pool.meta["run"], list(dict.fromkeys(settled.kinds.values()))
    name = dataset or dataset_of(pool)
    return tuple(
        GradedPool(
            pool.path,
            rule.settle(own),
            {problem: mark for problem, mark in marks.items() if settled.kinds[problem] == own},
            str(run["model"]),
            str(run["style"] or ""),
            name if len(kinds) == 1 else f"{name} ({own})",
            () if number else notes,
            settled.note,
            pool,
            jobs,
            f"{cache.identity(pool.path)} {n}" if use_cache else "",
            on,
        )
        for number, own in enumerate(kinds)
    )


def evaluate_pool(
    path: str | Path, *, progress: Progress = lambda done, of: None, **options: Any
) -> tuple[GradedPool, ...]:
    """Run every registered method on every graded problem of a pool, or take the results from the user's cache.

    `options` are those of `open_graded`. `progress` is told how many rollouts of the pool are done, and how many there are.
    """
    pools = open_graded(path, **options)
    sizes = [int(pool.here.sum()) for pool in pools]
    for place, pool in enumerate(pools):
        before = sum(sizes[:place])
        pool.measure(lambda done, _, before=before: progress(before + done, sum(sizes)))  # type: ignore[misc]
    return pools


def dataset_of(pool: Pool) -> str:
    """The task that was captured; a pool that records none is called as its directory."""
    return str(pool.meta["run"]["task"] or pool.path.resolve().name)


def check_distinct(pools: Sequence[str | Path]) -> None:
    """Refuse pools that share rollouts, which would be counted twice: one pool given twice, a copy, a part of another.

    Pools are compared by content: they share rollouts if a shard of one, to its last checksum, is a shard of the other
    and both have the same run record.
    """
    homes: dict[str, Path] = {}
    for path in map(files.place, pools):
        for shard in _contents(path):
            home = homes.setdefault(shard, path)
            if home is not path:
                same = "is given twice" if home == path else f"holds rollouts that are in {home} too"
                raise InputError(f"{path} {same}: give every pool once, or its rollouts are counted twice")


def _contents(path: Path) -> set[str]:
    """What identifies each shard of a pool: its description, which has the checksum of every column, and the run record."""
    meta = manifest(path)
    try:
        entries = [entry for entry in meta["shards"].values() if entry["runs"]]
        return {json.dumps([meta["run"], entry], sort_keys=True) for entry in entries}
    except (KeyError, TypeError, AttributeError) as e:
        raise PoolCorrupt(f"{path} does not list its shards ({e!r}): restore it from a copy") from None


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
