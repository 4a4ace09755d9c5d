"""Readings: what a person makes of a verdict, one sentence or two per claim, kept in a file beside the numbers.

A TOML file of one string per claim, by its key: `"main.above-average" = "Selection helps where ..."`. The ledger shows them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from radmoe.errors import InputError


def read_readings(path: Path, claims: Iterable[str]) -> dict[str, str]:
    """The readings of a file by the keys of their claims. Raises an InputError that names what is wrong with it."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read as readings: {error}") from None
    known = set(claims)
    for key, text in found.items():
        if not isinstance(text, str):
            raise InputError(
                f'{path}: {key} is no string: write "study.claim" = "a sentence", the key in quotation marks'
            )
        if key not in known:
            raise InputError(f"{path}: no study has a claim {key!r}: radmoe study --rules has the keys")
    return found
