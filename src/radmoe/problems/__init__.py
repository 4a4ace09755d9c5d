"""Problems: one registry for plugins' tasks, the paper's benchmarks and files of one's own.

base.py       Question, all that capture receives; Problem, the question together with what is right
dataset.py    Dataset, what it takes to add one; Record, a row on its way to become a question
datasets.py   the table of data sets; dataset_named looks a name or a dotted path up
own.py        JSONL files of one's own, and how they are read; own_tests.py reads their tests
records.py    the rows of a file, of the hub or of the lab, each under its problem's id
questions.py  load_questions: id, prompt and kind
gold.py       load_problems: answers and tests; only grading may import it
livecode.py   LiveCodeBench's tests, unpacked

`load_problems` is left out of the names below on purpose: importing this package must not load answers.
"""

from radmoe.problems.base import Content, Gold, Message, Problem, Question, Test
from radmoe.problems.dataset import DEFAULT_SEED, Dataset, Hub, Record, Row
from radmoe.problems.datasets import dataset_named, task_names
from radmoe.problems.questions import load_questions

__all__ = [
    "DEFAULT_SEED", "Content", "Dataset", "Gold", "Hub", "Message", "Problem", "Question", "Record", "Row", "Test",
    "dataset_named", "load_questions", "task_names",
]  # fmt: skip
