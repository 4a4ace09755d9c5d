"""Records of an evaluated pool, kept inside it so that the next call need not read it again.

`evaluation.cache/` holds one file per setting. A file is used only while the pool, its labels and radmoe are the ones
it was made from. A pool that cannot be written to is simply evaluated anew; the folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from radmoe import __version__
from radmoe.errors import PoolWriteError
from radmoe.evaluation.records import Records, Settings
from radmoe.pool.schema import LABELS, POOL_JSON, disk_errors, write_atomic

FOLDER = "evaluation.cache"
FORMAT = 1  # of the records: another number, and old files are made anew


def identity(pool: Path) -> str:
    """What the records depend on: pool.json, which lists every file's checksum, the labels, and this radmoe."""
    digest = hashlib.sha256(f"{__version__} {FORMAT}".encode())
    for name in (POOL_JSON, LABELS):
        file = pool / name
        digest.update(hashlib.sha256(file.read_bytes() if file.exists() else b"").digest())
    return digest.hexdigest()


def load(pool: Path, settings: Settings, key: str) -> Records | None:
    """The records of these settings, or None where there are none, or older ones."""
    try:
        body = json.loads(_file(pool, settings).read_bytes())
        return Records.from_json(body["records"]) if body["identity"] == key else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def save(pool: Path, settings: Settings, key: str, records: Records) -> None:
    """Keep the records if the pool lets us."""
    file = _file(pool, settings)
    body = json.dumps({"identity": key, "records": records.to_json()}, separators=(",", ":"))
    try:
        file.parent.mkdir(exist_ok=True)
        with disk_errors(file):
            write_atomic(file, body.encode())
    except (OSError, PoolWriteError):
        return


def _file(pool: Path, settings: Settings) -> Path:
    name = hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode()).hexdigest()[:16]
    return pool / FOLDER / f"{name}.json"
