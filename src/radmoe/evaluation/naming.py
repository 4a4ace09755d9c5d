"""What a pool is called in tables, from the run record in its pool.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def model(run: dict[str, Any]) -> str:
    """The model, and its style (reasoning effort, thinking or instruct) where the run had one."""
    return " ".join(str(part) for part in (run["model"], run["style"]) if part)


def dataset(run: dict[str, Any], path: Path) -> str:
    """The task that was captured; a pool that records none is called as its directory."""
    return str(run["task"] or path.resolve().name)
