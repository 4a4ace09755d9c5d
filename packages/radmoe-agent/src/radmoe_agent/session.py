"""Runs commands, such as those of an agent, in the same confinement as programs.

A command sees the system's programs and libraries, read-only, an empty /tmp and /dev/shm, and a work tree at /testbed,
which it may change and which later commands of the session find as it left it. All of these lie in memory and are gone
with the session: nothing that a command does reaches the machine's disk. It has no network and no other processes, gains
no privileges and is never root, whoever started it. This needs namespaces: Landlock alone cannot hide processes or the
network from a command that may make almost any system call.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from radmoe.errors import InputError
from radmoe.sandbox import boot, kernel
from radmoe.sandbox.root import WORKDIR
from radmoe.system.scratch import Scratch
from radmoe_agent import session_helper

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
_FILES = 4096  # open ones of a process
_OUT_OF_TIME = "it ran out of time"
_GRACE_S = 5.0
_START_S = 300.0  # a large work tree is copied first


@dataclass(frozen=True)
class Finished:
    """How a command ended: its exit code (128 + n after signal n), what it wrote, and the reason if it was stopped.

    `output` is what it wrote to both its outputs, in that order; `left_out` counts the bytes after those that are kept.
    """

    code: int
    output: bytes
    stopped: str = ""
    left_out: int = 0


class Session:
    """A confinement that is open until it is closed. It serves one thread at a time, and any thread may `stop` it.

    The work tree begins with a copy of the directory `copy` and with `files`, texts by their paths. Pipes, sockets and
    devices of the directory are left out, and links stay links. `disk` is bytes of the work tree, `scratch` bytes of
    /tmp, and of /dev/shm; a file counts 8 KiB at least. `memory` is bytes per process, `processes` their number (threads
    count). Commands see `binds`, read-only and at the same paths, which cannot lie below /tmp; paths that do not exist are
    left out. `environment` is added to a minimal one; nothing is inherited. Of what a command writes, the first `keep`
    bytes are kept, and after `most` it is stopped. Commands run as the caller or, if the caller is root, as a user who
    owns nothing. Raises InputError if commands cannot be confined here, or the work tree cannot be made.
    """

    def __init__(
        self,
        copy: str | Path | None = None,
        files: Mapping[str, str] | None = None,
        *,
        binds: Sequence[str | Path] = SYSTEM,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        memory: int = 2 << 30,
        processes: int = 256,
        disk: int = 1 << 30,
        scratch: int = 64 << 20,
        keep: int = 1 << 20,
        most: int = 1 << 26,
    ) -> None:
        if copy is not None and not Path(copy).is_dir():
            raise InputError(f"{copy} is no directory: a work tree is a copy of one")
        shown = [os.path.normpath(path) for path in binds]
        if hidden := [path for path in shown if f"{path}/".startswith(("/tmp/", "/dev/"))]:
            raise InputError(f"{hidden[0]} cannot be shown to a command, which has a /tmp of its own: move it")
        self._timeout, self._keep, self._most = timeout, keep, most
        order = {
            "copy": "" if copy is None else str(Path(copy).resolve()),
            "files": dict(files or {}),
            "read": shown,
            "environment": {**ENVIRONMENT, **(environment or {})},
            "disk": disk,
            "scratch": scratch,
            "limits": {"AS": memory, "NPROC": processes, "FSIZE": disk, "NOFILE": _FILES, "CORE": 0},
        }
        place = Scratch(Path(tempfile.gettempdir()), "radmoe-session-")
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        file = kernel.anonymous_file(json.dumps(order).encode())
        with theirs:
            arguments = str(file), str(theirs.fileno()), str(place.path)
            try:
                self._helper = subprocess.Popen(
                    boot.command_line("session_helper", *arguments, beside=Path(__file__).parent),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={},
                    pass_fds=(file, theirs.fileno()),
                    start_new_session=True,
                )
            finally:
                os.close(file)
        try:
            hello = self._said(time.monotonic() + _START_S)
        except BaseException:
            self.close()
            raise
        finally:
            place.remove()  # the root that was built on it needs it no longer
        if hello != session_helper.STARTED:
            self.close()
            reason = hello.decode("utf-8", "replace") or "its helper process ended at once"
            raise InputError(f"commands cannot be run in confinement: {reason}")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", cwd: str = WORKDIR, timeout: float | None = None
    ) -> Finished:
        """Run a command. It is stopped after `timeout` seconds of wall time; by default they are the session's."""
        seconds = timeout or self._timeout
        order = {"argv": list(argv), "cwd": cwd, "seconds": math.ceil(seconds) + 1}
        try:
            finished = self._run(order, stdin, seconds)
        except OSError as error:
            raise InputError(f"the confinement of {argv[0]!r} is gone ({error.strerror}): open another one") from None
        except BaseException:  # interrupted: what comes next would be read as the answer to another command
            self.close()
            raise
        if finished is None:
            self.close()
            raise InputError(f"the confinement of {argv[0]!r} is gone: open another one")
        return finished

    def _run(self, order: dict[str, object], stdin: bytes, seconds: float) -> Finished | None:
        """How a command ended; None if the helper did not survive it. Raises OSError if there is no helper."""
        deadline = time.monotonic() + seconds
        read, write = os.pipe()
        passed = [write]
        try:
            try:
                passed[:0] = [kernel.anonymous_file(json.dumps(order).encode()), kernel.anonymous_file(stdin)]
                socket.send_fds(self._control, [session_helper.RUN], passed)
            finally:
                for descriptor in passed:
                    os.close(descriptor)
            output, left_out, stopped = self._collect(read, deadline)
        finally:
            os.close(read)
        answer = b"" if stopped else self._said(deadline)
        if not answer:
            stopped = stopped or _OUT_OF_TIME
            self.stop()
            answer = self._said(time.monotonic() + _GRACE_S)
        if len(answer) != session_helper.END.size:
            return None
        stopped += f" ({seconds:g} s)" if stopped == _OUT_OF_TIME else ""
        return Finished(session_helper.END.unpack(answer)[0], output, stopped, left_out)

    def stop(self) -> None:
        """End the command that runs, if there is one, and all that it started."""
        with contextlib.suppress(OSError):
            self._control.send(session_helper.STOP)

    def _collect(self, read: int, deadline: float) -> tuple[bytes, int, str]:
        """What a command writes until it ends, how much of that is left out, and the reason if it should be stopped."""
        data, count = bytearray(), 0
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([read], [], [], left)[0]:
                return bytes(data), count - len(data), _OUT_OF_TIME
            piece = os.read(read, 1 << 16)
            data += piece[: max(0, self._keep - len(data))]
            count += len(piece)
            if not piece:
                return bytes(data), count - len(data), ""
            if count > self._most:
                return bytes(data), count - len(data), f"it wrote more than {self._most} bytes"

    def _said(self, deadline: float) -> bytes:
        """The next message of the helper; empty if none comes in time, or it is gone."""
        left = max(0.0, deadline - time.monotonic())
        try:
            return self._control.recv(1024) if select.select([self._control], [], [], left)[0] else b""
        except (OSError, ValueError):  # it was closed
            return b""

    def close(self) -> None:
        """End the helper and whatever runs in it. The work tree is gone with it."""
        self._control.close()  # at which the helper ends, and with it its tree of processes
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._helper.wait(_GRACE_S)
        if self._helper.poll() is None:
            self._helper.terminate()  # at which it kills the first process of its tree, and waits until all is gone
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._helper.wait(_GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._helper.pid, signal.SIGKILL)
        self._helper.wait()
