"""Arrays that studies computed from a pool, kept in the user's cache directory under a checksum of what they depend on.

As with `evaluation.cache`, nothing is kept in the pool, a file is found only while pool, labels and code are those it
was made from, and the directory may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import PoolError
from radmoe.evaluation import cache
from radmoe.pool import files
from radmoe.pool.schema import disk_errors

Arrays = Mapping[str, NDArray[Any]]


def load(identity: str, request: object) -> dict[str, NDArray[Any]] | None:
    """The arrays of a request on the pool of this identity, or None where there are none."""
    try:
        with np.load(io.BytesIO(files.read_bytes(_file(identity, request))), allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, RuntimeError, PoolError):
        return None


def save(identity: str, request: object, arrays: Arrays, *, small: bool = False) -> None:
    """Keep arrays if the cache directory can be written to; `small` compresses them, which pays for levels, not for S."""
    buffer = io.BytesIO()
    (np.savez_compressed if small else np.savez)(buffer, **dict(arrays))  # type: ignore[arg-type]
    try:
        file = _file(identity, request)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with disk_errors(file):
            files.write_atomic(file, buffer.getvalue())
    except (OSError, RuntimeError, PoolError):
        return


def _file(identity: str, request: object) -> Path:
    name = hashlib.sha256(f"{identity} {request!r}".encode()).hexdigest()[:32]
    return cache.directory().parent / "studies" / f"{name}.npz"
