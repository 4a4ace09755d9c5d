"""LiveCodeBench's tests, public and private, as pairs of arguments and the value that must come back.

Private tests come as JSON, or as base64 of zlib of a pickle of that JSON. A pickle can run any code when it is loaded.
So this one is read by an unpickler that builds nothing but a string, and it is unpacked only up to a limit.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from typing import Any

from radmoe.errors import InputError
from radmoe.problems.base import STDIN, Test
from radmoe.problems.dataset import TEST_COLUMNS

_MOST = 1 << 30  # bytes of one problem's tests, unpacked


class _Strings(pickle.Unpickler):
    """An unpickler that builds plain data only. It refuses classes, functions and persistent objects."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it asks for an object from elsewhere")


def decode_tests(packed: str) -> list[Any]:
    """Decode a list of tests from JSON, or from its packed form. Raises a ValueError of one line for anything else."""
    if packed.lstrip()[:1] == "[":
        tests = json.loads(packed)
    else:
        try:
            unpacker = zlib.decompressobj()
            raw = unpacker.decompress(base64.b64decode(packed, validate=True), _MOST)
            if unpacker.unconsumed_tail:
                raise ValueError(f"they unpack to more than {_MOST >> 20} MiB")
            text = _Strings(io.BytesIO(raw)).load()
        except (binascii.Error, zlib.error) as error:
            raise ValueError(f"they are neither JSON nor packed JSON ({error})") from None
        except Exception as error:  # a pickle that is broken, or holds more than a string, may raise anything
            raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
        if not isinstance(text, str | bytes):
            raise ValueError(f"they hold a {type(text).__name__}, not a text")
        tests = json.loads(text)
    if not isinstance(tests, list):
        raise ValueError("they are not a list")
    return tests


def hidden_tests(row: Mapping[str, Any], where: str) -> tuple[tuple[Test, ...], str]:
    """Return a problem's tests, the public ones first, and the entry that they call."""
    name = _metadata(row.get("metadata")).get("func_name")
    tests: list[Test] = []
    for column in TEST_COLUMNS:
        given = row.get(column) or "[]"
        try:
            cases = decode_tests(given) if isinstance(given, str) else given
            tests += [_test(case, functional=bool(name)) for case in cases]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{where}: {column} cannot be read: {error}") from None
    if not tests:
        raise InputError(f"{where} has no tests: give public_test_cases or private_test_cases")
    return tuple(tests), f"Solution.{name}" if name else STDIN


def _metadata(given: Any) -> dict[str, Any]:
    try:
        metadata = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        metadata = None
    return metadata if isinstance(metadata, dict) else {}


def _test(case: Mapping[str, Any], *, functional: bool) -> Test:
    """Parse one test. In a functional test every line of the input is an argument in JSON, and the output is JSON too."""
    text, expected = case["input"], case["output"]
    if not isinstance(text, str) or not isinstance(expected, str):
        raise TypeError("input and output must be texts")
    if not functional:
        return (text,), expected
    return tuple(json.loads(line) for line in text.split("\n")), json.loads(expected)
