"""`kill -9` of commands in the middle of writing: the next run comes to what an undisturbed one leaves, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forked_runs import Outcome

TESTS = Path(__file__).parents[1] / "support"


@pytest.mark.slow
def test_killed_commands_go_on_and_leave_what_an_undisturbed_run_leaves() -> None:
    """Captures by a server, by llama.cpp and of a file, a merge, and trajectories that are run and imported."""
    command = [sys.executable, str(TESTS / "killed_runs.py"), "--sample"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [title for title, *outcome in rows if Outcome(*outcome).broken_rule is not None] == []
    assert len(rows) == 6, done.stderr
    assert all(" killed at " in title for title, *_ in rows)
