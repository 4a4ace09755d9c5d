"""Ctrl-C in any command: one line, exit code 130, nothing half written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from radmoe.cli import app


def interrupted(arguments: list[object], ready: Callable[[], bool], **environment: str) -> tuple[int, str, str]:
    """Start a command, send it SIGINT once it is ready, and return its exit code, stdout and stderr."""
    code = (  # a shell's background jobs ignore SIGINT, and their children inherit that
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from radmoe.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    deadline = time.monotonic() + 60
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.slow
def test_a_benchmark_leaves_one_line_and_no_scratch(tmp_path: Path) -> None:
    found = interrupted(["bench"], lambda: any(tmp_path.glob("*/pool/token_data_*/*")), TMPDIR=str(tmp_path))
    assert found == (130, "", "radmoe: interrupted: bench has left nothing half written: run the same command again\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["select", "inspect", "grade", "bench", "verify"])
def test_commands_that_read_a_pool_say_that_nothing_is_half_written(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radmoe.pool.open_pool", interrupt)
    done = CliRunner().invoke(app, [command, "pool"])
    wanted = f"radmoe: interrupted: {command} has left nothing half written: run the same command again\n"
    assert (done.exit_code, done.stderr) == (130, wanted)


def test_the_demo_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radmoe.capture.capture_pool", interrupt)
    done = CliRunner().invoke(app, ["demo"])
    kept = "radmoe: interrupted: what is finished is kept: run the same command to go on\n"
    assert (done.exit_code, done.stderr) == (130, kept)


def interrupt(*args: object, **kwargs: object) -> None:
    raise KeyboardInterrupt
