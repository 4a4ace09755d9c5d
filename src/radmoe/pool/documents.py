"""The JSON documents and the vocabulary of a pool, and the type of every field in them.

`read_pool`, `read_open` and `read_shard` return a document in which every field that the format names is there and has
its type; whoever reads it needs to look no further. A field that is missing or of another type is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from radmoe.errors import InputError, PoolCorrupt, VocabError
from radmoe.pool import files, schema
from radmoe.pool.profile import Profile
from radmoe.types import RouterShape
from radmoe.vocab import Vocab

Check = Callable[[Any, str], None]  # raises a ValueError that names the field

_LARGEST = 2**62
_CRC_END = 2**32
_MOST_SHOWN = 60


def _wrong(where: str, value: Any, allowed: str) -> ValueError:
    spelling = repr(value)
    shown = spelling if len(spelling) <= _MOST_SHOWN else f"{spelling[:_MOST_SHOWN]}..."
    return ValueError(f"gives {where or 'the document'} as {shown}, it must be {allowed}")


def _number(allowed: str, first: int = 0, end: int = _LARGEST) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) is not int or not first <= value < end:
            raise _wrong(where, value, allowed)

    return check


def _instance(allowed: str, *types: type) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) not in types:
            raise _wrong(where, value, allowed)

    return check


def _list(item: Check, length: int | None = None) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) is not list or length not in (None, len(value)):
            raise _wrong(where, value, "a list" if length is None else f"a list of {length}")
        for at, element in enumerate(value):
            item(element, f"{where}[{at}]")

    return check


def _optional(check: Check) -> Check:
    def optional(value: Any, where: str) -> None:
        if value is not None:
            check(value, where)

    return optional


def _object(**fields: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) is not dict:
            raise _wrong(where, value, "an object")
        for name, inner in fields.items():
            place = f"{where}.{name}" if where else name
            if name not in value:
                raise ValueError(f"lacks {place}")
            inner(value[name], place)

    return check


def _mapping(item: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if type(value) is not dict:
            raise _wrong(where, value, "an object")
        for name, inner in value.items():
            item(inner, f"{where}.{name}")

    return check


_COUNT = _number("a number that is not negative")
_POSITIVE = _number("a positive number", 1)
_CRC = _number("a CRC-32", 0, _CRC_END)
_TEXT = _instance("a text", str)
_FLAG = _instance("true or false", bool)
_ANY_OBJECT = _instance("an object", dict)
_ENTRY = {"bytes": _COUNT, "crc32": _CRC}

_ROUTER: dict[str, Check] = dict.fromkeys(("layers", "experts", "top_k"), _POSITIVE)
_HEADER: dict[str, Check] = _ROUTER | {
    "vocab": _TEXT,
    "run": _object(
        model=_TEXT,
        task=_optional(_TEXT),
        style=_optional(_TEXT),
        sampling=_optional(_ANY_OBJECT),
        profile=_object(sort_experts=_FLAG, layers=_optional(_list(_COUNT)), readouts=_optional(_list(_TEXT))),
    ),
}
_COLUMNS = _mapping(_list(_POSITIVE))
_POOL = _object(
    **_HEADER,
    runs=_COUNT,
    problems=_COUNT,
    steps=_FLAG,
    shards=_mapping(_object(**_ENTRY, runs=_COUNT)),
    files=_object(**{name: _object(**_ENTRY) for name in schema.LISTED}),
)
_SHARD = _object(
    **_ROUTER,
    runs=_COUNT,
    tokens=_COUNT,
    weights=_FLAG,
    captured_bytes=_COUNT,
    provenance=_ANY_OBJECT,
    dtypes=_mapping(_TEXT),
    pointers=_mapping(_object(**_ENTRY)),
    columns=_mapping(
        _object(
            **_ENTRY,
            file=_TEXT,
            dtype=_TEXT,
            rows=_COUNT,
            per_row=_POSITIVE,
            frame_head=_COUNT,
            frame_data=_COUNT,
            frame_crc32=_CRC,
            chunk_bytes=_POSITIVE,
            chunks=_list(_list(_COUNT, 2)),
        )
    ),
)
_RECORD = {
    "problem_id": _TEXT,
    "problem_index": _optional(_number("a whole number", -_LARGEST)),
    "kind": _optional(_TEXT),
    "rollout_index": _optional(_COUNT),
    "tokens": _POSITIVE,
    "finish_reason": _optional(_TEXT),
    "steps": _optional(_list(_object(start=_COUNT, kept=_optional(_COUNT)))),
    "given": _optional(_list(_list(_number("a token id", 0, 2**31)))),
    "text": _optional(_TEXT),
    "prompt": _optional(_TEXT),
    "extra": _optional(_TEXT),
    "captured_bytes": _COUNT,
}
_COLUMN_NAMES = [column.name for column in schema.COLUMNS]


def read_pool(path: Path) -> dict[str, Any]:
    """The description of a complete pool, from its pool.json."""
    body = _checked(path, schema.read_json(path), _POOL)
    files.check_names(body["files"], schema.LISTED, path)
    files.check_names(body["shards"], list(filter(schema.is_shard_name, body["shards"])), path)
    if body["shards"]:
        _checked(path, body, _object(columns=_COLUMNS))
    return _header(path, body)


def read_open(path: Path) -> dict[str, Any]:
    """The header of a pool that is being written, from its pool.open.json."""
    return _header(path, _checked(path, schema.read_json(path), _object(**_HEADER)))


def read_shard(path: Path) -> dict[str, Any]:
    """The description of a sealed shard, from its moe_meta.json."""
    body = _checked(path, schema.read_json(path), _SHARD)
    files.check_names(body["pointers"], schema.POINTERS, path)
    files.check_names(body["columns"], _COLUMN_NAMES, path)
    return body


def read_vocab(pool: Path) -> Vocab:
    """The vocabulary of a pool."""
    path = pool / schema.VOCAB_TABLE
    table = files.read_bytes(path)
    try:
        return Vocab.from_table(table, partial(files.read_bytes, pool / schema.TOKENIZER_JSON))
    except VocabError as e:
        raise PoolCorrupt(f"{path}: {e}") from None


def check_record(body: dict[str, Any]) -> None:
    """Raise ValueError if a journal's description of a rollout has missing, unknown or mistyped fields."""
    _object(**_RECORD)(body, "")
    if others := body.keys() - _RECORD.keys():
        raise ValueError(f"has the field {min(others)!r}, which no rollout has")


def check_header(header: dict[str, Any], provenance: dict[str, Any]) -> None:
    """Raise InputError if the pool's readers would refuse a writer's description of it."""
    try:
        for body, check in ((header, _object(**_HEADER)), (provenance, _ANY_OBJECT)):
            schema.check_characters(written := json.loads(json.dumps(body)))
            check(written, "")
        if "columns" in header:
            _COLUMNS(header["columns"], "columns")
    except (TypeError, ValueError, RecursionError) as e:
        reason = (str(e) or type(e).__name__).splitlines()[0]
        raise InputError(
            f"the run record, sampling or provenance of a pool must be JSON that reads back: {reason}"
        ) from None


def stored_router(header: dict[str, Any]) -> tuple[RouterShape, Profile]:
    """The shape of the routing that a pool stores, and its profile."""
    profile = Profile.from_json(header["run"]["profile"])
    return profile.stored_shape(RouterShape(header["layers"], header["experts"], header["top_k"])), profile


def _header(path: Path, body: dict[str, Any]) -> dict[str, Any]:
    if "without" in body:
        _checked(path, body, _object(without=_list(_TEXT)))
    if "columns" in body:
        _checked(path, body, _object(columns=_COLUMNS))
        files.check_names(body["columns"], _COLUMN_NAMES, path)
    try:
        stored_router(body)
    except InputError as e:
        raise PoolCorrupt(f"{path} describes no router or profile ({e}): restore it from a copy") from None
    return body


def _checked(path: Path, body: dict[str, Any], check: Check) -> dict[str, Any]:
    try:
        check(body, "")
    except ValueError as e:
        raise PoolCorrupt(f"{path} {e}: restore it from a copy") from None
    return body
