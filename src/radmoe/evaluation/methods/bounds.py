"""The bounds of every method: a random rollout, and the best of all."""

from __future__ import annotations

from collections.abc import Sequence

from radmoe.evaluation.methods.registry import draw_method, pick_method
from radmoe.evaluation.problem import GradedProblem


@draw_method("average", "Avg@N", reads=("nothing",), citation='App. "Exact random baselines"')
def average(problem: GradedProblem) -> Sequence[int]:
    """Any of the N rollouts."""
    return range(len(problem))


@pick_method("oracle", "oracle pass@N", reads=("truth",), citation="Chen et al. 2021 (pass@k) with k = N")
def oracle(problem: GradedProblem) -> int | None:
    """A right rollout wherever there is one."""
    return int(problem.correct.argmax()) if problem.correct.any() else None
