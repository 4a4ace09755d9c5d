r"""The table of data sets: the benchmarks of the paper, and the lab's tasks by the path of their module.

A new data set is one entry here. One that lives in another package needs no entry: `--task package.module.NAME`, the
dotted path of a `Dataset`, works wherever a name does.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from radmoe.errors import InputError
from radmoe.problems.base import Gold
from radmoe.problems.dataset import Dataset, Hub, Record
from radmoe.problems.livecode import hidden_tests

_LETTERS = "ABCDEFGHIJ"
BOXED = "Reason step by step and put the final answer in \\boxed{}."
LETTER = "Reason step by step and put the letter of the right option in \\boxed{}."
_PROGRAM = (
    "Write a Python program that solves this. It reads from standard input and prints to standard output. "
    "Give the whole program in one ```python block."
)
_METHOD = "Complete this Python class. Give the whole program in one ```python block."


def ask_answer(record: Record) -> str:
    """A question whose answer is put into a box."""
    return f"{record.text('question', 'problem', 'Question')}\n\n{BOXED}"


def gold_answer(record: Record) -> Gold:
    return Gold(record.answer())


def ask_choice(record: Record) -> str:
    """A question with GPQA's four options, shuffled, whose answer is a letter in a box."""
    question = record.text("Question", "question")
    return f"{question}\n\n{listed(_options(record))}\n\n{LETTER}"


def gold_choice(record: Record) -> Gold:
    options = _options(record)
    return Gold(_LETTERS[options.index(record.text("Correct Answer"))], options=tuple(options))


def _options(record: Record) -> list[str]:
    columns = ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))
    return record.shuffled([record.text(column) for column in columns])


def listed(options: Iterable[str]) -> str:
    """Options as a prompt shows them."""
    return "\n".join(f"{letter}) {option}" for letter, option in zip(_LETTERS, options, strict=False))


def ask_program(record: Record) -> str:
    """A contest's question: complete the starter code where there is some, else write a program that reads and prints."""
    question = record.text("question_content", "question", "problem")
    starter = str(record.row.get("starter_code") or "").strip("\n")
    return f"{question}\n\n{_METHOD}\n\n```python\n{starter}\n```" if starter else f"{question}\n\n{_PROGRAM}"


def gold_tests(record: Record) -> Gold:
    tests, entry = hidden_tests(record.row, record.where)
    return Gold(tests=tests, entry=entry)


BENCHMARKS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "aime_2024", "math", ask_answer, gold_answer, Hub("HuggingFaceH4/aime_2024", split="train"), integer=True
        ),
        Dataset("aime_2025", "math", ask_answer, gold_answer, Hub("math-ai/aime25"), integer=True),
        Dataset(
            "hmmt_feb_2025",
            "math",
            ask_answer,
            gold_answer,
            Hub("MathArena/hmmt_feb_2025", split="train"),
            integer=False,
        ),
        Dataset(
            "brumo_2025", "math", ask_answer, gold_answer, Hub("MathArena/brumo_2025", split="train"), integer=False
        ),
        Dataset(
            "gpqa_diamond",
            "choice",
            ask_choice,
            gold_choice,
            Hub("Idavidrein/gpqa", "gpqa_diamond", "train"),
            shuffled=True,
        ),
        # The configuration v5 alone is the paper's 167 problems; release_v5 would be all 880 up to then.
        Dataset("livecodebench_v5", "code", ask_program, gold_tests, Hub("lighteval/code_generation_lite", "v5")),
    )
}

# A path is imported when its name is used, so that this room need not import the lab.
DATASETS: dict[str, Dataset | str] = {
    "math-1": "radmoe_lab.tasks.datasets.MATH_1",
    "math-2": "radmoe_lab.tasks.datasets.MATH_2",
    "math-3": "radmoe_lab.tasks.datasets.MATH_3",
    "math-4": "radmoe_lab.tasks.datasets.MATH_4",
    "choice": "radmoe_lab.tasks.datasets.CHOICE",
    "code": "radmoe_lab.tasks.datasets.CODE",
    "code-wide": "radmoe_lab.tasks.datasets.CODE_WIDE",
    "explain": "radmoe_lab.tasks.datasets.EXPLAIN",
    **BENCHMARKS,
}


def dataset_named(name: str) -> Dataset:
    """The data set of this name, or at this dotted path (package.module.NAME)."""
    entry = DATASETS.get(name, name)
    if isinstance(entry, Dataset):
        return entry
    known = f"{', '.join(DATASETS)}, or package.module.NAME for a Dataset of your own"
    module, _, attribute = entry.rpartition(".")
    if not module:
        raise InputError(f"unknown task {name!r}: use one of {known}; or leave --task out and give --data FILE")
    try:
        dataset = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"task {name!r} cannot be imported ({error}): use one of {known}") from None
    if not isinstance(dataset, Dataset):
        raise InputError(f"task {name!r} is a {type(dataset).__name__}, not a radmoe.problems.Dataset")
    return dataset
