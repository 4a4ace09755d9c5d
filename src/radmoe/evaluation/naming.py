"""Who a pool is, from its pool.json: configuration, dataset, kind of task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from radmoe.anchors import TASKS as KINDS
from radmoe.errors import InputError
from radmoe.lab.tasks import TASKS


def model(meta: dict[str, Any]) -> str:
    """The model, and its style (reasoning effort, thinking or not) where the sampling record names one."""
    return " ".join(part for part in (str(meta["model"]), _said(meta, "style")) if part)


def dataset(meta: dict[str, Any], path: Path) -> str:
    """The task of the sampling record, else the directory's name."""
    return _said(meta, "task") or path.resolve().name


def kind(meta: dict[str, Any], otherwise: str | None = None) -> str:
    """math, choice, code or agent: as the sampling record says, else `otherwise`, else as the pool was captured for."""
    if otherwise is not None and otherwise not in KINDS:
        raise InputError(f"unknown task {otherwise!r}: use one of {', '.join(KINDS)}")
    said = _said(meta, "task")
    if said in TASKS:
        return TASKS[said].kind
    return said if said in KINDS else otherwise or str(meta["profile"]["task"])


def _said(meta: dict[str, Any], name: str) -> str:
    said = (meta["sampling"] or {}).get(name)
    return said if isinstance(said, str) else ""
