"""The numba compiler with the options that every room uses: code is cached on disk and runs without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from numba import njit

from radmoe.errors import KernelError
from radmoe.system.printing import say

Function = TypeVar("Function", bound=Callable[..., Any])

_told: set[str] = set()  # directories of whose trouble a line was said


def jit(function: Function) -> Function:
    """Compile a function on its first call. Where no directory can hold the cache, every process compiles it anew.

    A cache that is damaged is emptied, and one that cannot be written (a full disk) does without: both are a line on stderr.
    """
    try:
        compiled: Any = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # "no locator available": package and home are both read-only
        return cast(Function, njit(nogil=True)(function))
    cache = compiled._cache
    load, save = cache.load_overload, cache.save_overload

    def forgiving_load(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except Exception as error:  # whatever a damaged pickle raises
            _tell(cache.cache_path, error, "what is damaged in it is compiled anew")
            with suppress(OSError):
                cache.flush()
            return None

    def forgiving_save(*arguments: Any) -> None:
        try:
            save(*arguments)
        except Exception as error:
            _tell(cache.cache_path, error, "functions are compiled anew in every process until it can be written")

    cache.load_overload, cache.save_overload = forgiving_load, forgiving_save
    return cast(Function, compiled)


def check_shapes(**arrays: tuple[Any, tuple[int, ...]]) -> None:
    """Raise a KernelError unless each array has the shape beside it. Compiled code checks no bounds: it would read other memory."""
    for name, (array, shape) in arrays.items():
        if tuple(array.shape) != shape:
            raise KernelError(f"{name} has shape {list(array.shape)}, and {list(shape)} was expected")


def _tell(path: str, error: Exception, consequence: str) -> None:
    if path not in _told:
        _told.add(path)
        reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
        say(f"radmoe: numba's cache in {path} cannot be used ({reason}): {consequence}", err=True)
