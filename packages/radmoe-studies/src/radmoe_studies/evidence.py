"""What studies are made from: graded pools as arrays, and the similarity of their rollouts under every readout asked for.

A `Panel` holds the problems of one pool that are of one kind. `Evidence` holds the panels of all pools given, and reads
routing for all studies at once: a similarity that several studies ask for is computed once, in one pass over each
problem, and kept in the user's cache under a checksum of the pool, the request and the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError, MethodUnavailable
from radmoe.evaluation import cache, naming
from radmoe.evaluation.cohort import Cohort, GradedProblem, open_cohort
from radmoe.evaluation.cohort.families import domain_of, family_of
from radmoe.evaluation.cohort.problem import density_scores
from radmoe.evaluation.measure import check_distinct
from radmoe.evaluation.workers import map_problems
from radmoe.pool.reader import manifest
from radmoe.selection.selector import Setting
from radmoe.types import Kind
from radmoe_studies import store
from radmoe_studies.reading import COSINE, Bools, Reader, Request

__all__ = [
    "COSINE", "Bools", "Evidence", "Floats", "Ints", "Panel", "Progress", "Read", "Request", "gather", "sampling_of",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Progress = Callable[[int, int], None]

_WORTH_PROCESSES = 2_000_000  # rollouts times requests: some seconds of work, as long as processes take to start
WINDOW = 32  # tokens of a confidence window: the lab's rollouts are shorter than the paper's 2,048


class Read(NamedTuple):
    """What a request gave for the P problems of a panel.

    `values` is S [P, N, N], NaN where a rollout is not located, or with k the levels of densities [P, N]. `start` is the
    token at which each rollout's window begins, -1 where it is not located.
    """

    values: NDArray[np.float32]
    start: NDArray[np.int32]

    @property
    def located(self) -> Bools:
        return self.start >= 0


@dataclass(frozen=True, eq=False)
class Panel:
    """The graded problems of a pool that are of one kind, as arrays over problems and rollouts [P, N].

    Where problems have different numbers of rollouts, `here` says which of the N places are filled. `answer` numbers the
    answers of a problem from 0 in the order of their first rollout; -1 is no answer. `scalars` has the confidences and
    the likelihood, and `missing` says why one is not there.
    """

    path: Path
    identity: str
    model: str
    style: str
    dataset: str
    setting: Setting
    confidence_window: int
    problem_ids: tuple[str, ...]
    here: Bools
    correct: Bools
    answer: Ints
    lengths: Ints
    scalars: Mapping[str, Floats]
    missing: Mapping[str, str]
    reads: dict[Request, Read] = field(default_factory=dict, repr=False)
    layers: int = 0  # of the router as stored; 0 where nobody knows

    def __len__(self) -> int:
        return len(self.problem_ids)

    @property
    def kind(self) -> Kind | None:
        return self.setting.kind

    @property
    def configuration(self) -> str:
        return f"{self.model} {self.style}".strip()

    @property
    def family(self) -> str:
        return family_of(self.model)

    @property
    def domain(self) -> str:
        return domain_of(self.kind or "text")

    @property
    def n(self) -> int:
        """How many rollouts a problem has, at most."""
        return int(self.here.shape[1])

    @cached_property
    def answered(self) -> Bools:
        return self.answer >= 0

    def scalar(self, name: str) -> Floats:
        """A confidence, or the likelihood, of every rollout [P, N]; MethodUnavailable where it was not captured."""
        if name not in self.scalars:
            raise MethodUnavailable(self.missing.get(name, f"there is no scalar {name!r}"))
        return self.scalars[name]

    def read(self, request: Request) -> Read:
        """What was read for a request. `Evidence.read` must have been asked for it."""
        if request not in self.reads:
            raise InputError(f"{request} was not read for {self.path}: a study lists it under its requests")
        return self.reads[request]

    def density(self, request: Request) -> Floats:
        """Levels of densities [P, N], NaN where a rollout is not located; k is the setting's unless requested."""
        read = self.read(request)
        if request.k is not None:
            return read.values.astype(np.float64)
        located = read.located
        return np.stack(
            [
                density_scores(_inside(S, mask), mask, self.setting.k)
                for S, mask in zip(read.values, located, strict=True)
            ]
        )


def _inside(S: NDArray[np.float32], located: Bools) -> NDArray[np.float32]:
    """The rows and columns of the rollouts that are located."""
    return np.ascontiguousarray(S[np.ix_(located, located)])


@dataclass(eq=False)
class Evidence:
    """The panels of all pools of a study, and how often routing was read for it.

    `windows` counts the windows that were read from pools, `asked` those that studies asked for, of which several may
    share one reading; `kept` counts those that came out of the cache.
    """

    panels: list[Panel]
    jobs: int = 1
    use_cache: bool = True
    cohorts: dict[Path, Cohort] = field(default_factory=dict, repr=False)
    windows: int = 0
    asked: int = 0
    kept: int = 0

    def read(self, requests: Callable[[Panel], Iterable[Request]], progress: Progress = lambda done, of: None) -> None:
        """Read what `requests` wants of every panel, in one pass over each pool."""
        wanted = [list(dict.fromkeys(requests(panel))) for panel in self.panels]
        total = sum(len(panel) for panel, own in zip(self.panels, wanted, strict=True) if own)
        done = 0
        for panel, own in zip(self.panels, wanted, strict=True):
            self.asked += len(own) * int(panel.here.sum())
            missing = [request for request in own if request not in panel.reads and not self._load(panel, request)]
            if missing:
                for request, read in zip(missing, self._compute(panel, missing), strict=True):
                    panel.reads[request] = read
                    if self.use_cache:
                        store.save(panel.identity, request, read._asdict(), small=request.k is not None)
            done += len(panel) if own else 0
            progress(done, total)

    def _load(self, panel: Panel, request: Request) -> bool:
        arrays = store.load(panel.identity, request) if self.use_cache else None
        if arrays is None:
            return False
        panel.reads[request] = Read(**arrays)
        self.kept += int(panel.here.sum())
        return True

    def _compute(self, panel: Panel, requests: Sequence[Request]) -> list[Read]:
        cohort = self.cohorts[panel.path]
        reader = Reader(tuple(requests), panel.n)
        self.windows += len(reader.sources) * int(panel.here.sum())
        few = _WORTH_PROCESSES // len(requests)
        rows = map_problems(cohort, reader, self.jobs, panel.problem_ids, few=few)
        return [Read(*map(np.stack, zip(*column, strict=True))) for column in zip(*rows, strict=True)]


def gather(
    pools: Sequence[str | Path],
    *,
    confidence_window: int = WINDOW,
    jobs: int = 1,
    use_cache: bool = True,
    progress: Progress = lambda done, of: None,
) -> Evidence:
    """Open graded pools as evidence. Pools that share rollouts are refused."""
    check_distinct(pools)
    evidence = Evidence([], jobs, use_cache)
    for number, path in enumerate(map(Path, pools)):
        cohort = open_cohort(path, confidence_window=confidence_window)
        evidence.cohorts[path] = cohort
        evidence.panels += _panels(cohort, jobs, use_cache)
        progress(number + 1, len(pools))
    _check_sampling(evidence.panels)
    return evidence


def sampling_of(path: str | Path, *, seed: bool = True) -> str:
    """How the rollouts of a pool were sampled, in words: temperature, top-p and seed, as far as its run record says."""
    record = manifest(Path(path))["run"].get("sampling") or {}
    record = record.get("sampled") or record
    names = (("temperature", "temperature"), ("top-p", "top_p"), *([("seed", "seed")] if seed else []))
    return ", ".join(f"{word} {record[key]}" for word, key in names if record.get(key) is not None) or "not recorded"


def _check_sampling(panels: Sequence[Panel]) -> None:
    """Refuse one configuration's rollouts of the same problem that were sampled in two ways: a verdict would mix them."""
    seen: dict[tuple[str, str, str], tuple[str, Path]] = {}
    for panel in panels:
        way = sampling_of(panel.path, seed=False)
        for problem in panel.problem_ids:
            first, path = seen.setdefault((panel.configuration, panel.dataset, problem), (way, panel.path))
            if first != way:
                raise InputError(
                    f"{path} and {panel.path} hold the same problems of one configuration, sampled at {first} and at {way}: "
                    "a study judges one way of sampling, so run it once for each"
                )


def _panels(cohort: Cohort, jobs: int, use_cache: bool) -> list[Panel]:
    """One panel per kind of a pool."""
    path = Path(cohort.pool.path)
    run = manifest(path)["run"]
    identity = cache.identity(path)
    panels = []
    for kind, setting in cohort.settings.items():
        ids = tuple(problem for problem in cohort.problems if cohort.kinds[problem] == kind)
        numbers = _numbers(cohort, ids, jobs, use_cache, identity, str(kind))
        missing = {name: str(reason) for name, reason in numbers.pop("missing").items()}
        name = naming.dataset(run, path)
        panels.append(
            Panel(
                path,
                identity,
                str(run["model"]),
                str(run["style"] or ""),
                name if len(cohort.settings) == 1 else f"{name} ({kind})",
                setting,
                cohort.confidence_window,
                ids,
                missing=missing,
                layers=cohort.pool.shape.layers,
                **numbers,
            )
        )
    return panels


def _numbers(
    cohort: Cohort, ids: tuple[str, ...], jobs: int, use_cache: bool, identity: str, kind: str
) -> dict[str, Any]:
    """The arrays of a panel: who is right, the numbers of answers, lengths, and scalars with reasons for those missing."""
    n = max(len(cohort.marks[problem].correct) for problem in ids)
    here, correct = np.zeros((len(ids), n), bool), np.zeros((len(ids), n), bool)
    answer = np.full((len(ids), n), -1, np.int64)
    for row, problem in enumerate(ids):
        marks = cohort.marks[problem]
        size, order = len(marks.correct), dict.fromkeys(a for a in marks.answers if a is not None)
        number = {text: i for i, text in enumerate(order)}
        here[row, :size], correct[row, :size] = True, marks.correct
        answer[row, :size] = [-1 if text is None else number[text] for text in marks.answers]
    request = f"scalars {kind} {cohort.confidence_window}"
    arrays = store.load(identity, request) if use_cache else None
    if arrays is None:
        rows = list(map_problems(cohort, _scalars, jobs, ids))
        names = [name for name in rows[0][1] if all(isinstance(own.get(name), np.ndarray) for _, own in rows)]
        arrays = {"lengths": np.stack([_padded(own, n, 0) for own, _ in rows])}
        arrays |= {name: np.stack([_padded(own[name], n, np.nan) for _, own in rows]) for name in names}
        reasons = {name: why for _, own in rows for name, why in own.items() if isinstance(why, str)}
        arrays |= {f"missing {name}": np.array(why) for name, why in reasons.items()}
        if use_cache:
            store.save(identity, request, arrays)
    reasons = {name.removeprefix("missing "): str(a) for name, a in arrays.items() if name.startswith("missing ")}
    scalars = {name: a for name, a in arrays.items() if name != "lengths" and not name.startswith("missing ")}
    return {
        "here": here,
        "correct": correct,
        "answer": answer,
        "lengths": arrays["lengths"],
        "scalars": scalars,
        "missing": reasons,
    }


def _padded(values: NDArray[Any], n: int, blank: float) -> NDArray[Any]:
    return np.concatenate([values, np.full(n - len(values), blank, values.dtype)])


def _scalars(problem: GradedProblem) -> tuple[Ints, dict[str, Any]]:
    """The lengths of a problem's rollouts, and every scalar, or the reason why it is not there."""
    scalars: dict[str, Any] = {}
    try:
        scalars |= {"cbw" if name == "bottom-window" else name: own for name, own in problem.confidence.items()}
    except MethodUnavailable as error:
        scalars["cbw"] = str(error)
    try:
        scalars["likelihood"] = problem.likelihoods
    except MethodUnavailable as error:
        scalars["likelihood"] = str(error)
    return problem.lengths, scalars
