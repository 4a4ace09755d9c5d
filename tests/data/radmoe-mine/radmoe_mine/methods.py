"""A method of `radmoe evaluate`: the rollout whose number of tokens is in the middle."""

import numpy as np

from radmoe.evaluation.methods import GradedProblem, score_method


@score_method("mine-middle", "middle length", reads=("nothing",), citation="an example")
def middle(problem: GradedProblem) -> np.ndarray:
    lengths = np.array([len(rollout) for rollout in problem.group.rollouts])
    return -np.abs(lengths - np.median(lengths))
