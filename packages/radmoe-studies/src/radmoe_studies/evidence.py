"""What studies are made from: graded pools as arrays, and the similarity of their rollouts under every readout asked for.

A `Panel` is a graded pool of one kind. `Evidence` holds the panels of all pools given, and reads routing for all studies
at once: a similarity that several studies ask for is computed once, in one pass over each problem, and kept in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError, MethodUnavailable
from radmoe.evaluation.pools import GradedPool, check_distinct, open_graded
from radmoe.evaluation.problem import GradedProblem
from radmoe.pool.reader import manifest
from radmoe.selection.kernels import density_scores
from radmoe.selection.rule import Rule
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


def padded(graded: GradedPool, rows: Sequence[Any], blank: float) -> NDArray[Any]:
    """Rows with a value for each rollout as one array [P, N], with `blank` where a problem has fewer rollouts."""
    first = np.asarray(rows[0])
    out = np.full(graded.here.shape, blank, first.dtype)
    for row, values in zip(out, rows, strict=True):
        row[: len(values)] = values
    return out


@dataclass(frozen=True, eq=False)
class Panel(GradedPool):
    """A graded pool as studies read it: with numbers for each rollout, and comparisons of rollouts that studies asked for.

    `lengths` [P, N] are in tokens. `scalars` has the confidences and the likelihood [P, N each], and `missing` says why one
    is not there. `layers` are those of the router as stored; 0 where nobody knows.
    """

    lengths: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64), repr=False)
    scalars: Mapping[str, Floats] = field(default_factory=dict, repr=False)
    missing: Mapping[str, str] = field(default_factory=dict, repr=False)
    reads: dict[Request, Read] = field(default_factory=dict, repr=False)
    layers: int = 0

    @property
    def n(self) -> int:
        """How many rollouts a problem has, at most."""
        return int(self.here.shape[1])

    @cached_property
    def correct(self) -> Bools:
        """Whether each rollout is right [P, N]."""
        return padded(self, [marks.correct for marks in self.marks.values()], False)

    @cached_property
    def answer(self) -> Ints:
        """The answers of each problem, numbered from 0 in the order of their first rollout; -1 is no answer [P, N]."""
        rows = []
        for marks in self.marks.values():
            number = {text: i for i, text in enumerate(dict.fromkeys(a for a in marks.answers if a is not None))}
            rows.append([-1 if text is None else number[text] for text in marks.answers])
        return padded(self, rows, -1)

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
    windows: int = 0
    asked: int = 0
    kept: int = 0

    def read(self, requests: Callable[[Panel], Iterable[Request]], progress: Progress = lambda done, of: None) -> None:
        """Read what `requests` wants of every panel, in one pass over each pool."""
        wanted = [list(dict.fromkeys(requests(panel))) for panel in self.panels]
        total = sum(int(panel.here.sum()) for panel, own in zip(self.panels, wanted, strict=True) if own)
        done = 0
        for panel, own in zip(self.panels, wanted, strict=True):
            self.asked += len(own) * int(panel.here.sum())
            missing = [request for request in own if request not in panel.reads and not self._load(panel, request)]
            if missing:
                for request, read in zip(missing, self._compute(panel, missing), strict=True):
                    panel.reads[request] = read
                    panel.save(request, read._asdict(), small=request.k is not None)
            done += int(panel.here.sum()) if own else 0
            progress(done, total)

    def _load(self, panel: Panel, request: Request) -> bool:
        arrays = panel.load(request)
        if arrays is None:
            return False
        panel.reads[request] = Read(**arrays)
        self.kept += int(panel.here.sum())
        return True

    def _compute(self, panel: Panel, requests: Sequence[Request]) -> list[Read]:
        reader = Reader(tuple(requests), panel.n)
        self.windows += len(reader.sources) * int(panel.here.sum())
        rows = panel.map(reader, few=_WORTH_PROCESSES // len(requests))
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
    evidence = Evidence([], jobs)
    for number, path in enumerate(pools):
        opened = open_graded(path, rule=Rule(confidence_window=confidence_window), jobs=jobs, use_cache=use_cache)
        evidence.panels += map(_panel, opened)
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


def _panel(graded: GradedPool) -> Panel:
    """A graded pool with the lengths and scalars of its rollouts, and reasons for scalars that are missing."""
    request = "scalars", graded.setting.confidence_window
    arrays = graded.load(request)
    if arrays is None:
        rows = list(graded.map(_scalars))
        names = [name for name in rows[0][1] if all(isinstance(own.get(name), np.ndarray) for _, own in rows)]
        reasons = {name: why for _, own in rows for name, why in own.items() if isinstance(why, str)}
        arrays = {"lengths": padded(graded, [own for own, _ in rows], 0)}
        arrays |= {name: padded(graded, [own[name] for _, own in rows], np.nan) for name in names}
        arrays |= {f"missing {name}": np.array(why) for name, why in reasons.items()}
        graded.save(request, arrays)
    missing = {name.removeprefix("missing "): str(a) for name, a in arrays.items() if name.startswith("missing ")}
    scalars = {name: a for name, a in arrays.items() if name != "lengths" and not name.startswith("missing ")}
    parts = {part.name: getattr(graded, part.name) for part in fields(graded)}
    layers = 0 if graded.pool is None else graded.pool.shape.layers
    return Panel(**parts, lengths=arrays["lengths"], scalars=scalars, missing=missing, layers=layers)


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
