"""replication.json: what each method did on each problem, for one person or several. It holds no text and no routing.

docs/replicate.md describes it field by field. It is read strictly: a file comes from somebody else, and one in which anything
is missing, unknown or out of range is refused in one line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from radmoe.errors import InputError
from radmoe.system.foreign import read_file
from radmoe_studies.replicate.configs import PaperConfiguration, config_named

FORMAT, VERSION = "radmoe-replication", 1
COUNTS = ("rollouts", "right", "answered", "plurality", "located", "located_right", "basin")
KINDS = ("math", "choice", "code")
_MOST = 1 << 40  # of any number
_LONGEST = 1_000  # characters of a text

# What a document holds. A tuple may be null, a list is not empty, and "*" stands for any name. The lists of a cell have a number
# for each problem.
_EACH = ["count"]
_CELL = {
    "task": "text",
    "kind": "text",
    "questions": "text",
    "problems": ["text"],
    "tokens": _EACH,
    "counts": dict.fromkeys(COUNTS, _EACH),
    "hits": {"*": ["share"]},
    "missing": {"*": "text"},
    "equal_tokens": {"*": {"hits": ["share"], "tokens": ["amount"], "rad": ["share"]}},
    "choice": ({"hits": ["share"], "tokens": _EACH, "shown": _EACH, "named": _EACH},),
}
_MADE = {
    **dict.fromkeys(("radmoe", "engine", "model", "dtype"), "text"),
    "versions": {"*": "text"},
    "checkpoint": ("text",),
    "tokens_per_second": "amount",
}
_DOCUMENT = {
    "format": "text",
    "version": "count",
    "config": "text",
    "sampling": {"temperature": "amount", "top_p": "share", "context": "count", "n": "count"},
    "runs": [{"seed": "count", "made": _MADE, "cells": [_CELL]}],
    "results": "anything",  # computed from the rest, and computed anew by whoever reads it
}
_VALUES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": (
        f"a text of at most {_LONGEST} printable characters",
        lambda value: isinstance(value, str) and len(value) <= _LONGEST and value.isprintable(),
    ),
    "count": ("a whole number from 0 up", lambda value: type(value) is int and 0 <= value < _MOST),
    "amount": ("a number from 0 up", lambda value: type(value) in (int, float) and 0 <= value < _MOST),
    "share": ("a number from 0 to 1", lambda value: type(value) in (int, float) and 0 <= value <= 1),
    "anything": ("", lambda value: True),
}


def _check(value: Any, wanted: Any, where: str) -> None:
    """Raise ValueError where a value is not what is wanted there."""
    if isinstance(wanted, tuple):
        if value is not None:
            _check(value, wanted[0], where)
    elif isinstance(wanted, list):
        if type(value) is not list or not value:
            raise _wrong(where, value, "a list that is not empty")
        for i, one in enumerate(value):
            _check(one, wanted[0], f"{where}[{i}]")
    elif isinstance(wanted, dict):
        if type(value) is not dict or ("*" not in wanted and value.keys() != wanted.keys()):
            got = sorted(value) if type(value) is dict else value
            raise _wrong(where, got, f"an object of {', '.join(wanted)}")
        for name, one in value.items():
            _check(name, "text", f"a name in {where}")
            _check(one, wanted.get(name) or wanted["*"], f"{where}.{name}" if where else name)
    elif not _VALUES[wanted][1](value):
        raise _wrong(where, value, _VALUES[wanted][0])


def _wrong(where: str, value: object, allowed: str) -> ValueError:
    return ValueError(f"{where or 'the document'} is {value!r:.60}, it must be {allowed}")


def _check_cell(cell: Mapping[str, Any], n: int, where: str) -> None:
    """Raise ValueError where the numbers of a cell do not fit each other."""
    columns = [cell["problems"], cell["tokens"], *cell["counts"].values(), *cell["hits"].values()]
    for own in (*cell["equal_tokens"].values(), cell["choice"] or {}):
        columns += own.values()
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"{where} has lists of different lengths: one number for each problem")
    if len(set(cell["problems"])) < len(cell["problems"]) or cell["kind"] not in KINDS or not cell["hits"]:
        raise ValueError(f"{where} has a problem twice, another kind than {', '.join(KINDS)}, or no method")
    if set(cell["counts"]["rollouts"]) != {n} or any(max(own) > n for own in cell["counts"].values()):
        raise ValueError(f"{where} does not count {n} rollouts of each problem")


def document(config: PaperConfiguration, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The document of some runs, without results."""
    sampling = {"temperature": config.temperature, "top_p": config.top_p, "context": config.context, "n": config.n}
    return {
        "format": FORMAT,
        "version": VERSION,
        "config": config.name,
        "sampling": sampling,
        "runs": list(runs),
        "results": None,
    }


def read_document(path: str | Path) -> dict[str, Any]:
    """Read a replication. Raises an InputError of one line for what is none, or is of another version or configuration."""
    content = read_file(path, "a replication.json that radmoe replicate wrote")
    try:
        body = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}): radmoe replicate writes a replication.json") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise InputError(f"{path} is no replication: it lacks format {FORMAT!r}; radmoe replicate writes one")
    if body.get("version") != VERSION:
        raise InputError(
            f"{path} is of version {body.get('version')!r:.40}, and {VERSION} is read: make it anew with this radmoe, or "
            "read it with the one that made it"
        )
    try:
        _check(body, _DOCUMENT, "")
        config = replace(config_named(body["config"]), n=body["sampling"]["n"])
        if body["sampling"] != document(config, ())["sampling"]:
            raise ValueError(f"sampling is {body['sampling']}, not that of {config.name}")
        for r, run in enumerate(body["runs"]):
            tasks = [cell["task"] for cell in run["cells"]]
            if len(set(tasks)) < len(tasks) or set(tasks) - set(config.tasks):
                raise ValueError(
                    f"runs[{r}] has the tasks {', '.join(tasks):.60}, not some of {', '.join(config.tasks)}"
                )
            for cell in run["cells"]:
                _check_cell(cell, config.n, f"runs[{r}], {cell['task']},")
        check_runs(body["runs"])
    except ValueError as error:
        raise InputError(f"{path}: {error}: ask for it again from who made it") from None
    return body


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def merge(bodies: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Pool documents, given by their file names, into one. Raises InputError if configuration, sampling or problems differ."""
    if len(bodies) < 2:
        raise InputError(f"--merge needs two files or more, got {', '.join(bodies) or 'none'}")
    (first, one), *others = bodies.items()
    for name, body in others:
        for key, value in (("config", body["config"]), ("sampling", body["sampling"])):
            if value != one[key]:
                raise InputError(
                    f"{name} has {key} {value} and {first} {one[key]}: pool replications of one configuration"
                )
    for (a, x), (b, y) in combinations(bodies.items(), 2):
        try:
            check_runs([*x["runs"], *y["runs"]])
        except ValueError as error:
            raise InputError(f"{a} and {b} cannot be pooled: {error}") from None
    runs = [run for body in bodies.values() for run in body["runs"]]
    return document(replace(config_named(one["config"]), n=one["sampling"]["n"]), runs)


def check_runs(runs: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError where two runs drew with one seed, or where a task has other problems in one of them."""
    asked: dict[str, tuple[Any, Any]] = {}
    seeds: set[int] = set()
    for run in runs:
        if run["seed"] in seeds:
            raise ValueError(f"two runs have the seed {run['seed']}, so that their rollouts are not independent")
        seeds.add(run["seed"])
        for cell in run["cells"]:
            same = cell["questions"], cell["problems"]
            if asked.setdefault(cell["task"], same) != same:
                raise ValueError(f"they were asked other problems of {cell['task']}")


def finite(values: Iterable[float]) -> list[float] | None:
    """Numbers for a document; None where one of them is none."""
    numbers = [round(float(value), 6) for value in values]
    return numbers if all(map(math.isfinite, numbers)) else None
