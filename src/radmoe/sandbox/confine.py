"""Running any command, such as an agent's bash or git, in the confinement that programs have.

A command sees the system's programs and libraries, read-only, an empty /tmp, and one directory of the caller's that it
may write to. It has no network and no other processes, and gains no privileges. This needs namespaces: Landlock alone
cannot hide processes or the network from a command that may make almost any system call.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radmoe.errors import InputError
from radmoe.sandbox import boot, command, kernel

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
_GRACE_S = 5.0


@dataclass(frozen=True)
class Finished:
    """How a command ended: its exit code (128 + n after signal n), what it wrote, and the reason if it was stopped."""

    code: int
    stdout: bytes
    stderr: bytes
    stopped: str = ""


def run_command(
    argv: Sequence[str],
    *,
    workdir: str | Path,
    binds: Sequence[str | Path] = SYSTEM,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = 60.0,
    memory: int = 2 << 30,
    processes: int = 256,
    scratch: int = 256 << 20,
    most: int = 1 << 20,
) -> Finished:
    """Run a command that may write to `workdir`, where it starts, and to a /tmp that is gone afterwards.

    It sees `binds`, read-only and at the same paths; paths that do not exist are left out. `environment` is added to a
    minimal one; nothing is inherited. It is stopped after `timeout` seconds of wall time or `most` bytes of output.
    `memory` is bytes per process, `scratch` bytes of /tmp. Whatever it started ends with it. It runs as the caller, or,
    if the caller is root, as the owner of `workdir`; if that is root too, `processes` does not hold, as the kernel
    excepts root from it. Raises InputError if the command cannot be confined or cannot be started.
    """
    order = limits_and_view(workdir, binds, environment, timeout, memory, processes, scratch) | {"argv": list(argv)}
    with tempfile.TemporaryDirectory(prefix="radmoe-confine-") as place:
        report, theirs = os.pipe()
        passed = [kernel.anonymous_file(stdin), kernel.anonymous_file(json.dumps(order).encode()), theirs]
        try:
            process = subprocess.Popen(
                boot.command_line("command", str(passed[1]), str(theirs), place),
                stdin=passed[0],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={},
                pass_fds=passed[1:],
                start_new_session=True,
            )
        finally:
            for descriptor in passed:
                os.close(descriptor)
        with os.fdopen(report, "rb") as file, process:
            try:
                stdout, stderr, stopped = _watch(process, timeout, most)
            finally:
                end(process)
            reason = file.read().decode("utf-8", "replace")
    if reason != command.STARTED and not stopped:
        why = reason.removeprefix(command.STARTED) or "its helper process ended at once"
        raise InputError(f"{argv[0]!r} cannot be run in confinement: {why}")
    return Finished(process.returncode, stdout, stderr, stopped)


def limits_and_view(
    workdir: str | Path,
    binds: Sequence[str | Path],
    environment: Mapping[str, str] | None,
    timeout: float,
    memory: int,
    processes: int,
    scratch: int,
) -> dict[str, Any]:
    """What a helper is told about the commands that it runs: see `run_command`."""
    home = Path(workdir).resolve()
    if not home.is_dir():
        raise InputError(f"{workdir} is no directory: a confined command needs one to work in")
    owner = home.stat()
    return {
        "workdir": str(home),
        "owner": [owner.st_uid, owner.st_gid],
        "read": [os.path.normpath(path) for path in binds],
        "environment": {**ENVIRONMENT, **(environment or {})},
        "scratch": scratch,
        "limits": {"AS": memory, "NPROC": processes, "CPU": math.ceil(timeout) + 1, "CORE": 0, "FSIZE": 1 << 30},
    }


def _watch(process: subprocess.Popen[bytes], timeout: float, most: int) -> tuple[bytes, bytes, str]:
    """What a process writes to its two outputs until it ends, and the reason if it should be stopped."""
    assert process.stdout
    assert process.stderr
    deadline = time.monotonic() + timeout
    outputs = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    stopped, open_outputs = "", set(outputs)
    while open_outputs and not stopped:
        ready = select.select(open_outputs, [], [], max(0.0, deadline - time.monotonic()))[0]
        for output in ready:
            piece = os.read(output, 1 << 16)
            outputs[output] += piece
            if not piece:
                open_outputs.remove(output)
        if sum(map(len, outputs.values())) > most:
            stopped = f"it wrote more than {most} bytes"
        elif not ready:
            stopped = f"it ran out of time ({timeout:g} s)"
    try:
        if not stopped:  # a process may close its outputs and go on
            process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        stopped = f"it ran out of time ({timeout:g} s)"
    stdout, stderr = (bytes(output[:most]) for output in outputs.values())
    return stdout, stderr, stopped


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a helper if it still runs, and with it the command and all that the command started."""
    if process.poll() is None:
        process.terminate()  # at which it kills the command, and waits until all is gone
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
