"""What defines a data set: where its rows come from, how a row becomes a question, and which answer is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from radmoe.errors import InputError
from radmoe.problems.base import Content, Gold
from radmoe.types import Kind

DEFAULT_SEED = 0
TEST_COLUMNS = ("public_test_cases", "private_test_cases")  # LiveCodeBench's
OWN_TESTS = "tests"  # those of a file of one's own

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """One row of a data set, with all that is needed to ask it and to name it in a message.

    `key` is the problem's id before a seed is added to it, and `problem_id` the id with it. `where` says where the row
    stands, as in "aime.jsonl line 3". `kind` is None where neither the data set nor the row says it.
    """

    row: Row
    key: str
    seed: int
    where: str
    problem_id: str = ""
    kind: Kind | None = None

    def text(self, *columns: str) -> str:
        """Return the first of these columns that holds a text, stripped. Raises an InputError if none does."""
        for column in columns:
            if isinstance(self.row.get(column), str) and self.row[column].strip():
                return str(self.row[column]).strip()
        columns_there = ", ".join(map(str, self.row)) or "no fields"
        raise InputError(f"{self.where} has no {' or '.join(columns)}: it has {columns_there}")

    def answer(self, column: str = "answer") -> str:
        """Return the answer as a text. Raises an InputError if it is neither a text nor a number."""
        answer = self.row.get(column)
        if isinstance(answer, bool) or not isinstance(answer, str | int | float) or not str(answer).strip():
            raise InputError(f"{self.where}: {column} must be a text or a number, got {answer!r}")
        return str(answer).strip()

    def shuffled(self, items: Sequence[str]) -> list[str]:
        """Shuffle the items in an order that depends on the seed and the problem's id alone."""
        order = list(items)
        Random(f"{self.seed} {self.key}").shuffle(order)
        return order


class Hub(NamedTuple):
    """The location of a data set on the Hugging Face hub: repository, configuration and split, as
    `datasets.load_dataset` takes them.
    """

    path: str
    config: str | None = None
    split: str = "test"


@dataclass(frozen=True)
class Dataset:
    """A data set. One of these is all that it takes to capture, grade and evaluate a new one.

    `ask` turns a row into what the model is asked, and capture calls nothing else. `gold` says what is right, and
    grading alone calls it; it returns None for a row that has no answer. `kind` is what an answer looks like; where it
    is None, every row states its own. `integer` is True where math answers are whole numbers and False where
    they are LaTeX; None lets each answer tell. `meaning` says what a text means, so that two texts in other words can be
    equally right; it returns None for a text that means nothing. Without it texts are compared by their words.

    Rows come from a file (`--data`), else from `rows`, which is given the seed, else from the `hub`. Where
    `shuffled`, the question depends on the seed (`Record.shuffled`), so a seed other than 0 becomes part of the ids.
    """

    name: str
    kind: Kind | None
    ask: Callable[[Record], Content]
    gold: Callable[[Record], Gold | None]
    hub: Hub | None = None
    rows: Callable[[int], Iterable[Row]] | None = None
    integer: bool | None = None
    shuffled: bool = False
    meaning: Callable[[str], str | None] | None = None
