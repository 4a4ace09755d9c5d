"""numba's compiler as every room uses it: cached on disk, without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """Compile on the first call; where no directory can hold the cache, once per process."""
    try:
        compiled = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # "no locator available": package and home are both read-only
        compiled = njit(nogil=True)(function)
    return cast(Function, compiled)
