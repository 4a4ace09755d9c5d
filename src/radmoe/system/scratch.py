"""Temporary files and directories, and the removal of those that killed processes left behind.

A process keeps its temporary file locked (`flock`), and the lock goes away with the process. So the next process
removes what nobody holds, and leaves alone what another is still writing.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_DIGITS = 16
_TRIES = 16


class Scratch:
    """A new directory PREFIX + 16 hexadecimal digits under `parent`, until it is removed or renamed.

    Directories of this prefix that killed processes of the same user left there are removed first.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        remove_abandoned(parent, prefix)
        self.path, self._descriptor = _held(
            parent, prefix, "", lambda path: path.mkdir(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        )

    def release(self) -> None:
        """Release the lock on the directory, which stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Remove the directory with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()


def new_file(parent: Path, prefix: str, suffix: str) -> tuple[Path, int]:
    """Create a file named PREFIX + 16 hexadecimal digits + SUFFIX, open for writing and locked until its descriptor is
    closed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return _held(parent, prefix, suffix, lambda path: None, flags)


def remove_abandoned(parent: Path, prefix: str, suffix: str = "") -> None:
    """Remove the abandoned files and directories of this kind: those of this user that no process holds."""
    kind = re.compile(f"{re.escape(prefix)}[0-9a-f]{{{_DIGITS}}}{re.escape(suffix)}")
    with suppress(OSError), os.scandir(parent) as entries:
        for name in [entry.name for entry in entries if kind.fullmatch(entry.name)]:
            with suppress(OSError):
                _remove(parent / name)


def _remove(path: Path) -> None:
    status = path.lstat()
    is_directory = stat.S_ISDIR(status.st_mode)
    if status.st_uid != os.geteuid() or not (is_directory or stat.S_ISREG(status.st_mode)):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails where a process still holds it
        shutil.rmtree(path, ignore_errors=True) if is_directory else path.unlink()
    finally:
        os.close(descriptor)


def _held(parent: Path, prefix: str, suffix: str, make: Callable[[Path], object], flags: int) -> tuple[Path, int]:
    """Create something under a new name and lock it. If another process removed it before it was locked, it is created
    again.
    """
    for _ in range(_TRIES):
        path = parent / f"{prefix}{secrets.token_hex(_DIGITS // 2)}{suffix}"
        make(path)
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:
            if not parent.is_dir():
                raise
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink and path.exists():
            return path, descriptor
        os.close(descriptor)
    raise FileNotFoundError(f"files under {parent} are removed as fast as they are made")
