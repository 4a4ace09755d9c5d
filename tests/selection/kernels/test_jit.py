"""Compiling works even where nothing can be cached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba import njit

from radmoe.selection.kernels.jit import jit


def double(x: int) -> int:
    return 2 * x


def test_a_read_only_machine_compiles_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def read_only(**options: Any) -> Any:
        asked.append(options.get("cache", False))
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'double': no locator available for file 'x'")
        return njit(**options)

    monkeypatch.setattr("radmoe.selection.kernels.jit.njit", read_only)
    assert jit(double)(21) == 42
    assert asked == [True, False]


def compile_in(cache: Path, *, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """Compile and call a function in a process of its own, whose cache is this directory."""
    (cache.parent / "module.py").write_text(
        "from radmoe.selection.kernels.jit import jit\n@jit\ndef double(x):\n    return 2 * x\n@jit\ndef triple(x):\n    return 3 * x\n"
    )
    code = "import resource, signal\n"
    if limit is not None:
        code += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    code += "from module import double, triple\n"
    if limit is not None:
        code += f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    code += "print(double(21), triple(5))\n"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cache.parent, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [b"", b"\0" * 400, b"rubbish"])
def test_a_damaged_cache_is_one_line_and_is_mended(tmp_path: Path, suffix: str, damage: bytes) -> None:
    cache = tmp_path / "cache"
    first = compile_in(cache)
    assert (first.stdout, first.stderr, first.returncode) == ("42 15\n", "", 0)
    files = list(cache.rglob(f"*.{suffix}"))
    assert len(files) == 2
    for file in files:
        file.write_bytes(damage)
    second = compile_in(cache)
    assert (second.stdout, second.returncode) == ("42 15\n", 0)
    assert second.stderr.count("\n") == 1
    assert "what is damaged in it is compiled anew" in second.stderr
    assert compile_in(cache).stderr == ""


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_costs_no_result(tmp_path: Path) -> None:
    done = compile_in(tmp_path / "cache", limit=100)
    assert (done.stdout, done.returncode) == ("42 15\n", 0)
    assert done.stderr.count("\n") == 1
    assert "compiled anew in every process until it can be written" in done.stderr
