"""The text form in which values cross between the sandbox and its caller."""

from __future__ import annotations

from typing import Any


def spell(value: Any, depth: int = 0) -> str:
    """A value in ASCII on one line. Plain values that are equal are spelled alike, and nothing else is.

    A subclass, or anything that is not plain data, is a TypeError, because it could claim to equal whatever it likes.
    """
    kind = type(value)
    if depth > 20:
        raise ValueError("nested too deeply")
    if kind is bool or kind is int:
        return hex(value)
    if kind is float:
        return hex(int(value)) if value.is_integer() else value.hex()
    if value is None or kind is str or kind is bytes:
        return ascii(value)
    if kind is list or kind is tuple:
        inner = ",".join([spell(item, depth + 1) for item in value])
        return f"[{inner}]" if kind is list else f"({inner},)"
    if kind is set or kind is frozenset:
        return "{" + ",".join(sorted(spell(item, depth + 1) for item in value)) + "}"
    if kind is dict:
        pairs = sorted(f"{spell(k, depth + 1)}:{spell(v, depth + 1)}" for k, v in value.items())
        return "{" + ",".join(pairs) + ":}"
    raise TypeError(f"{kind.__name__} is not plain data")
