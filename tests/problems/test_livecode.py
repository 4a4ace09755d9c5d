"""LiveCodeBench's tests: unpacked without running what a pickle says."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from radmoe.errors import InputError
from radmoe.problems import livecode
from radmoe.problems.base import STDIN
from radmoe.problems.livecode import decode_tests, hidden_tests

CASES = [{"input": "3\n", "output": "6\n", "testtype": "stdin"}, {"input": "4\n", "output": "8", "testtype": "stdin"}]


def packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_private_tests_are_read_plain_or_packed() -> None:
    assert decode_tests(json.dumps(CASES)) == CASES
    assert decode_tests(packed(json.dumps(CASES))) == CASES
    assert decode_tests("[]") == []


class Attack:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_run_something_runs_nothing(tmp_path: Path) -> None:
    target = tmp_path / "proof"
    with pytest.raises(ValueError, match=r"it asks for posix.mkdir|it asks for nt.mkdir"):
        decode_tests(packed(Attack(target)))
    with pytest.raises(ValueError, match="it asks for"):
        decode_tests(packed([json.dumps(CASES), Attack(target)]))
    with pytest.raises(ValueError, match="from elsewhere"):
        decode_tests(base64.b64encode(zlib.compress(b"Pname\n.")).decode())
    assert not target.exists()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("not base64!", "neither JSON nor packed JSON"),
        (base64.b64encode(b"not zlib").decode(), "neither JSON nor packed JSON"),
        (packed([1, 2]), "they hold a list, not a text"),
        (packed('{"a": 1}'), "they are not a list"),
        (packed("{"), "Expecting property name"),
        (base64.b64encode(zlib.compress(b"\x80")).decode(), "."),
    ],
)
def test_what_is_no_list_of_tests_is_named(given: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_tests(given)


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(livecode, "_MOST", 1 << 20)
    with pytest.raises(ValueError, match="more than 1 MiB"):
        decode_tests(packed("[" + " " * (2 << 20) + "]"))


def test_public_and_private_hidden_tests_a_program_that_reads() -> None:
    row = {
        "public_test_cases": json.dumps(CASES[:1]),
        "private_test_cases": packed(json.dumps(CASES[1:])),
        "metadata": "{}",
    }
    tests, entry = hidden_tests(row, "row 1")
    assert entry == STDIN
    assert tests == ((("3\n",), "6\n"), (("4\n",), "8"))


def test_a_functional_test_has_an_argument_per_line() -> None:
    case = {"input": '[1, 2]\n"a"\n0.5', "output": "[true, null]", "testtype": "functional"}
    for metadata in ('{"func_name": "twice"}', {"func_name": "twice"}):
        tests, entry = hidden_tests({"public_test_cases": [case], "metadata": metadata}, "row 1")
        assert entry == "Solution.twice"
        assert tests == ((([1, 2], "a", 0.5), [True, None]),)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "row 1 has no tests"),
        ({"public_test_cases": "[]", "private_test_cases": ""}, "row 1 has no tests"),
        ({"public_test_cases": "{"}, "row 1: public_test_cases cannot be read: they are neither"),
        ({"private_test_cases": '[{"input": "1"}]'}, "private_test_cases cannot be read: 'output'"),
        ({"private_test_cases": '[{"input": 1, "output": "1"}]'}, "input and output must be texts"),
        ({"private_test_cases": "[7]"}, "private_test_cases cannot be read"),
        ({"public_test_cases": '[{"input": "x", "output": "1"}]', "metadata": '{"func_name": "f"}'}, "cannot be read"),
    ],
)
def test_a_row_without_usable_tests_is_one_clear_line(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        hidden_tests(row, "row 1")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
