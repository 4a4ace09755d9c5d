"""Systems that lack something: the room's code, copied with something missing, for the helper to run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from radmoe.sandbox import boot

NO_FILTER = {'{"x86_64":': '{"abacus":', '"aarch64":': '"quipu":'}
NO_MOUNTS = {'call("pivot_root", b".", b".")': 'raise OSError(1, "pivot_root: Operation not permitted")'}
NO_LANDLOCK = {"_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444,": "_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 9999,"}  # fmt: skip


def cripple(where: Path, monkeypatch: pytest.MonkeyPatch, module: str, changes: Mapping[str, str]) -> None:
    """From now on, and on top of what was done before, helpers run a module with some of its text replaced."""
    room = where / "room"
    if not room.exists():
        shutil.copytree(boot.ROOM, room, ignore=shutil.ignore_patterns("__pycache__"))
        monkeypatch.setattr(boot, "ROOM", room)
        monkeypatch.setattr("radmoe.sandbox.run._PROBED", set())
    path = room / f"{module}.py"
    text = path.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def without_filter(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that the filter was not written for."""
    cripple(where, monkeypatch, "filters", NO_FILTER)
