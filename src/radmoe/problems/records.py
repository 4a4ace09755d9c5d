"""The rows of a data set, each under its problem's id.

The id holds the data set's own id of the row, or where it has none a digest of the question. So no answer is ever held
against another problem, in whatever order the rows come.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from radmoe.errors import InputError
from radmoe.problems.dataset import DEFAULT_SEED, Dataset, Record, Row
from radmoe.problems.datasets import BENCHMARKS, dataset_named
from radmoe.problems.own import dataset_of_file, read_rows

_IDS = ("id", "problem_idx", "question_id", "Record ID")
_QUESTIONS = ("prompt", "question", "problem", "Question", "question_content")
_SEEDED = re.compile(r".+-s(-?\d+)(-\d{3,})?")  # gpqa_diamond-rec3-s7, and the lab's math-2-s7-004


@dataclass(frozen=True)
class Source:
    """A data set whose rows are at hand. `task` is what a pool records: a name, a dotted path, or a file's stem."""

    dataset: Dataset
    task: str
    seed: int
    records: Iterable[Record]

    def problem_id(self, record: Record) -> str:
        named = self.dataset.shuffled and self.seed != DEFAULT_SEED
        return f"{record.key}-s{self.seed}" if named else record.key


def open_source(task: str | None, data: str | Path | None, seed: int | None, limit: int | None = None) -> Source:
    """The rows of a task, of a file, or of a task from a file; only the first `limit` where that saves drawing them."""
    seed = DEFAULT_SEED if seed is None else seed
    if data is not None:
        return _from_file(task, Path(data), seed)
    if task is None:
        raise InputError("give the problems: --task math-2 (or another data set), --data FILE, or both")
    dataset = dataset_named(task)
    if dataset.rows is not None:
        drawn = enumerate(islice(dataset.rows(seed), limit), 1)
        return Source(dataset, task, seed, _records(drawn, dataset, seed, (dataset.name, "row")))
    rows = enumerate(_from_hub(dataset), 1)
    where = (dataset.hub.path if dataset.hub else dataset.name, "row")
    return Source(dataset, task, seed, list(_records(rows, dataset, seed, where)))


def seed_in(problem_ids: Iterable[str]) -> int:
    """The seed that ids name; the default where none does, or where they name several."""
    seeds = {int(match[1]) for match in map(_SEEDED.fullmatch, problem_ids) if match}
    return seeds.pop() if len(seeds) == 1 else DEFAULT_SEED


def _from_file(task: str | None, path: Path, seed: int) -> Source:
    dataset = None if task is None else dataset_named(task)
    if dataset is not None and dataset.rows is not None:
        raise InputError(f"task {task!r} draws its own problems and reads no file: leave out --task or --data")
    rows = list(read_rows(path))
    dataset = dataset or dataset_of_file(path.stem, rows[0][1])
    records = _records(
        rows,
        dataset,
        seed,
        (str(path), "line"),
        label=dataset.name if task else path.stem,
        own_ids=task is None and dataset.name not in BENCHMARKS,
    )
    return Source(dataset, task or path.stem, seed, list(records))


def _records(
    rows: Iterable[tuple[int, Row]],
    dataset: Dataset,
    seed: int,
    where: tuple[str, str],
    *,
    label: str | None = None,
    own_ids: bool = False,
) -> Iterator[Record]:
    source, unit = where
    numbers: dict[str, int] = {}
    for number, row in rows:
        record = Record(row, "", seed, f"{source} {unit} {number}")
        key = _key(record, dataset, label or dataset.name, own_ids)
        if key in numbers:
            raise InputError(f"{record.where}: problem {key!r} is already on {unit} {numbers[key]}")
        numbers[key] = number
        yield replace(record, key=key)


def _key(record: Record, dataset: Dataset, label: str, own_ids: bool) -> str:
    """A row's `problem_id` as it is; else another id behind the data set's label; else a digest of the question.

    In a file of one's own, `id` is taken as it is too.
    """
    for column in ("problem_id", *_IDS):
        value = record.row.get(column)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            verbatim = column == "problem_id" or (column == "id" and own_ids)
            return str(value).strip() if verbatim else f"{label}-{str(value).strip()}"
        if own_ids and column in record.row:
            raise InputError(f"{record.where}: {column} must be a text or a whole number, got {value!r}")
    texts = (record.row.get(column) for column in _QUESTIONS)
    question = next((text for text in texts if isinstance(text, str) and text), None)
    content = dataset.ask(record) if question is None else question
    text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
    return f"{label}-{hashlib.sha256(' '.join(text.split()).encode()).hexdigest()[:10]}"


def _from_hub(dataset: Dataset) -> list[Row]:
    way_out = "pass --data with a JSONL file of its rows"
    if dataset.hub is None:
        raise InputError(f"{dataset.name} is not on the hub: {way_out}")
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(
            f"{dataset.name} is loaded with the package datasets: pip install datasets, or {way_out}"
        ) from None
    try:
        return [dict(row) for row in load_dataset(dataset.hub.path, dataset.hub.config, split=dataset.hub.split)]
    except Exception as error:  # no network, a gated data set, a changed one: the hub's client raises many types
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise InputError(f"cannot load {dataset.hub.path} from the hub ({reason[:200]}): {way_out}") from None
