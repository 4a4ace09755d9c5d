"""Programs grouped by what they do: a vote over behaviours, for code alone. It reads answers, by running them.

A behaviour is what a program returns for the inputs of the examples in its prompt (`radmoe.grading.behaviours`), written down by
`radmoe grade --behaviours`. A program that never returns anything has none and is not scored.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from radmoe.evaluation.methods.registry import score_method
from radmoe.evaluation.problem import Floats, GradedProblem


@score_method(
    "behaviour",
    "behaviour clusters",
    reads=("answers",),
    citation="Li et al. 2022 (AlphaCode), on the visible examples",
)
def behaviour(problem: GradedProblem) -> Floats:
    """How many rollouts behave as this one does; ties go to the first."""
    counts = Counter(one for one in problem.behaviours if one is not None)
    return np.array([np.nan if one is None else counts[one] for one in problem.behaviours], np.float64)
