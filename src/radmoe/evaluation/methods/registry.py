"""The registry of methods: everything that picks a rollout, each one function with a name.

A method reads a `GradedProblem` and has one of three forms:

    @pick_method   returns the index of a rollout, or None where it abstains
    @score_method  returns one number per rollout [N], NaN where a rollout is not scored; the highest is picked, ties
                   go to the lowest index, and it abstains where no rollout is scored
    @draw_method   returns the rollouts it cannot tell apart; one of them is drawn at random, and what counts is how
                   often that is right

An abstention counts as wrong. A method that lacks what it reads (top-k logprobs that were not captured) raises
MethodUnavailable, which `GradedProblem` does by itself. A method says what it reads:

    routing   which experts fired
    logprobs  how likely the model found its own tokens
    answers   the normalised answers: what RAD never sees
    nothing   none of these: length, steps, chance
    truth     which rollouts are right: the oracle alone
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from radmoe.errors import InputError
from radmoe.evaluation.baselines import highest
from radmoe.evaluation.problem import Floats, GradedProblem
from radmoe.selection import kernels

Reads = Literal["routing", "logprobs", "answers", "nothing", "truth"]
READS: tuple[Reads, ...] = get_args(Reads)

F = TypeVar("F", bound=Callable[..., Any])


class MethodOutcome(NamedTuple):
    """What a method did on a problem: its pick (None: it abstained, or one of several is drawn), and how right that is.

    `hit` is 0 or 1 for a pick, and for a draw the share of its rollouts that are right.
    """

    pick: int | None
    hit: float


@dataclass(frozen=True)
class Method:
    """A method by its name; `label` is what tables call it, with @N for the number of rollouts.

    `citation` is a section of the paper or a reference. A `vote` counts exact strings, so it is undefined where nearly
    every answer is a string of its own. `version` rises when the method's results change without its source changing.
    `parts` are the methods that a combination is made of.
    """

    name: str
    label: str
    reads: tuple[Reads, ...]
    citation: str
    form: Literal["pick", "score", "draw"]
    function: Callable[[GradedProblem], Any]
    vote: bool = False
    version: int = 1
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name or not self.label or not self.citation:
            raise InputError(f"method {self.name!r} needs a name, a label and a citation")
        if not self.reads or any(what not in READS for what in self.reads):
            raise InputError(f"method {self.name!r} reads {self.reads!r}: name some of {', '.join(READS)}")

    def score(self, problem: GradedProblem) -> Floats:
        """The number of each rollout [N], NaN where it is not scored; only a method of form "score" has them."""
        if self.form != "score":
            scoring = ", ".join(method.name for method in METHODS.values() if method.form == "score")
            raise InputError(f"{self.name} gives no number per rollout: use one of {scoring}")
        return problem.once(("scores", self), lambda: self._scores(problem))

    def _scores(self, problem: GradedProblem) -> Floats:
        scores = np.asarray(self.function(problem), np.float64)
        if scores.shape != (len(problem),):
            raise InputError(f"method {self.name} gave scores of shape {scores.shape} for {len(problem)} rollouts")
        return scores

    def judge(self, problem: GradedProblem) -> MethodOutcome:
        """What the method does on a problem, and whether that is right."""
        if self.form == "draw":
            drawn = [self._checked(index, problem) for index in self.function(problem)]
            return MethodOutcome(None, float(problem.correct[drawn].mean()) if drawn else 0.0)
        index = highest(self.score(problem)) if self.form == "score" else self.function(problem)
        if index is None:
            return MethodOutcome(None, 0.0)
        return MethodOutcome(self._checked(index, problem), float(problem.correct[index]))

    def _checked(self, index: Any, problem: GradedProblem) -> int:
        if isinstance(index, bool) or not isinstance(index, int | np.integer) or not 0 <= index < len(problem):
            raise InputError(f"method {self.name} picked {index!r} of {len(problem)} rollouts")
        return int(index)

    @property
    def fingerprint(self) -> str:
        """A checksum of the method, which changes when what it reads, its source or one of its parts changes."""
        function = self.function.func if isinstance(self.function, partial) else self.function
        try:
            source = inspect.getsource(function if inspect.isroutine(function) else type(function))
        except (OSError, TypeError):  # typed into an interpreter
            source = ""
        parts = [METHODS[name].fingerprint for name in self.parts]
        body = repr((self.name, self.reads, self.form, self.vote, self.version, parts, source))
        return hashlib.sha256(body.encode()).hexdigest()


METHODS: dict[str, Method] = {}  # by name, in the order they were registered


def pick_method(
    name: str, label: str, *, reads: tuple[Reads, ...], citation: str, vote: bool = False, version: int = 1
) -> Callable[[F], F]:
    """Register a function that returns the index of a rollout, or None."""
    return lambda function: _add(Method(name, label, reads, citation, "pick", function, vote, version))


def score_method(
    name: str, label: str, *, reads: tuple[Reads, ...], citation: str, version: int = 1
) -> Callable[[F], F]:
    """Register a function that returns one number per rollout, NaN where it is not scored."""
    return lambda function: _add(Method(name, label, reads, citation, "score", function, version=version))


def draw_method(
    name: str, label: str, *, reads: tuple[Reads, ...], citation: str, vote: bool = False, version: int = 1
) -> Callable[[F], F]:
    """Register a function that returns the rollouts it cannot tell apart, of which one is drawn."""
    return lambda function: _add(Method(name, label, reads, citation, "draw", function, vote, version))


@dataclass(frozen=True)
class RankSum:
    """The sum of the ranks that some methods give, over the rollouts that all of them score.

    Ranks rise with the score and ties share their mean rank. Equal sums go to the higher score of the method named
    last, then to the lowest index. With a confidence as the last of two this is RAD+DC by rank sum (App. "DeepConf and fusion").
    """

    names: tuple[str, ...]

    def __call__(self, problem: GradedProblem) -> Floats:
        return kernels.rank_sum(np.stack([METHODS[name].score(problem) for name in self.names]))


def rank_sum(*names: str, label: str | None = None, citation: str = 'App. "DeepConf and fusion": rank-sum') -> Method:
    """Register the rank sum of some methods under their names, joined by +."""
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"a rank sum needs two different methods or more, got {', '.join(names) or 'none'}")
    for name in names:
        if name not in METHODS or METHODS[name].form != "score":
            scoring = ", ".join(method.name for method in METHODS.values() if method.form == "score")
            raise InputError(f"a rank sum cannot use {name!r}: use methods that score every rollout: {scoring}")
    parts = [METHODS[name] for name in names]
    reads = tuple(what for what in READS if any(what in part.reads for part in parts))
    reads = tuple(what for what in reads if what != "nothing") or reads
    method = Method(
        "+".join(names),
        label or " + ".join(part.label for part in parts),
        reads,
        citation,
        "score",
        RankSum(names),
        parts=names,
    )
    _add(method)
    return method


def registry_fingerprint() -> str:
    """A checksum of all methods, which changes when one is added, removed or changed."""
    return hashlib.sha256(" ".join(method.fingerprint for method in METHODS.values()).encode()).hexdigest()


def _add(method: Method) -> Any:
    """Put a method into the registry. A name may be used again only by the same function, as when a cell of a
    notebook runs again."""
    earlier = METHODS.get(method.name)
    if earlier is not None and _home(earlier.function) != _home(method.function):
        raise InputError(
            f"there is a method {method.name!r} already ({earlier.label}, in {_home(earlier.function)}): "
            "give this one another name"
        )
    METHODS[method.name] = method
    return method.function


def _home(function: Callable[..., Any]) -> str:
    """The module and name of a function."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, RankSum):
        return f"rank_sum of {function.names}"
    return f"{function.__module__}.{function.__qualname__}"
