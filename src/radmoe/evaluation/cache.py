"""Records of evaluated pools, kept in the user's own cache directory so that the next call need not read the pool again.

The cache is never part of a pool: a pool may come from a stranger, and nobody can tell records that were measured from
records that were made up. `directory()` holds one file per pool and request (kind, readout, k, kernel and window). Its
name is a checksum of everything that the records depend on, so a file is found only while the pool, its labels, the
code of radmoe and the registered methods are those it was made from. Where the directory cannot be written to, pools
are simply evaluated anew, and it may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import radmoe
from radmoe import __version__
from radmoe.errors import InputError, PoolError
from radmoe.evaluation.cohort.registry import registry_fingerprint
from radmoe.evaluation.records import Records
from radmoe.grading.behaviours import BEHAVIOURS
from radmoe.pool import files
from radmoe.pool.schema import LABELS, POOL_JSON, disk_errors, shard_dirs

FORMAT = 3  # of the records; files of another format are made anew

Request = dict[str, Any]


def directory() -> Path:
    """Where records are kept: $RADMOE_CACHE, or radmoe in the user's cache directory ($XDG_CACHE_HOME, ~/.cache)."""
    if own := os.environ.get("RADMOE_CACHE"):
        return Path(own) / "evaluation"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "radmoe" / "evaluation"


def identity(pool: Path) -> str:
    """A checksum of what records depend on: the pool, its labels, the code of radmoe and the registered methods.

    Of the pool it takes its `checksum`, and the size and time of change of every file in its shards, so that one that was changed behind pool.json's back is noticed without being read.
    """
    state = f"{__version__} {FORMAT} {_code()} {registry_fingerprint()} {checksum(pool)}"
    digest = hashlib.sha256(state.encode())
    for shard in shard_dirs(pool):
        for file in sorted(shard.iterdir()):
            status = file.lstat()
            digest.update(f"{shard.name}/{file.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def checksum(pool: Path) -> str:
    """A checksum of a pool and its labels: of pool.json, which lists the checksums of all files, labels.parquet, and
    behaviours.parquet where it is there.
    """
    digest = hashlib.sha256()
    for name in (POOL_JSON, LABELS):
        content = files.read_bytes(pool / name) if files.exists(pool / name) else b""
        digest.update(hashlib.sha256(content).digest())
    if files.exists(pool / BEHAVIOURS):
        digest.update(hashlib.sha256(files.read_bytes(pool / BEHAVIOURS)).digest())
    return digest.hexdigest()


def load(request: Request, key: str) -> tuple[Records, ...] | None:
    """The records of a request on the pool of this identity, or None where there are none."""
    try:
        body = json.loads(files.read_bytes(_file(request, key)))
        return tuple(map(Records.from_json, body["records"])) if body["identity"] == key else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, InputError, PoolError):
        return None


def save(request: Request, key: str, records: tuple[Records, ...]) -> None:
    """Keep the records if the cache directory can be written to."""
    body = json.dumps({"identity": key, "records": [r.to_json() for r in records]}, separators=(",", ":"))
    try:
        file = _file(request, key)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with disk_errors(file):
            files.write_atomic(file, body.encode())
    except (OSError, RuntimeError, PoolError):  # RuntimeError: there is no home directory
        return


def _file(request: Request, key: str) -> Path:
    name = hashlib.sha256(f"{key} {json.dumps(request, sort_keys=True)}".encode()).hexdigest()[:32]
    return directory() / f"{name}.json"


@cache
def _code() -> str:
    """A checksum of the source files of radmoe."""
    root = Path(radmoe.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
