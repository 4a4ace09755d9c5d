"""A graded pool, with what methods compute from it shared between them, and the registry of methods.

cohort.py     a pool and its labels -> Cohort; every problem with the setting of its kind
problem.py    one problem: similarities, confidence and likelihood, each computed once
registry.py   Method, and how one is registered; rank sums
methods/      the methods that ship with radmoe, one function each
families.py   families of models and domains of problems, as data
"""

from radmoe.evaluation.cohort.cohort import Cohort, open_cohort
from radmoe.evaluation.cohort.problem import GradedProblem
from radmoe.evaluation.cohort.registry import METHODS, Method, Outcome, draw_method, pick_method, rank_sum, score_method

from radmoe.evaluation.cohort import methods  # isort: skip  (fills METHODS)

__all__ = [
    "METHODS",
    "Cohort",
    "GradedProblem",
    "Method",
    "Outcome",
    "draw_method",
    "methods",
    "open_cohort",
    "pick_method",
    "rank_sum",
    "score_method",
]
