"""Names, versions and column types of the pool format, and the file operations that every part shares."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from radmoe.errors import PoolCorrupt, PoolVersion, PoolWriteError

SCHEMA_VERSION = 2

POOL_JSON = "pool.json"
OPEN_JSON = "pool.open.json"  # exists while a writer works: what pool.json will say of the run record and the router
LOCK = "pool.lock"
TOKENIZER_JSON = "tokenizer.json"
VOCAB_TABLE = "tokenizer.bytes"  # tokenizer.json compiled to token bytes, so that opening stays cheap
RUNS = "runs.parquet"
LABELS = "labels.parquet"
SHARD_META = "moe_meta.json"
JOURNAL = "journal.bin"

CHUNK_BYTES = 4 << 20
BLOCK_BYTES = 16 << 10

_SHARD_NAME = re.compile(r"token_data_(\d{5,})")


@dataclass(frozen=True)
class Column:
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

EXPERT_IDS = Column("moe_topk_expert_ids", np.dtype("<i2"), MOE_PTR)
EXPERT_WEIGHTS = Column("moe_topk_expert_weights", np.dtype("<f2"), MOE_PTR)
TOKEN_INDEX = Column("moe_token_index", np.dtype("<i4"), MOE_PTR)
TOKEN_IDS = Column("tok_token_ids", np.dtype("<i4"), TOK_PTR)
SAMPLED = Column("tok_sampled_logprob", np.dtype("<f4"), TOK_PTR)
TOPK = Column("tok_topk_logprobs", np.dtype("<f2"), TOK_PTR)
PROMPT_IDS = Column("prompt_moe_topk_expert_ids", np.dtype("<i2"), PROMPT_PTR)
PROMPT_WEIGHTS = Column("prompt_moe_topk_expert_weights", np.dtype("<f2"), PROMPT_PTR)

COLUMNS = (EXPERT_IDS, EXPERT_WEIGHTS, TOKEN_INDEX, TOKEN_IDS, SAMPLED, TOPK, PROMPT_IDS, PROMPT_WEIGHTS)
ROUTING = (EXPERT_IDS, EXPERT_WEIGHTS, TOKEN_INDEX)


def shard_name(number: int) -> str:
    return f"token_data_{number:05d}"


def shard_dirs(pool: Path) -> list[Path]:
    """The shard directories of a pool, sorted by number."""
    shards = [(int(m[1]), p) for p in pool.iterdir() if (m := _SHARD_NAME.fullmatch(p.name)) and p.is_dir()]
    return [p for _, p in sorted(shards)]


def pointer_file(pointer: str) -> str:
    return f"{pointer}.int64"


def crc32_file(path: Path) -> int:
    crc = 0
    with path.open("rb") as f:
        while block := f.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return crc


def seal_json(body: dict[str, Any]) -> bytes:
    """A JSON document that carries the CRC-32 of its own canonical form."""
    return json.dumps(body | {"crc32": _json_crc(body)}, indent=1, sort_keys=True).encode() + b"\n"


def read_json(path: Path) -> dict[str, Any]:
    """Read a document that `seal_json` wrote. One that is damaged or of another version is refused."""
    try:
        body = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as e:
        raise PoolCorrupt(f"{path} is not valid JSON ({e}): restore it from a copy") from None
    if not isinstance(body, dict):
        raise PoolCorrupt(f"{path} holds {type(body).__name__}, not an object: restore it from a copy")
    version = body.get("schema_version")
    if isinstance(version, int) and version != SCHEMA_VERSION:
        way_out = "upgrade radmoe" if version > SCHEMA_VERSION else "capture its rollouts again, or replay their texts"
        raise PoolVersion(f"{path} has schema version {version}, this radmoe reads version {SCHEMA_VERSION}: {way_out}")
    crc = body.pop("crc32", None)
    if version != SCHEMA_VERSION or crc != _json_crc(body):
        raise PoolCorrupt(f"{path} does not match its own checksum: restore it from a copy")
    return body


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


def write_atomic(path: Path, write: bytes | Callable[[Path], None]) -> None:
    """Make `path` appear whole or not at all, and survive power loss."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        if isinstance(write, bytes):
            temporary.write_bytes(write)
        else:
            write(temporary)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """fsync a file or directory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
