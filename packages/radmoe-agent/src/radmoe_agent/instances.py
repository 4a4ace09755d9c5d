"""The issues that an agent is to solve: a folder with a line per instance, and the repositories."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from radmoe.errors import InputError
from radmoe.problems.own import read_rows

LISTED = "instances.jsonl"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_EXAMPLE = '{"instance_id": "a__b-1", "problem_statement": "..", "repository": "repositories/a__b-1"}'


@dataclass(frozen=True)
class Instance:
    """One issue, and the repository that has it: its directory, its files by their paths, or the image of a container.

    `visible_tests` is the bash command that runs the tests which the repository ships; empty where there is none to run.
    """

    instance_id: str
    problem_statement: str
    repository: Path | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    visible_tests: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.instance_id):
            raise InputError(
                f"{self.instance_id!r} names a directory too: use letters, digits, -, _ and . and begin with no dot"
            )
        for path in self.files:
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise InputError(f"{self.instance_id}: the file {path!r} lies outside of its repository")


def load_instances(folder: str | Path, *, limit: int | None = None) -> list[Instance]:
    """The instances of a folder: the lines of its `instances.jsonl`.

    A line has `instance_id`, `problem_statement`, and `repository` (a path relative to the folder) or `files` (texts by
    their paths in the repository), and may have `visible_tests`. Lines of SWE-bench have neither: they are solved in containers, whose `image_name`
    follows from the id unless given.
    """
    folder = Path(folder)
    if not (folder / LISTED).is_file():
        raise InputError(f"{folder} has no {LISTED}: give a folder with one, a line of which is {_EXAMPLE}")
    instances = []
    for number, row in read_rows(folder / LISTED, "instances", _EXAMPLE):
        instances.append(_instance(dict(row), folder, f"{folder / LISTED} line {number}"))
    repeated = [name for name, count in Counter(one.instance_id for one in instances).items() if count > 1]
    if repeated:
        raise InputError(f"{folder / LISTED} has {repeated[0]!r} more than once: ids must be distinct")
    return instances[:limit]


def _instance(row: dict[str, Any], folder: Path, where: str) -> Instance:
    for name in ("instance_id", "problem_statement"):
        if not isinstance(row.get(name), str) or not row[name]:
            raise InputError(f"{where}: {name} must be a text, got {row.get(name)!r}; a line is {_EXAMPLE}")
    files, path = row.get("files", {}), row.get("repository")
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        raise InputError(f"{where}: files must be texts by their paths, got {str(files)[:60]}")
    if (files and path is not None) or not isinstance(path, str | None):
        raise InputError(
            f"{where} has both repository and files, or a repository that is no text; a line is {_EXAMPLE}"
        )
    tests = row.get("visible_tests", "")
    if not isinstance(tests, str):
        raise InputError(f"{where}: visible_tests must be a command of bash, got {str(tests)[:60]}")
    repository = None if path is None else _below(folder, path, where)
    try:
        return Instance(row["instance_id"], row["problem_statement"], repository, files, row.get("image_name"), tests)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _below(folder: Path, path: str, where: str) -> Path:
    """The directory of a repository, links followed, which must lie in the folder that names it."""
    try:
        repository = (folder / path).resolve()
        there = repository.is_dir()
    except (OSError, ValueError, RuntimeError):  # too long, with a null byte, a loop of links
        raise InputError(f"{where}: {path!r} is no path of a directory") from None
    if not repository.is_relative_to(folder.resolve()):
        raise InputError(f"{where}: the repository {path!r} lies outside of {folder}: put it, or a copy of it, there")
    if not there:
        raise InputError(f"{where}: there is no directory {folder / path}")
    return repository
