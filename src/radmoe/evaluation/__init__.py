"""How well selection did on graded pools: the paper's tables for anyone's rollouts.

pools.py               GradedPool: problems, labels, and what every method does on them; evaluate_pool
problem.py             GradedProblem: one problem; similarities, confidence and likelihood, each computed once
methods/               the methods, one function each, and their registry
workers.py, cache.py   problems in several processes; results kept on disk
baselines.py           votes and scores as functions of arrays
families.py            families of models and domains of problems, as data
stats/                 intervals and tests
scores.py              evaluated pools put together, and compared
tables.py, kinds.py, rivals.py    the tables
report.py              all tables of some pools, and the verdict
table.py, render.py, screen.py    a table as data, in files and on a terminal
"""

from radmoe.evaluation.pools import GradedPool, evaluate_pool, open_graded
from radmoe.evaluation.report import Report, build_report

__all__ = ["GradedPool", "Report", "build_report", "evaluate_pool", "open_graded"]
