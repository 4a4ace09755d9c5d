"""The sandbox: programs that behave are judged, programs that do not cost the grader nothing.

Every hostile program here runs only behind the filter, which each child proves to be in force before it reads the
program; the harmless probes come first and show the same from inside.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox.hostile import HOSTILE
from hypothesis import given
from hypothesis import strategies as st

from radmoe.errors import InputError
from radmoe.sandbox import jail
from radmoe.sandbox.jail import spell
from radmoe.sandbox.run import Sandbox, run_many, run_tests

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

TESTS = [(([3, 1, 2],), 6), (([],), 0), (([5],), 5)]
RIGHT = "def f(xs):\n    return sum(xs)\n"


@pytest.fixture(scope="module", params=[True, False], ids=["namespaces", "no namespaces"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(namespaces=request.param) as opened:
        yield opened


def told(sandbox: Sandbox, expression: str, setup: str = "") -> str:
    """What an expression evaluates to inside, by way of an exception."""
    program = f"{setup}\ndef f(xs):\n    raise Exception(repr({expression}))"
    return sandbox.run(program, TESTS).reason.partition("raised ")[2]


# -- programs that behave ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [
        RIGHT,
        "from functools import reduce\nf = lambda xs: reduce(lambda a, b: a + b, xs, 0)",
        "import math, itertools, collections, json, statistics\ndef f(xs):\n    return math.fsum(xs)",
        "def f(xs):\n    print('thinking', xs)\n    return sum(xs)",
        "def f(xs):\n    t = 0\n    while xs:\n        t += xs.pop()\n    return t",
        "def helper(x):\n    return x\n\ndef f(xs):\n    return sum(map(helper, xs))",
    ],
)
def test_a_right_program_passes(sandbox: Sandbox, program: str) -> None:
    verdict = sandbox.run(program, TESTS)
    assert verdict.passed, verdict
    assert verdict.reason == "passed 3 of 3"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def f(xs):\n    return 6", r"test 2 of 3: f\(\[\]\) did not return 0"),
        ("def f(xs):\n    return [sum(xs)]", "did not return 6"),
        ("def f(xs):\n    return str(sum(xs))", "did not return 6"),
        ("def f(xs):\n    return xs[9]", r"test 1 of 3: f\(\[3, 1, 2\]\) raised IndexError: list index out of range"),
        ("def f(xs:\n    return 6", "SyntaxError"),
        ("def g(xs):\n    return 6", "NameError: it defines no function f"),
        ("f = 7", "TypeError: 'int' object is not callable"),
        ("def f():\n    return 6", "TypeError"),
        ("def f(xs):\n    return f(xs)", "RecursionError"),
        ("def f(xs):\n    return (x for x in xs)", "TypeError: generator is not plain data"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("def f(xs):\n    return '\\ud800' + chr(0)", "did not return"),
        ("\x00", "SyntaxError|ValueError"),
        ("\ud800", "UnicodeEncodeError"),
        ("  ", "there is no program"),
    ],
)
def test_a_wrong_program_fails_and_the_reason_says_where(sandbox: Sandbox, program: str, reason: str) -> None:
    verdict = sandbox.run(program, TESTS)
    assert not verdict.passed
    assert re.search(reason, verdict.reason), verdict.reason
    assert "\n" not in verdict.reason


def test_calls_cannot_reach_into_each_other_s_arguments_or_the_next_program(sandbox: Sandbox) -> None:
    assert sandbox.run("def f(xs):\n    xs.append(1)\n    return len(xs)", [(([],), 1), (([],), 1)]).passed
    assert sandbox.run("import builtins\nbuiltins.len = lambda x: 6\ndef f(xs): return len(xs)", [(([1],), 6)]).passed
    assert sandbox.run("def f(xs):\n    return len(xs)", [(([1],), 1)]).passed


def test_several_arguments_and_other_kinds_of_values(sandbox: Sandbox) -> None:
    tests: list[tuple[tuple[Any, ...], Any]] = [
        ((1, "a"), (1, "a")),
        (([1.5], None), ([1.5], None)),
        (({"k": {1}}, True), ({"k": {1}}, True)),
    ]
    assert sandbox.run("def f(*args):\n    return args", tests).passed
    assert not sandbox.run("def f(*args):\n    return list(args)", tests).passed


# -- what can be seen from inside: harmless probes --------------------------------------------------


def test_nobody_can_be_signalled_nothing_forked_nothing_written(sandbox: Sandbox) -> None:
    for attempt in (
        "os.kill(os.getppid(), 0)",
        "os.kill(-1, 0)",
        "os.kill(os.getpid(), 0)",
        "os.fork()",
        "os.mkdir('d')",
    ):
        assert told(sandbox, attempt, "import os").startswith("PermissionError"), attempt
    for attempt in ("open('x', 'w')", "open('/tmp/x', 'a')", "open(__import__('sys').executable, 'r+b')"):
        assert told(sandbox, attempt).startswith("PermissionError"), attempt
    limits = told(sandbox, "[line.split()[2:4] for line in open('/proc/self/limits') if 'processes' in line]")
    assert limits == "Exception: [['0', '0']]"


def test_it_stands_in_an_empty_directory_with_nothing_open(sandbox: Sandbox) -> None:
    assert told(sandbox, "os.listdir('.')", "import os") == "Exception: []"
    assert (
        told(sandbox, "os.getcwd().startswith('/tmp/radmoe-sandbox-') or os.getcwd()", "import os") == "Exception: True"
    )
    assert told(sandbox, "sorted(os.listdir('/proc/self/fd'))[:4]", "import os") == "Exception: ['0', '1', '2', '3']"
    assert told(sandbox, "dict(os.environ)", "import os") in ("Exception: {}", "Exception: {'LC_CTYPE': 'C.UTF-8'}")


def test_it_runs_as_nobody_when_the_grader_is_root(sandbox: Sandbox) -> None:
    if os.getuid():
        pytest.skip("not root")
    assert int(told(sandbox, "os.getuid()", "import os").split()[1]) > 1_000_000_000


def test_in_namespaces_it_sees_no_network_and_no_parent() -> None:
    with Sandbox() as sandbox:
        parent = told(sandbox, "os.getppid()", "import os")
        if parent != "Exception: 1":
            pytest.skip("namespaces are not permitted here")
        assert told(sandbox, "open('/proc/net/dev').read().count(':')") == "Exception: 1"


# -- programs that do not behave --------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_fails_at_no_cost(sandbox: Sandbox, name: str) -> None:
    started = time.monotonic()
    verdict = sandbox.run(f"{HOSTILE[name]}\n\ntry:\n    f\nexcept NameError:\n    f = sum", TESTS)
    assert not verdict.passed, verdict
    assert time.monotonic() - started < 5
    assert sandbox.run(RIGHT, TESTS).passed


@pytest.mark.parametrize(
    "loop",
    [
        "while True: pass",
        "while True: print('a' * 10**6)",
        "10 ** 10 ** 10",
        "import os\nwhile True: os.write(1, b'x' * 2**20)",
    ],
)
def test_a_program_without_end_is_out_of_time(loop: str) -> None:
    """Ten gigabytes of output among them: it goes nowhere and is not kept."""
    with Sandbox() as sandbox:
        sandbox.run(RIGHT, TESTS)
        started = time.monotonic()
        assert not sandbox.run(loop, TESTS).passed
        assert time.monotonic() - started < 6
        assert sandbox.run(RIGHT, TESTS).passed


def test_the_same_in_its_threads_is_out_of_time_by_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as sandbox:
        sandbox.run(RIGHT, TESTS)
        started = time.monotonic()
        verdict = sandbox.run("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", TESTS)
        assert "out of time" in verdict.reason
        assert time.monotonic() - started < 8


def test_files_of_others_are_safe(sandbox: Sandbox, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("here")
    for path in (victim, tmp_path, tmp_path.parent):
        path.chmod(0o777)
    program = f"""
import os, shutil
for attempt in (os.unlink, os.rmdir, shutil.rmtree, os.rename, os.truncate, os.chmod):
    for path in ({str(victim)!r}, {str(tmp_path)!r}, '..', '/tmp'):
        try:
            attempt(path) if attempt not in (os.rename, os.truncate, os.chmod) else attempt(path, 0 if attempt is not os.rename else 'gone')
        except OSError:
            pass
f = sum
"""
    assert sandbox.run(program, TESTS).passed
    assert victim.read_text() == "here"


def test_a_helper_that_dies_is_replaced() -> None:
    with Sandbox() as sandbox:
        assert sandbox.run(RIGHT, TESTS).passed
        assert sandbox._helper
        sandbox._helper.kill()
        sandbox._helper.wait()
        assert sandbox.run(RIGHT, TESTS).passed


def test_a_program_that_takes_the_helper_down_twice_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as sandbox:
        monkeypatch.setattr(sandbox, "_read", lambda *_: (_ for _ in ()).throw(EOFError))
        assert sandbox.run(RIGHT, TESTS).reason == "it took the sandbox down"


def test_a_system_that_cannot_confine_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jail whose filter is missing (as on another machine type) refuses before it looks at the program."""
    crippled = tmp_path / "jail.py"
    crippled.write_text(
        Path(jail.__file__).read_text().replace('{"x86_64":', '{"abacus":').replace('"aarch64":', '"quipu":')
    )
    monkeypatch.setattr("radmoe.sandbox.run._JAIL", crippled)
    proof = tmp_path / "proof"
    with Sandbox() as sandbox, pytest.raises(InputError, match=r"cannot confine programs .* grade code on Linux"):
        sandbox.run(f"open({str(proof)!r}, 'w')", TESTS)
    assert not proof.exists()


def test_nothing_is_left_behind() -> None:
    def left() -> set[str]:
        return {p.name for p in Path("/tmp").glob("radmoe-sandbox-*")}

    before = left()
    with Sandbox() as sandbox:
        sandbox.run(RIGHT, TESTS)
        assert sandbox._helper
        helper = sandbox._helper.pid
        assert len(left() - before) == 1
    assert not left() - before
    assert not Path(f"/proc/{helper}").exists()
    sandbox.close()


# -- many at once -----------------------------------------------------------------------------------


def test_many_programs_come_back_in_order_and_the_same_one_runs_once() -> None:
    wrong = "def f(xs):\n    return -1"
    programs = [RIGHT, wrong] * 20 + [RIGHT + f"\n# {i}" for i in range(10)]
    verdicts = list(run_many([(program, TESTS, "f") for program in programs], jobs=2))
    assert [v.passed for v in verdicts] == [True, False] * 20 + [True] * 10
    assert list(run_many([])) == []


def test_leaving_a_batch_half_way_ends_its_sandboxes() -> None:
    before = threading.active_count()
    verdicts = run_many([(f"# {i}\n{RIGHT}", TESTS, "f") for i in range(200)], jobs=2)
    assert next(verdicts).passed
    verdicts.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_options_that_cannot_be_used_are_named() -> None:
    with pytest.raises(InputError, match="at least one"):
        run_tests(RIGHT, [])
    with pytest.raises(InputError, match="timeout must be positive, got 0"):
        Sandbox(timeout=0)
    with pytest.raises(InputError, match="at least 64 MiB"):
        Sandbox(memory=1000)
    with pytest.raises(InputError, match="jobs must be at least 1, got 0"):
        list(run_many([(RIGHT, TESTS, "f")], jobs=0))


def test_one_program_on_its_own() -> None:
    assert run_tests("def g(x):\n    return x", [((1,), 1)], entry="g").passed


# -- spelling ---------------------------------------------------------------------------------------

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(plain, plain)
def test_two_values_spell_alike_exactly_when_they_are_equal(a: Any, b: Any) -> None:
    assert (spell(a) == spell(b)) == (a == b)
    assert spell(a).isascii()
    assert "\n" not in spell(a)


@given(st.sets(st.integers(-3, 3)), st.sets(st.integers(-3, 3)))
def test_sets_spell_alike_when_equal(a: set[int], b: set[int]) -> None:
    assert (spell(a) == spell(frozenset(b))) == (a == b)
    assert spell(set()) != spell({})
