"""The right to write to a pool: one process at a time, unless all of them are workers.

A writer keeps `pool.writer` locked (`flock`) as long as it lives: exclusively, or shared with others if it is a worker.
The file says which process that is, for the message that refuses the next one. The lock goes away with its process,
however that ends, so a dead writer blocks nobody.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from radmoe.errors import PoolBusy
from radmoe.pool import files, lease, schema
from radmoe.pool.lease import Lease
from radmoe.pool.stores import StorePath

_TRIES = 4  # a reader that looks whether a pool is held locks it for a moment
_PAUSE = 0.05  # seconds


class Hold:
    """The right to write to a pool, until it is released. Raises PoolBusy if another process has it."""

    def __init__(self, pool: Path, *, shared: bool = False) -> None:
        self._file = files.open_lock(pool / schema.WRITER)
        mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        for left in reversed(range(_TRIES)):
            if _try_lock(self._file, mode):
                break
            if not left:
                holder = _holder(self._file)
                self._file.close()
                raise PoolBusy(
                    f"{pool} is being written by {holder}: wait until it has finished, or stop it; "
                    "to share the work, capture parts and merge them"
                )
            time.sleep(_PAUSE)
        if not shared:
            self._file.truncate(0)
        self._file.seek(0, os.SEEK_END)
        self._file.write(f"{os.getpid()} {socket.gethostname()}\n".encode())
        self._file.flush()

    def begin(self, directory: Path) -> Path:
        """Make a shard's directory, and return where it is filled, which is there."""
        directory.mkdir()
        return directory

    def finish(self, directory: Path) -> None:
        """Nothing more is known of a shard that is sealed."""

    def check(self) -> None:
        """Nobody can take a lock away."""

    def share(self) -> None:
        """Allow workers to write to the pool beside this process, which until now was the only one allowed to."""
        if not _try_lock(self._file, fcntl.LOCK_SH):  # the lock is let go for a moment
            raise PoolBusy(
                f"{self._file.name} was taken by {_holder(self._file)} meanwhile: wait until it has finished"
            )

    def release(self, *, last: bool = False) -> None:
        if self._file.closed:
            return
        if _try_lock(self._file, fcntl.LOCK_EX):  # the last one clears the file
            self._file.truncate(0)
        self._file.close()


def hold(pool: Path, *, shared: bool = False) -> Hold | Lease:
    """The right to write to a pool, on a disk or in a store. Raises PoolBusy if another process has it."""
    return Lease(pool, shared=shared) if isinstance(pool, StorePath) else Hold(pool, shared=shared)


def holder(pool: Path) -> str | None:
    """The process that writes to a pool, as in "process 123 on host"; None if nobody does."""
    if isinstance(pool, StorePath):
        return lease.holder(pool)
    if not files.exists(pool / schema.WRITER):
        return None
    with files.open_file(pool / schema.WRITER) as f:
        return None if _try_lock(f, fcntl.LOCK_EX) else _holder(f)


def workplace(directory: Path) -> Path | None:
    """Where the journal of a shard is that is not sealed; None if that is on another machine."""
    if not isinstance(directory, StorePath):
        return directory
    try:
        local = lease.workplace(directory, (directory / schema.JOURNAL).content())
    except FileNotFoundError:  # it is sealed by now
        return None
    return local if files.exists(local / schema.JOURNAL) else None


def claimed(directory: Path) -> bool:
    """Whether a process that lives fills a shard in a store."""
    claim = directory / schema.JOURNAL
    with suppress(FileNotFoundError):  # it is sealed by now
        return isinstance(claim, StorePath) and lease.is_alive(claim.content(), claim.head())
    return False


def _try_lock(file: BinaryIO, mode: int) -> bool:
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(file: BinaryIO) -> str:
    """The youngest process in a lock file that is not known to be dead."""
    file.seek(0)
    for line in reversed(file.read(1 << 16).decode(errors="replace").splitlines()):
        pid, _, host = line.partition(" ")
        if pid.isdecimal() and host and not (host == socket.gethostname() and not Path("/proc", pid).exists()):
            return f"process {pid} on {host}"
    return "another process"
