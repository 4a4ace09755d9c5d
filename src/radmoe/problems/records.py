"""The rows of a data set, each with its problem's id.

The id contains the data set's own id of the row, or a digest of the question if it has none. So an answer is never
compared with another problem's, whatever the order of the rows.
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
from radmoe.problems.dataset import DEFAULT_SEED, OWN_TESTS, TEST_COLUMNS, Dataset, Record, Row
from radmoe.problems.datasets import BENCHMARKS, dataset_named
from radmoe.problems.own import dataset_of_file, read_rows
from radmoe.types import Kind, check_kind

_IDS = ("id", "problem_idx", "question_id", "Record ID")
_QUESTIONS = ("prompt", "question", "problem", "Question", "question_content")
_SEEDED = re.compile(r".+-s(-?\d{1,18})(-\d{3,})?")  # gpqa_diamond-rec3-s7, and the lab's math-2-s7-004


@dataclass(frozen=True)
class RecordSource:
    """A data set with its rows.

    `task` is what a pool records: a name, a dotted path, or a file's stem. `label` begins the ids of rows that have no
    `problem_id`; with `own_ids`, `id` too is taken as it is. `where` and `unit` name a row in messages, as in
    "aime.jsonl line 3".
    """

    dataset: Dataset
    task: str
    rows: Iterable[tuple[int, Row]]
    seed: int
    where: str
    unit: str = "row"
    label: str = ""
    own_ids: bool = False

    def records(self, kind: Kind | None = None) -> Iterator[Record]:
        """Yield the rows as records. `kind` applies to rows for which neither the data set nor the row states one."""
        numbers: dict[str, int] = {}
        shuffled = self.dataset.shuffled and self.seed != DEFAULT_SEED
        for number, row in self.rows:
            record = Record(row, "", self.seed, f"{self.where} {self.unit} {number}")
            record = replace(record, kind=self._kind(record, kind))
            key = self._key(record)
            if key in numbers:
                raise InputError(f"{record.where}: problem {key!r} is already on {self.unit} {numbers[key]}")
            numbers[key] = number
            yield replace(record, key=key, problem_id=f"{key}-s{self.seed}" if shuffled else key)

    def _kind(self, record: Record, given: Kind | None) -> Kind | None:
        """Return the data set's kind, else the one that the row states, else "code" for a row with tests, else the
        given one.
        """
        kind, stated = self.dataset.kind, record.row.get("kind")
        if kind is None and stated is not None:
            try:
                kind = check_kind(stated)
            except InputError as error:
                raise InputError(f"{record.where}: {error}") from None
        if kind is None and any(record.row.get(column) for column in (*TEST_COLUMNS, OWN_TESTS)):
            kind = "code"
        if given is not None and kind not in (None, given):
            raise InputError(f"{record.where} is of kind {kind}, --kind {given} contradicts it: leave --kind out")
        return kind or given

    def _key(self, record: Record) -> str:
        """Return a row's `problem_id` as it is; else the label and another id of the row; else the label and a digest
        of the question.
        """
        for column in ("problem_id", *_IDS):
            value = record.row.get(column)
            if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
                verbatim = column == "problem_id" or (column == "id" and self.own_ids)
                return str(value).strip() if verbatim else f"{self.label}-{str(value).strip()}"
            if self.own_ids and column in record.row:
                raise InputError(f"{record.where}: {column} must be a text or a whole number, got {value!r}")
        texts = (record.row.get(column) for column in _QUESTIONS)
        question = next((text for text in texts if isinstance(text, str) and text), None)
        content = self.dataset.ask(record) if question is None else question
        text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
        return f"{self.label}-{hashlib.sha256(' '.join(text.split()).encode()).hexdigest()[:10]}"


def open_source(
    task: str | None, data: str | Path | None, *, seed: int | None = None, limit: int | None = None
) -> RecordSource:
    """Open a task, a file, or a task whose rows are in a file. A task that generates its problems generates only
    `limit`.
    """
    seed = DEFAULT_SEED if seed is None else seed
    if data is not None:
        return _from_file(task, Path(data), seed)
    if task is None:
        raise InputError("give the problems: --task math-2 (or another data set), --data FILE, or both")
    dataset = dataset_named(task)
    if dataset.rows is not None:
        drawn = enumerate(islice(dataset.rows(seed), limit), 1)
        return RecordSource(dataset, task, drawn, seed, dataset.name, label=dataset.name)
    rows, where = _from_hub(dataset)
    return RecordSource(dataset, task, enumerate(rows, 1), seed, where, label=dataset.name)


def seed_in(problem_ids: Iterable[str]) -> int:
    """Return the seed that problem ids contain; the default if they contain none or several."""
    seeds = {int(match[1]) for match in map(_SEEDED.fullmatch, problem_ids) if match}
    return seeds.pop() if len(seeds) == 1 else DEFAULT_SEED


def _from_file(task: str | None, path: Path, seed: int) -> RecordSource:
    if task is None:
        rows = list(read_rows(path))
        dataset = dataset_of_file(path.stem, rows[0][1])
        own_ids = dataset.name not in BENCHMARKS
        return RecordSource(dataset, path.stem, rows, seed, str(path), "line", path.stem, own_ids)
    dataset = dataset_named(task)
    if dataset.rows is not None:
        raise InputError(f"task {task!r} draws its own problems and reads no file: leave out --task or --data")
    return RecordSource(dataset, task, read_rows(path), seed, str(path), "line", dataset.name)


def _from_hub(dataset: Dataset) -> tuple[list[Row], str]:
    """Load a data set's rows from the hub. Returns them and the data set's name there."""
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
        rows: list[Row] = [
            dict(row) for row in load_dataset(dataset.hub.path, dataset.hub.config, split=dataset.hub.split)
        ]
    except Exception as error:  # no network, a gated data set, a changed one: the hub's client raises many types
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise InputError(f"cannot load {dataset.hub.path} from the hub ({reason[:200]}): {way_out}") from None
    return rows, dataset.hub.path
