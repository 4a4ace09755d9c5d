"""The files of a data set, and the columns of its rollouts.

README.md and Parquet under data/ are what the Hub and `datasets` read. radmoe.json (the pool's header, and the checksum of every
other file but the card) and tokenizer.json are what makes a pool of them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from radmoe.pool import files, schema

DESCRIPTION = "radmoe.json"
CARD = "README.md"
VERSION = 1  # of the layout

_ARRAYS = {  # columns of a pool, as they are called here: flat lists, row after row
    schema.TOKEN_IDS: "token_ids",
    schema.TOKEN_INDEX: "positions",
    schema.EXPERT_IDS: "expert_ids",
    schema.EXPERT_WEIGHTS: "weights",
    schema.SAMPLED: "sampled_logprobs",
    schema.TOPK: "topk_logprobs",
    schema.PROMPT_IDS: "prompt_expert_ids",
    schema.PROMPT_WEIGHTS: "prompt_weights",
}
_STEPS = pa.list_(pa.struct([("start", pa.int64()), ("kept", pa.int64())]))
_ALWAYS = {
    "problem_id": pa.string(),
    "problem_index": pa.int64(),
    "kind": pa.string(),
    "rollout_index": pa.int64(),
    "finish_reason": pa.string(),
}
TEXTS = {"text": pa.string(), "prompt": pa.string(), "extra": pa.string()}  # in a data set with texts alone


def entry(path: Path) -> dict[str, Any]:
    """What radmoe.json says of a file."""
    digest = hashlib.sha256()
    with files.open_file(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {"bytes": files.size_of(path), "sha256": digest.hexdigest()}


def arrays(columns: Mapping[str, list[int]]) -> dict[str, tuple[schema.StoredColumn, tuple[int, ...]]]:
    """The arrays of a rollout by the names that they have here: what each is in a pool, and the shape of one row."""
    return {name: (column, tuple(columns[column.name])) for column, name in _ARRAYS.items() if column.name in columns}


def fields(description: Mapping[str, Any]) -> pa.Schema:
    """The columns of the rollouts of a data set."""
    found = dict(_ALWAYS)
    if description["steps"]:
        found["steps"] = _STEPS
    if description["texts"]:
        found |= TEXTS | ({"given": pa.list_(pa.list_(pa.int32()))} if description["steps"] else {})
    for name, (column, _) in arrays(description["columns"]).items():
        found[name] = pa.list_(pa.from_numpy_dtype(column.dtype))
    return pa.schema(list(found.items()))
