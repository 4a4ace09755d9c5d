"""Reading files that somebody else made: what they may decide, and how much of them is read.

Pools, archives, trajectories, calibrations and data files are exchanged between people. A string in one of them may choose
among names of ours (`check_recorded`); a dotted path or a regular expression, which runs what its author wrote, comes from the
command line or from Python alone. A file is read only if it is one (`read_file`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from radmoe.errors import InputError

_SMALL = 64 << 20  # bytes that any file may claim
_RATIO = 64  # how many bytes an honest file has for each byte on disk
_MOST_SHOWN = 80


def check_recorded(name: object, known: Collection[str], what: str, where: object, way_out: str) -> str:
    """Return the name that a file records if it is a known one. Raises an InputError for any other, dotted paths
    included.
    """
    if isinstance(name, str) and name in known:
        return name
    raise InputError(
        f"{where} records the {what} {name!r:.{_MOST_SHOWN}}, and a file chooses only among {', '.join(known)}: {way_out}"
    )


def read_file(path: str | Path, holds: str) -> bytes:
    """Read a file. `holds` says in messages what it should contain, such as "a JSONL file of problems".

    Links are followed. Raises an InputError if there is no such file, if it is not a regular file (a FIFO is not waited
    for and a device is not read), or if it is sparse, with a size that its bytes on disk do not account for.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"cannot read {path} (not a regular file): pass {holds}")
            if status.st_size > max(_SMALL, _RATIO * 512 * status.st_blocks):
                raise InputError(f"cannot read {path} ({status.st_size:,} bytes, nearly none on disk): pass {holds}")
            return file.read()
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {path} ({getattr(error, 'strerror', None) or error}): pass {holds}") from None
