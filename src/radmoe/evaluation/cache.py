"""Arrays that were computed from graded pools, kept in the user's own cache directory so that pools need not be read again.

The cache is never part of a pool: a pool may come from a stranger, and nobody can tell numbers that were measured from
numbers that were made up. `directory()` holds one file per pool and request. Its name is a checksum of everything that
the arrays depend on, so a file is found only while the pool, its labels, the code of radmoe and the registered methods
are those it was made from. Where the directory cannot be written to, everything is simply computed anew, and it may be
deleted at any time.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

import radmoe
from radmoe import __version__
from radmoe.errors import PoolError
from radmoe.evaluation.methods.registry import registry_fingerprint
from radmoe.pool import files
from radmoe.pool.schema import BEHAVIOURS, LABELS, POOL_JSON, disk_errors, shard_dirs

FORMAT = 4  # of the files; those of another format are made anew


def directory() -> Path:
    """Where arrays are kept: $RADMOE_CACHE, or radmoe in the user's cache directory ($XDG_CACHE_HOME, ~/.cache)."""
    if own := os.environ.get("RADMOE_CACHE"):
        return Path(own) / "evaluation"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "radmoe" / "evaluation"


def identity(pool: Path) -> str:
    """A checksum of what results depend on: the pool, its labels, the code of radmoe and the registered methods.

    Of the pool it takes its `checksum`, and the size and time of change of every file in its shards, so that one that was
    changed behind pool.json's back is noticed without being read.
    """
    state = f"{__version__} {FORMAT} {_code()} {registry_fingerprint()} {checksum(pool)}"
    digest = hashlib.sha256(state.encode())
    for shard in () if files.in_store(pool) else shard_dirs(pool):  # in a store nothing is changed in place
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


def load(key: str) -> dict[str, NDArray[Any]] | None:
    """The arrays under a key, or None where there are none."""
    try:
        with np.load(io.BytesIO(files.read_bytes(_file(key))), allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, RuntimeError, PoolError, TypeError, AttributeError):
        return None


def save(key: str, arrays: Mapping[str, NDArray[Any]], *, small: bool = False) -> None:
    """Keep arrays if the cache directory can be written to; `small` compresses them, which pays for levels, not for S."""
    buffer = io.BytesIO()
    (np.savez_compressed if small else np.savez)(buffer, **dict(arrays))  # type: ignore[arg-type]
    try:
        file = _file(key)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with disk_errors(file):
            files.write_atomic(file, buffer.getvalue())
    except (OSError, RuntimeError, PoolError):  # RuntimeError: there is no home directory
        return


def _file(key: str) -> Path:
    return directory() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"


@cache
def _code() -> str:
    """A checksum of the source files of radmoe."""
    root = Path(radmoe.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
