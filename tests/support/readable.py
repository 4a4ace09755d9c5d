"""A copy of the sandbox's room, and of what it imports, that a user without privileges can read."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import radmoe

_PARTS = ("__init__.py", "errors.py", "system", "sandbox")


@contextlib.contextmanager
def readable_copy(*more: Path) -> Iterator[str]:
    """A directory with the package, and with further files, for PYTHONPATH."""
    with tempfile.TemporaryDirectory(prefix="radmoe-readable-", dir="/tmp") as here:
        package = Path(here, "radmoe")
        package.mkdir()
        for name in _PARTS:
            source = Path(radmoe.__file__).with_name(name)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, package / name)  # type: ignore[operator]
        for path in more:
            shutil.copy(path, here)
        subprocess.run(["chmod", "-R", "a+rX", here], check=True)
        yield here
