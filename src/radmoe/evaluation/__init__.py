"""How well selection did on graded pools: the paper's tables for anyone's rollouts.

`evaluate_pool` reads a pool once and keeps a record per problem; every table is a function of those records.
"""

from radmoe.evaluation.measure import evaluate_pool
from radmoe.evaluation.records import Records, Settings
from radmoe.evaluation.report import Report, report

__all__ = ["Records", "Report", "Settings", "evaluate_pool", "report"]
