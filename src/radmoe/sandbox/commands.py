"""The helper inside the confinement that runs one command after another: see `session.py`, which starts it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import stat
import struct
from pathlib import Path
from typing import Any, NoReturn

from radmoe.sandbox import filters
from radmoe.sandbox.command import enter, read_order, start

STARTED, STOP = b"+", b"."
END = struct.Struct("<i")  # the exit code of a command, 128 + n after signal n
_SCRATCH = Path("/tmp")


def main(order: str, control: str, place: str) -> None:
    """Confine this process, then run commands until the caller closes its end of the control socket.

    A command comes as two descriptors: of a file with its words, and of a pipe that takes both its outputs. When it
    ends, or the caller says STOP, whatever it started is ended too, /tmp is emptied, and its exit code goes back.
    """
    caller = socket.socket(fileno=int(control))
    wanted = read_order(order)
    try:
        barrier = enter(wanted, place)
    except OSError as error:
        caller.send(f"{error.strerror or error}".encode())
        os._exit(127)
    caller.send(STARTED)
    while True:
        message, descriptors, _, _ = socket.recv_fds(caller, 1, 2)
        if not message:
            os._exit(0)  # the caller is gone, and all that runs here goes with this process
        if message != STOP:  # which came too late for the command that it was meant for
            caller.send(END.pack(_run(caller, wanted, barrier, *descriptors)))


def _run(caller: socket.socket, wanted: dict[str, Any], barrier: filters.Filter, words: int, output: int) -> int:
    command = os.fork()
    if command == 0:
        _command(caller, wanted, barrier, words, output)
    os.close(words)
    os.close(output)
    ended = os.pidfd_open(command)
    select.select([ended, caller.fileno()], [], [])
    os.close(ended)
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    code = 127
    with contextlib.suppress(ChildProcessError):
        while True:
            process, status = os.wait()
            if process == command:
                code = os.waitstatus_to_exitcode(status)
    _empty(_SCRATCH, _SCRATCH.stat().st_dev)
    return code if code >= 0 else 128 - code


def _empty(directory: Path, device: int) -> None:
    """Remove what is in a directory. What is mounted there, such as the caller's own directory, is left alone."""
    for path in directory.iterdir():
        with contextlib.suppress(OSError):  # not empty, because something is mounted below it
            status = path.lstat()
            if status.st_dev == device and stat.S_ISDIR(status.st_mode):
                _empty(path, device)
                path.rmdir()
            elif status.st_dev == device:
                path.unlink()


def _command(
    caller: socket.socket, wanted: dict[str, Any], barrier: filters.Filter, words: int, output: int
) -> NoReturn:
    """The life of the process that becomes the command."""
    try:
        caller.close()
        with os.fdopen(words, "rb") as file:
            argv = json.load(file)
        for number in (1, 2):
            os.dup2(output, number)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.closerange(3, 1024)
        start(argv, wanted, barrier)
    except OSError as error:
        os.write(2, f"{error.strerror or error}\n".encode())
    finally:
        os._exit(127)
