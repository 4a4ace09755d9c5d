"""The helper inside the confinement that runs one command: see `confine.py`, which starts it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
from collections.abc import Callable
from typing import Any

from radmoe.sandbox import filters, kernel, root

STARTED = "+"  # the whole report, if the command was started


def main(order: str, report: str, place: str) -> None:
    """Confine this process, run a command in it, and end with its exit code.

    `order` and `report` are descriptors: of a file that says what to run, and of a pipe that takes complaints.
    """
    out = int(report)
    os.set_inheritable(out, False)
    wanted = read_order(order)
    try:
        barrier = enter(wanted, place)
        command = os.fork()
        if command == 0:
            start(wanted["argv"], wanted, barrier, lambda: os.write(out, STARTED.encode()))
    except OSError as error:
        os.write(out, f"{error.strerror or error}".encode())
        os._exit(127)
    os.close(out)
    os.closerange(0, 3)
    while True:  # the first process of a tree has to bury whoever dies in it
        ended, status = os.wait()
        if ended == command:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def read_order(order: str) -> dict[str, Any]:
    """What to run and how, from the descriptor of a file that says it. Signals get back the meaning that commands expect."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and a command would inherit that
        signal.signal(number, signal.SIG_DFL)
    with os.fdopen(int(order), "rb") as file:
        wanted: dict[str, Any] = json.load(file)
    return wanted


def enter(wanted: dict[str, Any], place: str) -> filters.Filter:
    """Confine this process to what was ordered, hide it from commands, and return the filter they start behind."""
    barrier = filters.for_commands()
    if barrier is None:
        raise OSError(f"there is no seccomp filter for {os.uname().machine}")
    workdir = wanted["workdir"]
    root.enter(root.View(tuple(wanted["read"]), write=(workdir,), home=workdir, scratch=wanted["scratch"]), place)
    kernel.set_dumpable(False)
    return barrier


def start(
    argv: list[str], wanted: dict[str, Any], barrier: filters.Filter, about_to: Callable[[], object] = lambda: None
) -> None:
    """Make this process a command, within limits and behind the filter. Raises OSError if there is no such command."""
    os.setsid()
    os.chdir(wanted["workdir"])
    for name, most in wanted["limits"].items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    kernel.become(*wanted["owner"], bounding=True)
    barrier.install()
    about_to()
    os.execvpe(argv[0], argv, wanted["environment"])
