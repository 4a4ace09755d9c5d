"""`radmoe serve`: what is wrong with a call is one line, before anything is loaded."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-n", "1"], "rollouts must be at least 2, got 1"),
        (["-n", "128"], "128 rollouts by default are more than the 64 allowed"),
        (["--preset", "worst"], "unknown preset 'worst': use one of paper"),
        (["--deadline", "0"], "deadline must be a positive number of seconds"),
        (["--port", "70000"], "port must lie in [0, 65536), got 70000"),
        (["--keys", "KEYS"], "holds no API key"),
        (["--upstream", "http://user:password@host"], "holds a password"),
        (["--upstream", "ftp://host"], "is no address of a server"),
        (["--upstream", "http://127.0.0.1:9", "--model", "./nowhere"], "no model './nowhere'"),
        (["--port", "PORT"], "choose another --host or --port"),
    ],
)
def test_a_wrong_call_is_one_line(options: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# none yet\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {"KEYS": str(tmp_path / "keys"), "PORT": str(taken.getsockname()[1])}
        command = [sys.executable, "-m", "radmoe", "serve", *(names.get(option, option) for option in options)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("radmoe: error: ")
    assert words in line
