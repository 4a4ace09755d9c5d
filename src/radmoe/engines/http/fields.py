"""Reads a server's JSON answer field by field; a field of the wrong type is an error of one line."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from radmoe.errors import EngineError
from radmoe.system.printing import visible

LONGEST_NAME = 1000  # characters
_ADVICE = "is this the kind of server that the engine is for?"
_FLOAT32 = 3.4e38

_shortener = reprlib.Repr()
_shortener.maxlevel, _shortener.maxlist, _shortener.maxdict = 2, 3, 3
_shortener.maxstring = _shortener.maxlong = _shortener.maxother = 48


def short(value: object) -> str:
    """A value as Python writes it, in one line and cut to at most 80 characters."""
    text = _shortener.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass(frozen=True, eq=False)
class Field:
    """A JSON value of an answer. `source` is the address that answered, and `name` says where the value lies in it."""

    value: Any
    source: str
    name: str = ""

    def refusal(self, allowed: str) -> EngineError:
        """The error that says what this value is and what it must be."""
        return EngineError(
            f"{self.source} answered {self.name or 'with'} {short(self.value)}, not {allowed}: {_ADVICE}"
        )

    def get(self, key: str) -> Field:
        """The member of this name, which must be there."""
        name = f"{self.name}.{key}" if self.name else key
        if not isinstance(self.value, dict):
            raise self.refusal(f"an object with {key!r}")
        if key not in self.value:
            raise EngineError(f"{self.source} answered without {name}, which must be there: {_ADVICE}")
        return Field(self.value[key], self.source, name)

    def maybe(self, key: str) -> Field | None:
        """The member of this name; None if it is missing or null."""
        if not isinstance(self.value, dict):
            raise self.refusal(f"an object that may have {key!r}")
        return None if self.value.get(key) is None else self.get(key)

    def items(self, count: int | None = None) -> list[Field]:
        """The items of a list, which must have `count` of them if that is given."""
        if not isinstance(self.value, list):
            raise self.refusal("a list" if count is None else f"a list of {count}")
        if count is not None and len(self.value) != count:
            raise EngineError(
                f"{self.source} answered {len(self.value)} {self.name}, where there must be {count}: {_ADVICE}"
            )
        return [Field(value, self.source, f"{self.name}[{i}]") for i, value in enumerate(self.value)]

    def members(self) -> list[Field]:
        """The values of an object."""
        if not isinstance(self.value, dict):
            raise self.refusal("an object")
        return [Field(value, self.source, f"{self.name}.{visible(key[:40])}") for key, value in self.value.items()]

    def text(self, longest: int | None = LONGEST_NAME) -> str:
        """A text of at most `longest` characters that can be written as UTF-8."""
        if not isinstance(self.value, str):
            raise self.refusal("a text")
        if longest is not None and len(self.value) > longest:
            raise self.refusal(f"a text of at most {longest} characters (it has {len(self.value)})")
        if not self.value.isascii() and any("\ud800" <= character <= "\udfff" for character in self.value):
            raise self.refusal("a text that can be written as UTF-8")
        return self.value

    def flag(self) -> bool:
        """The value as a boolean."""
        if not isinstance(self.value, bool):
            raise self.refusal("true or false")
        return self.value

    def integer(self, low: int, below: int) -> int:
        """A whole number in [low, below); booleans, floats and texts are none."""
        if type(self.value) is not int or not low <= self.value < below:
            raise self.refusal(f"a whole number in [{low}, {below})")
        return self.value

    def integers(self, below: int) -> list[int]:
        """A list of whole numbers in [0, below)."""
        return [item.integer(0, below) for item in self.items()]

    def number(self) -> float:
        """A finite number that float32 can hold."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not -_FLOAT32 < value < _FLOAT32:
            raise self.refusal("a finite number")
        return float(value)


def parse(body: bytes, source: str, most_values: int) -> Field:
    """The JSON of an answer, strictly.

    Raises EngineError for what is no JSON in UTF-8 (a byte order mark may come first), for NaN and Infinity, keys that
    come twice, nesting beyond Python's own limit, and more than `most_values` values, which would take many times the
    memory of the text.
    """
    values = 1 + sum(body.count(sign) for sign in (b",", b"[", b"{"))  # commas within texts count too
    if values > most_values:
        raise EngineError(
            f"{source} answered JSON of up to {values:,} values, where {most_values:,} suffice for what was asked: {_ADVICE}"
        )
    try:
        text = body.decode("utf-8-sig")
        return Field(json.loads(text, parse_constant=_no_number, object_pairs_hook=_distinct), source)
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:
        reason = str(error).splitlines()[0][:100]
    raise EngineError(
        f"{source} answered {short(body[:60])}, not JSON as it should be ({reason}): "
        "is this the address of the model's server?"
    )


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {short(twice)} comes twice")
    return members
