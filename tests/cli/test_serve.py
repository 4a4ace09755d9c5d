"""`radmoe serve`: what is wrong with a call is one line, before anything is loaded."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-n", "1"], "rollouts must be at least 2, got 1"),
        (["-n", "128"], "128 rollouts by default are more than the 64 allowed"),
        (["--preset", "worst"], "unknown preset 'worst': use one of paper"),
        (["--deadline", "0"], "deadline must be a positive number of seconds"),
        (["--port", "70000"], "port must lie in [0, 65536), got 70000"),
        (["--keys", "KEYS"], "holds no API key"),
        (["--host", "0.0.0.0"], "give --keys FILE, or --no-keys"),
        (["--cors", "example.org"], "the origin of a page, such as https://example.org"),
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
        call = ["--port", "0", *(names.get(option, option) for option in options)]  # the last --port counts
        command = [sys.executable, "-m", "radmoe", "serve", *call]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("radmoe: error: ")
    assert words in line


def test_the_default_port_is_one_number_and_leaves_vllm_its_own() -> None:
    import inspect
    import re

    from radmoe.cli.serve import command
    from radmoe.serve.settings import Settings

    port = Settings(model="lab-qwen").port
    assert port != 8000  # vllm serve listens there, and README puts one behind this server on the same machine
    shown = inspect.signature(command).parameters["port"].annotation.__metadata__[0].show_default
    assert shown == str(port)
    root = Path(__file__).parents[2]
    texts = {name: (root / name).read_text() for name in ("README.md", "docs/gateway.md", "Containerfile")}
    said = {
        "README.md": r'base_url="http://localhost:(\d+)/v1"',
        "docs/gateway.md": r'(?:curl localhost:|base_url="http://localhost:|-p \d+:)(\d+)',
        "Containerfile": r"(?:EXPOSE |127\.0\.0\.1:)(\d+)",
    }
    for name, pattern in said.items():
        assert set(re.findall(pattern, texts[name])) == {str(port)}, name
    assert "--upstream http://localhost:8000" in texts["README.md"]
