"""What the confined interpreter offers, and what happens where it falls short."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from available import MECHANISMS
from crippled import cripple
from radmoe.errors import InputError
from radmoe.sandbox import Sandbox, spell
from radmoe.sandbox.library import PROBE, PROMISED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

PAGE = Path(__file__).parent.parent.parent / "docs" / "grading.md"


@pytest.fixture(scope="module", params=MECHANISMS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(mechanism=request.param, timeout=20, memory=1 << 30) as opened:
        yield opened


def value(sandbox: Sandbox, expression: str, setup: str = "") -> str:
    return sandbox.call(f"{setup}\ndef f():\n    return {expression}", "f", [()]).data.decode()


def test_everything_that_the_page_promises_can_be_imported(sandbox: Sandbox) -> None:
    promised = re.search(r"These modules are promised[^:]*:\n(.*?`)\.\n", PAGE.read_text(), re.DOTALL)
    assert promised, "docs/grading.md lists the modules"
    modules = re.findall(r"`([^`]+)`", promised[1])
    assert modules == PROMISED.split()
    assert sandbox.call(PROBE, "f", [(modules,)]).data == spell([]).encode()


@pytest.mark.parametrize(
    ("setup", "expression", "right"),
    [
        ("import hashlib", "hashlib.sha256(b'a').hexdigest()[:8]", "ca978112"),
        ("import hashlib", "hashlib.new('md5', b'a').hexdigest()[:8]", "0cc175b9"),
        ("import hashlib", "hashlib.pbkdf2_hmac('sha1', b'a', b'b', 1).hex()[:8]", "b08f749c"),
        ("import zlib", "zlib.decompress(zlib.compress(b'a')).decode()", "a"),
        ("import uuid", "str(uuid.UUID(int=1))[-1]", "1"),
        ("import unicodedata", "unicodedata.name('a')", "LATIN SMALL LETTER A"),
        ("import zoneinfo, datetime", "datetime.datetime(2020, 7, 1, tzinfo=zoneinfo.ZoneInfo('UTC')).tzname()", "UTC"),
        ("import platform", "platform.python_implementation()", "CPython"),
        ("import platform", "platform.platform()[:5]", "Linux"),
        ("import inspect, heapq", "inspect.getsource(heapq.merge)[:9]", "def merge"),
        ("import decimal", "str(decimal.Decimal(1) / 3)[:5]", "0.333"),
        ("", "open('/dev/null').read()", ""),
    ],
)
def test_modules_do_their_work(sandbox: Sandbox, setup: str, expression: str, right: str) -> None:
    assert value(sandbox, expression, setup) == spell(right)


def test_the_input_has_a_name_too(sandbox: Sandbox) -> None:
    assert sandbox.feed("print(open('/dev/stdin').read())", "6").data == b"6\n"


def test_a_sleep_waits_and_one_that_cannot_end_in_time_raises_at_once() -> None:
    with Sandbox() as sandbox:
        started = time.monotonic()
        assert value(sandbox, "time.sleep(0.3)", "import time") == spell(None)
        assert time.monotonic() - started >= 0.3
        started = time.monotonic()
        assert value(sandbox, "time.sleep(2)", "import time").startswith("!TimeoutError: a sleep of 2 s, and 1 s")
        assert sandbox.feed("import time\ntime.sleep(0.6)\ntime.sleep(0.6)", "").raised
        assert time.monotonic() - started < 1.9


def test_socket_can_be_imported_but_makes_none(sandbox: Sandbox) -> None:
    assert value(sandbox, "socket.AF_INET == 2", "import socket") == spell(True)
    assert value(sandbox, "socket.inet_aton('1.2.3.4')", "import socket") == spell(b"\1\2\3\4")
    assert value(sandbox, "socket.socket()", "import socket").startswith("!PermissionError")


def test_an_interpreter_that_falls_short_is_named_with_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its shared libraries in view, the interpreter has no zlib."""
    cripple(tmp_path, monkeypatch, "root", {"*_shared_libraries(library), ": ""})
    with (
        Sandbox() as sandbox,
        pytest.raises(InputError, match=r"cannot import .*zlib \(ImportError.*another Python") as error,
    ):
        sandbox.call("f = sum", "f", [([1],)])
    assert "\n" not in str(error.value)


def test_the_interpreter_is_tried_once_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    probes = []
    run = Sandbox._run

    def counted(self: Sandbox, request: dict[str, object], *others: object) -> object:
        probes.append(request["program"] == PROBE)
        return run(self, request, *others)  # type: ignore[arg-type]

    monkeypatch.setattr("radmoe.sandbox.run._PROBED", set())
    monkeypatch.setattr(Sandbox, "_run", counted)
    for _ in range(2):
        with Sandbox() as sandbox:
            sandbox.call("f = sum", "f", [([1],)])
            sandbox.call("f = sum", "f", [([1],)])
    assert probes == [True, False, False, False, False]
