"""Compiling works even where nothing can be cached."""

from __future__ import annotations

from typing import Any

import pytest
from numba import njit

from radmoe.jit import jit


def double(x: int) -> int:
    return 2 * x


def test_a_read_only_machine_compiles_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def read_only(**options: Any) -> Any:
        asked.append(options.get("cache", False))
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'double': no locator available for file 'x'")
        return njit(**options)

    monkeypatch.setattr("radmoe.jit.njit", read_only)
    assert jit(double)(21) == 42
    assert asked == [True, False]
