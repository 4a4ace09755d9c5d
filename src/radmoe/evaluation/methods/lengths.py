"""Methods that read only how long a rollout is: no routing, answers or log-probabilities."""

from __future__ import annotations

from radmoe.evaluation.methods.registry import score_method
from radmoe.evaluation.problem import Floats, GradedProblem

CONTROL = 'App. "Agentic best-of-N", tab:swe-length'


@score_method("longest", "longest", reads=("nothing",), citation=CONTROL)
def longest(problem: GradedProblem) -> Floats:
    """The most tokens."""
    return problem.lengths.astype(float)


@score_method("shortest", "shortest", reads=("nothing",), citation=CONTROL)
def shortest(problem: GradedProblem) -> Floats:
    """The fewest tokens."""
    return -problem.lengths.astype(float)


@score_method("most-steps", "most steps", reads=("nothing",), citation=CONTROL)
def most_steps(problem: GradedProblem) -> Floats:
    """The most action boundaries of an agent, or paragraph breaks of everyone else."""
    return problem.steps.astype(float)


@score_method("fewest-steps", "fewest steps", reads=("nothing",), citation=CONTROL)
def fewest_steps(problem: GradedProblem) -> Floats:
    """The fewest action boundaries, or paragraph breaks."""
    return -problem.steps.astype(float)
