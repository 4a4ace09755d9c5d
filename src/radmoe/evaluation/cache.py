"""Records of an evaluated pool, kept inside it so that the next call need not read it again.

`evaluation.cache/` holds one file per request: the kind, readout, k, kernel and window that were asked for. A file is
used only while the pool, its labels, radmoe and the registered methods are those it was made from, so a method that
was added later is never hidden by it. A pool that cannot be written to is simply evaluated anew, and the folder may be
deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from radmoe import __version__
from radmoe.cohort.registry import registry_fingerprint
from radmoe.errors import InputError, PoolWriteError
from radmoe.evaluation.records import Records
from radmoe.pool.schema import LABELS, POOL_JSON, disk_errors, write_atomic

FOLDER = "evaluation.cache"
FORMAT = 2  # of the records; files of another format are made anew

Request = dict[str, Any]


def identity(pool: Path) -> str:
    """What records depend on: pool.json, which lists every file's checksum, the labels, this radmoe and its methods."""
    digest = hashlib.sha256(f"{__version__} {FORMAT} {registry_fingerprint()}".encode())
    for name in (POOL_JSON, LABELS):
        file = pool / name
        digest.update(hashlib.sha256(file.read_bytes() if file.exists() else b"").digest())
    return digest.hexdigest()


def load(pool: Path, request: Request, key: str) -> tuple[Records, ...] | None:
    """The records of a request, or None where there are none of this identity."""
    try:
        body = json.loads(_file(pool, request).read_bytes())
        return tuple(map(Records.from_json, body["records"])) if body["identity"] == key else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError):
        return None


def save(pool: Path, request: Request, key: str, records: tuple[Records, ...]) -> None:
    """Keep the records if the pool can be written to."""
    file = _file(pool, request)
    body = json.dumps({"identity": key, "records": [r.to_json() for r in records]}, separators=(",", ":"))
    try:
        file.parent.mkdir(exist_ok=True)
        with disk_errors(file):
            write_atomic(file, body.encode())
    except (OSError, PoolWriteError):
        return


def _file(pool: Path, request: Request) -> Path:
    name = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]
    return pool / FOLDER / f"{name}.json"
