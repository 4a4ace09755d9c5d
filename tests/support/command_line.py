"""The command line in processes of its own, as a stranger runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable


def radmoe(*arguments: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "radmoe", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "160"},
    )
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def lines(done: subprocess.CompletedProcess[str]) -> list[dict]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def error(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a known error."""
    (line,) = done.stderr.splitlines()
    assert line.startswith("radmoe: error: ")
    return line


def start(arguments: list[object], first: str = "", **environment: str) -> subprocess.Popen[str]:
    """Start a command in a process that runs the statements `first` before it."""
    code = (  # a shell's background jobs ignore SIGINT, and their children inherit that
        f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {first}\n"
        "from radmoe.cli import main; main()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def interrupted(arguments: list[object], ready: Callable[[], bool], **environment: str) -> tuple[int, str, str]:
    """Start a command, send it SIGINT once it is ready, and return its exit code, stdout and stderr."""
    process = start(arguments, **environment)
    deadline = time.monotonic() + 240
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err
