"""Readings: a person's comment on each verdict, one or two sentences per claim, kept in a file beside the numbers.

A TOML file of one string per claim, by its key: `"main.above-average" = "Selection helps where ..."`. The ledger shows them. A table
`[before]` in it holds the verdicts of an earlier ledger, by the same keys, also of claims that are no more.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from radmoe.errors import InputError

BEFORE = "before"


class Readings(NamedTuple):
    """A comment on each claim (`texts`), and its verdict in an earlier ledger (`before`), both by the key of the claim."""

    texts: Mapping[str, str] = MappingProxyType({})
    before: Mapping[str, str] = MappingProxyType({})


def read_readings(path: Path, claims: Iterable[str]) -> Readings:
    """The readings of a file. Raises an InputError that names what is wrong with it."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read as readings: {error}") from None
    before = found.pop(BEFORE, {})
    if not isinstance(before, dict) or not all(isinstance(verdict, str) for verdict in before.values()):
        raise InputError(f'{path}: [{BEFORE}] holds verdicts by claim: write "study.claim" = "supports" below it')
    known = set(claims)
    for key, text in found.items():
        if not isinstance(text, str):
            raise InputError(
                f'{path}: {key} is no string: write "study.claim" = "a sentence", the key in quotation marks'
            )
        if key not in known:
            raise InputError(f"{path}: no study has a claim {key!r}: radmoe study --rules has the keys")
    return Readings(found, before)
