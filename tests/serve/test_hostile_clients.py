"""A sample of the table of attacks on the gateway (python -m benchmarks.hardening runs all of it)."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import tiny_moe
from hostile_clients import ask_fuzzed, serving, slow_clients


@pytest.mark.slow
def test_fuzzed_requests_are_answered_in_time_and_never_break_the_server(tmp_path: Path) -> None:
    tiny = tiny_moe.save(tmp_path / "tiny", chat=True)
    with serving("--model", tiny, "--threads", 1) as made, httpx.Client(timeout=30) as client:
        with slow_clients(made.url, 12):
            lines = [ask_fuzzed(client, made.url, seed)[0] for seed in range(120)]
        assert made.peak < 1 << 30
    assert not [line for line in lines if line.startswith(("HANG", "CRASH"))]
    assert lines.count("well") > 10
    assert sum(line.startswith("refused 4") for line in lines) > 30
