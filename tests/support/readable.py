"""A copy of the sandbox's room, of sessions, and of what these import, that a user without privileges can read."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import radmoe
import radmoe_agent

_PARTS = {
    radmoe: ("__init__.py", "errors.py", "system", "sandbox"),
    radmoe_agent: ("__init__.py", "session.py", "session_helper.py"),
}


@contextlib.contextmanager
def readable_copy(*more: Path) -> Iterator[str]:
    """A directory with the packages, and with further files, for PYTHONPATH."""
    with tempfile.TemporaryDirectory(prefix="radmoe-readable-", dir="/tmp") as here:
        for package, parts in _PARTS.items():
            copy = Path(here, package.__name__)
            copy.mkdir()
            for name in parts:
                source = Path(str(package.__file__)).with_name(name)
                (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)  # type: ignore[operator]
        for path in more:
            shutil.copy(path, here)
        subprocess.run(["chmod", "-R", "a+rX", here], check=True)
        yield here
