"""The numba compiler with the options that every room uses: code is cached on disk and runs without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """Compile a function on its first call. Where no directory can hold the cache, every process compiles it anew."""
    try:
        compiled = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # "no locator available": package and home are both read-only
        compiled = njit(nogil=True)(function)
    return cast(Function, compiled)
