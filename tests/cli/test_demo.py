"""The newcomer's first command, on the shipped models."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_commands import radmoe

pytestmark = pytest.mark.slow


def test_demo_samples_real_models_compares_draws_and_can_be_repeated(tmp_path: Path) -> None:
    first, second = (radmoe("demo", "--out", tmp_path, "-n", 4, "--limit", 2).stdout for _ in range(2))
    for word in ("lab-qwen", "lab-oss", "majority of answers", "RAD+DC", "oracle", "together"):
        assert word in first
    pictures = sorted((tmp_path / "pictures").rglob("*.png"))
    assert len(pictures) == 2 * 2 * 2
    assert all(str(picture) in first for picture in pictures)
    tables = [[line for line in text.splitlines() if line.startswith("│")] for text in (first, second)]
    assert len(tables[0]) == 2 * 5
    assert tables[0] == tables[1]
    assert "8 of them from before" in second
    radmoe("verify", tmp_path / "lab-qwen-code-n4-s0")
