r"""The table of data sets: the benchmarks of the paper, and those that plugins add.

A new data set is one entry here. One that lives in another package needs no entry: `--task package.module.NAME`, the
dotted path of a `Dataset`, works wherever a name does, and a plugin can give it a name.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from radmoe.errors import InputError
from radmoe.problems.base import Gold
from radmoe.problems.dataset import Dataset, Hub, Record
from radmoe.problems.livecode import hidden_tests
from radmoe.system.plugins import added

_LETTERS = "ABCDEFGHIJ"
BOXED = "Reason step by step and put the final answer in \\boxed{}."
LETTER = "Reason step by step and put the letter of the right option in \\boxed{}."
_PROGRAM = (
    "Write a Python program that solves this. It reads from standard input and prints to standard output. "
    "Give the whole program in one ```python block."
)
_METHOD = "Complete this Python class. Give the whole program in one ```python block."


def ask_answer(record: Record) -> str:
    """Ask a question whose answer is put into a box."""
    return f"{record.text('question', 'problem', 'Question')}\n\n{BOXED}"


def gold_answer(record: Record) -> Gold:
    return Gold(record.answer())


def ask_choice(record: Record) -> str:
    """Ask a question with GPQA's four options, shuffled, whose answer is a letter in a box."""
    question = record.text("Question", "question")
    return f"{question}\n\n{listed(_options(record))}\n\n{LETTER}"


def gold_choice(record: Record) -> Gold:
    options = _options(record)
    return Gold(_LETTERS[options.index(record.text("Correct Answer"))], options=tuple(options))


def _options(record: Record) -> list[str]:
    columns = ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))
    return record.shuffled([record.text(column) for column in columns])


def listed(options: Iterable[str]) -> str:
    """Format options as a prompt shows them."""
    return "\n".join(f"{letter}) {option}" for letter, option in zip(_LETTERS, options, strict=False))


def ask_program(record: Record) -> str:
    """Ask for a program: complete the starter code if there is some, else write a program that reads and prints."""
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


def task_names() -> list[str]:
    """The names of all tasks: those of plugins, then the benchmarks of the paper."""
    return list(added("tasks") | BENCHMARKS)


def dataset_named(name: str) -> Dataset:
    """Look up a data set by its name or its dotted path (package.module.NAME)."""
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    entry = added("tasks").get(name, name)
    known = f"{', '.join(task_names())}, or package.module.NAME for a Dataset of your own"
    module, _, attribute = entry.rpartition(".")
    if not module:
        lab = "" if added("tasks") else " (math-1, code and others come with radmoe-lab: pip install radmoe-lab)"
        raise InputError(f"unknown task {name!r}: use one of {known}; or leave --task out and give --data FILE{lab}")
    try:
        dataset = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"task {name!r} cannot be imported ({error}): use one of {known}") from None
    if not isinstance(dataset, Dataset):
        raise InputError(f"task {name!r} is a {type(dataset).__name__}, not a radmoe.problems.Dataset")
    return dataset
