"""Names, versions and column types of the pool format, and the JSON documents that describe a pool."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from radmoe.errors import PoolCorrupt, PoolVersion, PoolWriteError
from radmoe.pool import files, limits
from radmoe.pool.stores import StorePath

SCHEMA_VERSION = 2

POOL_JSON = "pool.json"
OPEN_JSON = "pool.open.json"  # exists while a writer works: what pool.json will say of the run record and the router
LOCK = "pool.lock"
WRITER = "pool.writer"  # locked by the process that writes to the pool, and names it
PROBE = "probe."  # how the name of an object begins by which a writer tries a store
TOKENIZER_JSON = "tokenizer.json"
VOCAB_TABLE = "tokenizer.bytes"  # tokenizer.json compiled to token bytes, so that opening stays cheap
RUNS = "runs.parquet"
LABELS = "labels.parquet"
BEHAVIOURS = "behaviours.parquet"
SHARD_META = "moe_meta.json"
JOURNAL = "journal.bin"
REFUSED = "journal.refused"  # records of a shard's journal that hold no rollout, as they were found

CHUNK_BYTES = 4 << 20
BLOCK_BYTES = 16 << 10

_SHARD_NAME = re.compile(r"token_data_([0-9]{5,9})")


@dataclass(frozen=True)
class StoredColumn:
    """One blosc2 file of a shard: flat, little-endian, with as many items in every row that its pointer counts."""

    name: str
    dtype: np.dtype[Any]
    pointer: str

    @property
    def file(self) -> str:
        return f"{self.name}.{self.dtype.name}.b2"


MOE_PTR = "moe_row_ptr"
TOK_PTR = "tok_row_ptr"
PROMPT_PTR = "prompt_moe_row_ptr"

EXPERT_IDS = StoredColumn("moe_topk_expert_ids", np.dtype("<i2"), MOE_PTR)
EXPERT_WEIGHTS = StoredColumn("moe_topk_expert_weights", np.dtype("<f2"), MOE_PTR)
TOKEN_INDEX = StoredColumn("moe_token_index", np.dtype("<i4"), MOE_PTR)
TOKEN_IDS = StoredColumn("tok_token_ids", np.dtype("<i4"), TOK_PTR)
SAMPLED = StoredColumn("tok_sampled_logprob", np.dtype("<f4"), TOK_PTR)
TOPK = StoredColumn("tok_topk_logprobs", np.dtype("<f2"), TOK_PTR)
PROMPT_IDS = StoredColumn("prompt_moe_topk_expert_ids", np.dtype("<i2"), PROMPT_PTR)
PROMPT_WEIGHTS = StoredColumn("prompt_moe_topk_expert_weights", np.dtype("<f2"), PROMPT_PTR)

COLUMNS = (EXPERT_IDS, EXPERT_WEIGHTS, TOKEN_INDEX, TOKEN_IDS, SAMPLED, TOPK, PROMPT_IDS, PROMPT_WEIGHTS)
POINTERS = (MOE_PTR, TOK_PTR, PROMPT_PTR)
LISTED = (RUNS, TOKENIZER_JSON, VOCAB_TABLE)  # the files that pool.json lists beside the shards
ROUTING = (EXPERT_IDS, EXPERT_WEIGHTS, TOKEN_INDEX)


def shard_name(number: int) -> str:
    return f"token_data_{number:05d}"


def shard_files(pool: Path) -> dict[Path, set[str]]:
    """The shard directories of a pool, sorted by number, and the names of what is in each. A link in place of one is refused."""
    names: dict[Path, set[str]] = {}
    if isinstance(pool, StorePath):  # one request
        for path in pool.walk_keys():
            if is_shard_name(path.parent.name) and path.parent.parent == pool:
                names.setdefault(path.parent, set()).add(path.name)
    else:
        named = [p for p in pool.iterdir() if is_shard_name(p.name) and files.is_directory(p)]
        for p in named:
            with suppress(FileNotFoundError):  # a deletion replaces shards
                names[p] = {inner.name for inner in p.iterdir()}
    return dict(sorted(names.items(), key=lambda entry: shard_number(entry[0].name)))


def shard_dirs(pool: Path) -> list[Path]:
    """The directories of the sealed shards of a pool, sorted by number."""
    return [directory for directory, names in shard_files(pool).items() if SHARD_META in names]


def is_shard_name(name: str) -> bool:
    """Whether a name is that of a shard, as `shard_name` writes it."""
    return _SHARD_NAME.fullmatch(name) is not None and name == shard_name(shard_number(name))


def shard_number(name: str) -> int:
    return int(name.rpartition("_")[2])


def pointer_file(pointer: str) -> str:
    return f"{pointer}.int64"


def seal_json(body: dict[str, Any]) -> bytes:
    """A JSON document that carries the CRC-32 of its own canonical form."""
    return json.dumps(body | {"crc32": _json_crc(body)}, indent=1, sort_keys=True).encode() + b"\n"


def read_json(path: Path) -> dict[str, Any]:
    """Read a document that `seal_json` wrote. One that is damaged or of another version is refused."""
    content = files.read_bytes(path)
    limits.check_json(path, content)
    try:
        body = json.loads(content)
        check_characters(body)
    except (ValueError, RecursionError) as e:
        raise PoolCorrupt(f"{path} is not valid JSON ({e}): restore it from a copy") from None
    if not isinstance(body, dict):
        raise PoolCorrupt(f"{path} holds {type(body).__name__}, not an object: restore it from a copy")
    version = body.get("schema_version")
    if type(version) is int and version != SCHEMA_VERSION:
        way_out = "upgrade radmoe"
        if version < SCHEMA_VERSION:
            way_out = "capture its rollouts again, or replay the texts in its runs.parquet (docs/format.md, Version 1)"
        raise PoolVersion(f"{path} has schema version {version}, this radmoe reads version {SCHEMA_VERSION}: {way_out}")
    crc = body.pop("crc32", None)
    if type(version) is not int or crc != _json_crc(body):
        raise PoolCorrupt(f"{path} does not match its own checksum: restore it from a copy")
    return body


def check_characters(body: Any) -> None:
    """Refuse what came from JSON, with a ValueError or a RecursionError, if it has half a character or is nested too deeply."""
    json.dumps(body, ensure_ascii=False).encode()


def _json_crc(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Map what the disk, pyarrow and blosc2 raise on a failed write to one PoolWriteError."""
    try:
        yield
    except (OSError, RuntimeError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else (str(e) or type(e).__name__).splitlines()[0]
        raise PoolWriteError(
            f"cannot write {path}: {reason}; what was written before is kept; make room or make it writable, then run it again"
        ) from e
