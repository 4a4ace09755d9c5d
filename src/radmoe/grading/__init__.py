"""Grading: answers are extracted from rollouts, compared with the gold answers, and kept as labels.

grade.py        grade_pool: every rollout of a pool, right or wrong
sources.py      the problems with their gold answers: from a data set, a file, a list of answers or the pool's own record
answers.py      what a rollout answered: boxes, fenced blocks, responses
choices.py      the letter that an answer names
texts.py        which texts are the same; dates.py has the dates among them
equivalence.py  which mathematical answers are the same; verifier.py is the process that evaluates formulas
latex.py        a LaTeX answer taken apart, and its normal form
relations.py    equations, intervals and sets, for latex.py; shapes.py is what they both make
syntax.py       formulas as trees; exact.py works out those that are rational
tokens.py       LaTeX as atoms; unicode_symbols.py, numerals.py, prose.py and units.py know how people write
programs.py     programs against hidden tests, in the sandbox
labels.py       labels.parquet, written and read

Nothing that captures or selects may import this package (an import contract holds that).
"""

from radmoe.grading.grade import Summary, grade_pool

__all__ = ["Summary", "grade_pool"]
