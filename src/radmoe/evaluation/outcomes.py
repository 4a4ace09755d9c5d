"""One problem, measured by every method."""

from __future__ import annotations

from collections import Counter

from radmoe.errors import MethodUnavailable
from radmoe.evaluation.cohort import METHODS, GradedProblem
from radmoe.evaluation.records import NO_PICK, Problem


def measure(problem: GradedProblem) -> Problem:
    """Every method on one problem. Each method reads what it says it reads, and only then is its pick judged."""
    picks: dict[str, int] = {}
    hits: dict[str, float] = {}
    missing: dict[str, str] = {}
    for method in METHODS.values():
        try:
            outcome = method.judge(problem)
        except MethodUnavailable as error:
            missing[method.name] = str(error)
            continue
        hits[method.name] = outcome.hit
        if method.form != "draw":
            picks[method.name] = NO_PICK if outcome.pick is None else outcome.pick
    return Problem(problem.problem_id, _counts(problem), picks, hits, missing)


def _counts(problem: GradedProblem) -> dict[str, int]:
    votes = Counter(answer for answer in problem.answers if answer is not None)
    correct, rad = problem.correct, problem.selection
    return {
        "rollouts": len(problem),
        "right": int(correct.sum()),
        "answered": votes.total(),
        "distinct": len(votes),
        "plurality": max(votes.values(), default=0),
        "located": int(rad.located.sum()),
        "located_right": int(correct[rad.located].sum()),
        "basin": len(rad.basin),
    }
