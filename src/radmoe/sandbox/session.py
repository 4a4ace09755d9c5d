"""Several commands of one agent in one confinement, as `confine.run_command` runs one.

Namespaces take ten times as long to make as a short command takes to run. A `Session` makes them once; its commands see
the same as there: the system, one directory to write to, and a /tmp that is empty for every command.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from radmoe.errors import InputError
from radmoe.sandbox import boot, commands, kernel
from radmoe.sandbox.confine import SYSTEM, Finished, end, limits_and_view

_GRACE_S = 5.0
_START_S = 60.0


class Session:
    """A confinement that is open until it is closed. It serves one thread at a time.

    The options are those of `run_command`. Raises InputError if commands cannot be confined here.
    """

    def __init__(
        self,
        workdir: str | Path,
        *,
        binds: Sequence[str | Path] = SYSTEM,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        memory: int = 2 << 30,
        processes: int = 256,
        scratch: int = 256 << 20,
        most: int = 1 << 20,
    ) -> None:
        self._timeout, self._most = timeout, most
        order = limits_and_view(workdir, binds, environment, timeout, memory, processes, scratch)
        self._place = tempfile.mkdtemp(prefix="radmoe-session-")
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        file = kernel.anonymous_file(json.dumps(order).encode())
        with theirs:
            try:
                self._helper = subprocess.Popen(
                    boot.command_line("commands", str(file), str(theirs.fileno()), self._place),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={},
                    pass_fds=(file, theirs.fileno()),
                    start_new_session=True,
                )
            finally:
                os.close(file)
        hello = self._said(time.monotonic() + _START_S)
        if hello != commands.STARTED:
            self.close()
            reason = hello.decode("utf-8", "replace") or "its helper process ended at once"
            raise InputError(f"commands cannot be run in confinement: {reason}")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, argv: Sequence[str]) -> Finished:
        """Run a command. Both its outputs come as `stdout`, in the order in which they were written."""
        deadline = time.monotonic() + self._timeout
        read, write = os.pipe()
        words = kernel.anonymous_file(json.dumps(list(argv)).encode())
        try:
            try:
                socket.send_fds(self._control, [b"!"], [words, write])
            finally:
                os.close(words)
                os.close(write)
            output, stopped = self._collect(read, deadline)
        except OSError as error:
            raise InputError(f"the confinement of {argv[0]!r} is gone ({error.strerror}): open another one") from None
        finally:
            os.close(read)
        answer = b"" if stopped else self._said(deadline)
        if not answer:
            stopped = stopped or f"it ran out of time ({self._timeout:g} s)"
            with contextlib.suppress(OSError):
                self._control.send(commands.STOP)
            answer = self._said(time.monotonic() + _GRACE_S)
        if len(answer) != commands.END.size:
            self.close()
            raise InputError(f"the confinement of {argv[0]!r} is gone: open another one")
        return Finished(commands.END.unpack(answer)[0], output, b"", stopped)

    def _collect(self, read: int, deadline: float) -> tuple[bytes, str]:
        """What a command writes until it ends, and the reason if it should be stopped."""
        data = bytearray()
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([read], [], [], left)[0]:
                return bytes(data), f"it ran out of time ({self._timeout:g} s)"
            piece = os.read(read, 1 << 16)
            if not piece:
                return bytes(data), ""
            data += piece
            if len(data) > self._most:
                return bytes(data[: self._most]), f"it wrote more than {self._most} bytes"

    def _said(self, deadline: float) -> bytes:
        """The next message of the helper; empty if none comes in time, or it is gone."""
        left = max(0.0, deadline - time.monotonic())
        if not select.select([self._control], [], [], left)[0]:
            return b""
        try:
            return self._control.recv(1024)
        except OSError:
            return b""

    def close(self) -> None:
        """End the helper and whatever runs in it."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._helper.wait(_GRACE_S)
        end(self._helper)
        shutil.rmtree(self._place, ignore_errors=True)
