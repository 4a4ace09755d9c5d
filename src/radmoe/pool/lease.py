"""The right to write to a pool in a store, where nothing can be locked.

`pool.writer` is an object that only one process can create, because a conditional write refuses the second. It names its process, and
is written again every few seconds for as long as that lives; one that was not for a while, or whose process is known to be dead, is
taken over. So is the claim to a shard that is not yet sealed. A process that was away for too long finds its lease taken when it next
publishes, and publishes nothing: what it added is still in the directory where it kept its journals.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from radmoe.errors import PoolBusy, PoolError, PoolWriteError
from radmoe.pool import schema
from radmoe.pool.stores import StorePath

BEAT = 10.0  # seconds between two signs of life
LAPSE = 90.0  # seconds without one, after which a process counts as dead
_SHARED = b"shared"


class Lease:
    """The right to write to a pool in a store, until it is released. Raises PoolBusy if another process has it.

    `shared` is for workers of one pool. `text` names this process, and differs from that of all others.
    """

    def __init__(self, pool: StorePath, *, shared: bool = False) -> None:
        self._pool, self._file, self._shared = pool, pool / schema.WRITER, shared
        self.token = secrets.token_hex(8)
        self.text = (
            f"{os.getpid()} {socket.gethostname()} {self.token} {_SHARED.decode() if shared else 'alone'}\n".encode()
        )
        _probe(pool / f"{schema.PROBE}{self.token}")
        self._version = self._acquire()
        self._claims: list[StorePath] = []
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="radmoe-lease")
        self._thread.start()

    def begin(self, directory: Path) -> Path:
        """Claim a shard, and return the directory on this machine in which it is filled. Raises FileExistsError if it is claimed."""
        claim = StorePath(directory / schema.JOURNAL)
        claim.put(self.text, new=True)
        with self._lock:
            self._claims.append(claim)
        local = workplace(directory, self.text)
        local.mkdir(parents=True, mode=0o700)
        return local

    def finish(self, directory: Path) -> None:
        """Keep the claim to a shard no longer."""
        with self._lock:
            self._claims = [claim for claim in self._claims if claim.parent != directory]

    def share(self) -> None:
        """Let workers in beside this process, which alone had the right until now."""
        with self._lock:
            self.check()
            self.text = self.text.replace(b" alone", b" " + _SHARED)
            self._shared = bool(self._file.put(self.text, over=self._version))

    def check(self) -> None:
        """Raise PoolBusy where another process has taken this pool over."""
        with self._lock:
            if self._shared:
                return
            try:
                self._version = self._file.put(self.text, over=self._version)
            except (FileExistsError, FileNotFoundError):
                raise PoolBusy(
                    f"{self._pool} was taken over by {holder(self._pool) or 'another process'} while this one was away: "
                    "nothing is lost; run it again when that has finished"
                ) from None

    def release(self, *, last: bool = False) -> None:
        """Give the right back. `last` says that no worker is left with whom it is shared."""
        self._ended.set()
        self._thread.join()
        with suppress(PoolError, OSError):
            self.check()
            if last or self._file.content() == self.text:  # workers that are left say so again
                self._file.unlink()

    def _acquire(self) -> dict[str, Any]:
        for _ in range(8):  # others may come and go meanwhile
            try:
                return self._file.put(self.text, new=True)
            except FileExistsError:
                with suppress(FileNotFoundError, FileExistsError):
                    version, text = self._file.version(), self._file.content()
                    if not is_alive(text, self._file.head()):
                        return self._file.put(self.text, over=version)
                    if self._shared and text.split()[3:] == [_SHARED]:
                        return version
                    break
        raise PoolBusy(
            f"{self._pool} is being written by {holder(self._pool) or 'another process'}: wait until it has finished, or stop it; "
            "to share the work, capture parts and merge them"
        )

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            with suppress(PoolError, OSError), self._lock:
                for claim in self._claims:
                    claim.put(self.text)
                self.check()
                if self._shared:
                    try:
                        shared = self._file.content().split()[3:] == [_SHARED]
                    except FileNotFoundError:
                        shared = True
                    if shared:
                        self._file.put(self.text)


def workplace(directory: Path, claim: bytes) -> Path:
    """Where the process that claimed a shard fills it, on the machine of that process.

    It is in $RADMOE_SPOOL, or else in radmoe/unsent in the user's state directory ($XDG_STATE_HOME, ~/.local/state).
    """
    own, state = (os.environ.get(name) for name in ("RADMOE_SPOOL", "XDG_STATE_HOME"))
    base = Path(own) if own else (Path(state) if state else Path.home() / ".local/state") / "radmoe" / "unsent"
    token = re.sub("[^0-9a-f]", "", claim.decode(errors="replace").split()[2]) if claim.count(b" ") > 1 else ""
    return base / hashlib.sha256(f"{directory.parent} {token}".encode()).hexdigest()[:16] / directory.name


def holder(pool: StorePath) -> str | None:
    """The process that writes to a pool, as in "process 123 on host"; None if nobody does."""
    file = pool / schema.WRITER
    try:
        head, text = file.head(), file.content()
    except FileNotFoundError:
        return None
    if not is_alive(text, head):
        return None
    pid, host, *_ = text.decode().split()
    return f"process {pid} on {host}"


def is_alive(text: bytes, head: dict[str, Any]) -> bool:
    """Whether the process lives that has written this into an object."""
    pid, host, *_ = (*text.decode(errors="replace").split(), "", "")
    if host == socket.gethostname() and not Path("/proc", pid).exists():
        return False
    age: float = (datetime.now(UTC) - head["last_modified"]).total_seconds()
    return age < LAPSE


def _probe(file: StorePath) -> None:
    """Refuse a store in which a conditional write touches what it must not, or that forgets what it took."""

    def refused(content: bytes, **condition: Any) -> bool:
        try:
            file.put(content, **condition)
        except FileExistsError:
            return True
        return False

    first = file.put(b"first", new=True)
    try:
        honoured = refused(b"second", new=True) and not refused(b"third", over=first) and refused(b"fourth", over=first)
    finally:
        file.unlink()
    if not honoured:
        raise PoolWriteError(
            f"{file.parent} is in a store that ignores conditional writes (If-None-Match, If-Match), so two writers would overwrite "
            "each other: use one that honours them, or write to a disk"
        )
