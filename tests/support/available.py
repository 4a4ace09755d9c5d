"""What this machine has to confine programs with, found out without the code under test."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys

import pytest


def _has_namespaces() -> bool:
    command = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "true"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


def _has_landlock() -> bool:
    return sys.platform == "linux" and ctypes.CDLL(None).syscall(444, None, 0, 1) > 0


needs_namespaces = pytest.mark.skipif(not _has_namespaces(), reason="namespaces are not permitted here")
needs_landlock = pytest.mark.skipif(not _has_landlock(), reason="this kernel has no Landlock")
MECHANISMS = [pytest.param("namespaces", marks=needs_namespaces), pytest.param("landlock", marks=needs_landlock)]
