"""How well selection did on graded pools: the paper's tables for anyone's rollouts.

`evaluate_pool` reads a pool once and keeps a few numbers per problem (`Records`); `build_report` makes every table from
them, and `render` and `screen` write the tables down.
"""

from radmoe.evaluation.measure import evaluate_pool
from radmoe.evaluation.records import Records
from radmoe.evaluation.report import Report, build_report

__all__ = ["Records", "Report", "build_report", "evaluate_pool"]
