"""Rollouts sampled from the shipped lab-qwen on this machine, and packed: a small archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from radmoe_lab.archive.pack import pack
from radmoe_lab.sample import sample

TASKS = ("math-1", "code", "explain")


@pytest.fixture(scope="session")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 3 tasks x 3 problems x 4 rollouts. No test may change it."""
    out = tmp_path_factory.mktemp("sampled")
    return sample("lab-qwen", "thinking", out, tasks=TASKS, n=4, limit=3, batch_size=16, max_tokens=160)


@pytest.fixture(scope="session")
def archive_path(sampled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, packed. No test may change it."""
    out = tmp_path_factory.mktemp("archive")
    pack([sampled], out)
    return out
