"""What reads answers: they are extracted, compared with what is right, and kept as labels.

grade.py        grade_pool: every rollout of a pool, right or wrong
sources.py      where what is right comes from: a data set, a file, a list of answers, the pool's own record
answers.py      what a rollout answered, and one spelling for each answer
latex.py        the normal form and the structure of a LaTeX answer; tokens.py reads it
equivalence.py  which LaTeX answers are the same answer; verifier.py is the process that does the algebra
programs.py     programs against hidden tests, in the sandbox
labels.py       labels.parquet, written and read

Nothing that captures or selects may import this room (an import contract holds that).
"""

from radmoe.grading.grade import Summary, grade_pool

__all__ = ["Summary", "grade_pool"]
