"""The sandbox: what programs return or print comes back, and what can be seen from inside, by harmless probes.

Programs that do not behave are in test_hostile.py.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from available import MECHANISMS, needs_namespaces
from leftovers import processes
from radmoe.errors import InputError
from radmoe.sandbox import Mechanism, Sandbox, kernel, run_many, spell
from radmoe.sandbox.run import _FIRST_UID

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

T = TypeVar("T")
CALLS = [([3, 1, 2],), ([],), ([5],)]
SUMS = [spell(6), spell(0), spell(5)]
RIGHT = "def f(xs):\n    return sum(xs)\n"
OPEN = """
import os
def is_open(fd):
    try: return bool(os.fstat(fd))
    except OSError: return False
"""


@pytest.fixture(scope="module", params=MECHANISMS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(mechanism=request.param) as opened:
        yield opened


def lines(sandbox: Sandbox, program: str) -> list[str]:
    """What calling f returns; where the program did not get that far, the reason alone."""
    outcome = sandbox.call(program, "f", CALLS)
    return [outcome.failure(partial=True)] if outcome.failure(partial=True) else outcome.data.decode().split("\n")


def told(sandbox: Sandbox, expression: str, setup: str = "") -> str:
    """What an expression evaluates to inside, by way of an exception."""
    return lines(sandbox, f"{setup}\ndef f(xs):\n    raise Exception(repr({expression}))")[0].removeprefix("!")


def wait_for(ready: Callable[[], T]) -> T:
    """What a function returns as soon as that is something true."""
    while not (value := ready()):
        time.sleep(0.01)
    return value


# -- programs that behave ---------------------------------------------------------------------------


def test_values_come_back_spelled_one_line_per_call(sandbox: Sandbox) -> None:
    assert lines(sandbox, RIGHT) == SUMS
    assert lines(sandbox, "def f(xs):\n    return 6 // len(xs)")[:2] == [
        spell(2),
        "!ZeroDivisionError: integer division or modulo by zero",
    ]
    assert lines(sandbox, "f = None")[0].startswith("!NameError: it defines no function f")


def test_what_is_printed_comes_back_as_it_is(sandbox: Sandbox) -> None:
    outcome = sandbox.feed("print(input(), 'é')", "hello\nworld")
    assert (outcome.data.decode(), outcome.raised, outcome.failure(partial=False)) == ("hello é\n", False, "")
    outcome = sandbox.feed("print(1)\n1 / 0", "")
    assert (outcome.data, outcome.raised) == (b"1\n\0!ZeroDivisionError: division by zero", True)


def test_a_method_is_called_once_with_the_names_of_a_contest(sandbox: Sandbox) -> None:
    program = (
        "class Solution:\n    def most(self, xs: List[int]) -> int:\n        return Counter(xs).most_common()[0][0]"
    )
    assert sandbox.call(program, "Solution.most", [([3, 1, 3],), ([],)]).data.decode() == spell(3)


def test_results_beyond_the_limit_are_refused(sandbox: Sandbox) -> None:
    program = "def f(n):\n    return 'x' * n"
    assert "exceed 1048576 bytes" in sandbox.call(program, "f", [(2_000_000,)]).failure(partial=True)
    assert len(sandbox.call(program, "f", [(2_000_000,)], most=2_000_000).data) == 2_000_002


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


@pytest.mark.slow
def test_its_limits_and_privileges_are_what_they_should_be(sandbox: Sandbox) -> None:
    """Seen from outside, as a program does not see itself everywhere."""
    lines(sandbox, RIGHT)
    assert sandbox._helper
    helpers, program = processes(), threading.Thread(target=lines, args=(sandbox, "while True: pass"))
    program.start()
    (child,) = wait_for(lambda: processes() - helpers)
    seen = Path(f"/proc/{child}")
    wait_for(lambda: "Seccomp:\t2" in (seen / "status").read_text())
    limits = {line[:26].strip(): line[26:].split()[:2] for line in (seen / "limits").read_text().splitlines()}
    status = dict(line.split(":\t", 1) for line in (seen / "status").read_text().splitlines() if ":\t" in line)
    program.join()
    assert limits["Max processes"] == limits["Max core file size"] == ["0", "0"]
    assert limits["Max address space"] == [str(256 << 20)] * 2
    assert limits["Max cpu time"] == ["1", "1"]
    assert (status["NoNewPrivs"], int(status["CapInh"], 16)) == ("1", 0)
    assert int(status["CapEff"], 16) & ~kernel.CAN_READ_ALL == 0  # to read a library in root's home under Landlock


def test_it_stands_in_an_empty_directory_with_nothing_open(sandbox: Sandbox) -> None:
    assert told(sandbox, "os.listdir('.')", "import os") == "Exception: []"
    assert (
        told(sandbox, f"os.getcwd().startswith('{tempfile.gettempdir()}/radmoe-sandbox-') or os.getcwd()", "import os")
        == "Exception: True"
    )
    assert told(sandbox, "[fd for fd in range(64) if is_open(fd)]", OPEN) == "Exception: [0, 1, 2, 3]"
    assert told(sandbox, "dict(os.environ)", "import os") in ("Exception: {}", "Exception: {'LC_CTYPE': 'C.UTF-8'}")


def test_it_runs_as_nobody_when_the_grader_is_root(sandbox: Sandbox) -> None:
    if os.getuid():
        pytest.skip("not root")
    assert int(told(sandbox, "os.getuid()", "import os").split()[1]) > 1_000_000_000


@needs_namespaces
def test_in_namespaces_it_sees_no_network_and_no_parent() -> None:
    with Sandbox() as sandbox:
        assert told(sandbox, "os.getppid()", "import os") == "Exception: 1"
        assert told(sandbox, "open('/proc/self/net/dev').read().count(':')") == "Exception: 1"


# -- helpers and their directories ------------------------------------------------------------------


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
    assert lines(sandbox, program) == SUMS
    assert victim.read_text() == "here"


def test_a_helper_that_dies_is_replaced() -> None:
    with Sandbox() as sandbox:
        assert lines(sandbox, RIGHT) == SUMS
        assert sandbox._helper
        sandbox._helper.kill()
        sandbox._helper.wait()
        assert lines(sandbox, RIGHT) == SUMS


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_program_ends_with_its_helper(mechanism: Mechanism) -> None:
    with Sandbox(mechanism=mechanism, timeout=20) as sandbox:
        lines(sandbox, RIGHT)
        assert sandbox._helper
        uid = _FIRST_UID + sandbox._helper.pid % 100_000_000
        before = processes(uid)
        request = {"program": "while True: pass", "entry": "f", "calls": [], "timeout": 20}
        program = threading.Thread(target=sandbox._ask, args=(request, None, 100))
        program.start()
        (child,) = wait_for(lambda: processes(uid) - before)
        wait_for(lambda: "Seccomp:\t2" in Path(f"/proc/{child}/status").read_text())
        sandbox._helper.kill()
        program.join()
        deadline = time.monotonic() + 5
        while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not Path(f"/proc/{child}").exists()


def test_a_program_that_takes_the_helper_down_twice_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as sandbox:
        monkeypatch.setattr(sandbox, "_read", lambda *_: (_ for _ in ()).throw(EOFError))
        assert lines(sandbox, RIGHT) == ["it took the sandbox down"]


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # others make theirs in /tmp meanwhile

    def left() -> set[str]:
        return {p.name for p in tmp_path.glob("radmoe-sandbox-*")}

    before = left()
    with Sandbox() as sandbox:
        lines(sandbox, RIGHT)
        assert sandbox._helper
        helper = sandbox._helper.pid
        assert len(left() - before) == 1
    assert not left() - before
    assert not Path(f"/proc/{helper}").exists()
    sandbox.close()


# -- many at once -----------------------------------------------------------------------------------


def test_work_is_spread_over_sandboxes_and_comes_back_in_order() -> None:
    work = [partial(Sandbox.call, program="def f(x):\n    return x", entry="f", calls=[(i,)]) for i in range(40)]
    assert [outcome.data.decode() for outcome in run_many(work, jobs=2)] == [spell(i) for i in range(40)]
    assert list(run_many([])) == []


def test_leaving_half_way_ends_the_sandboxes() -> None:
    before = threading.active_count()
    running = run_many([lambda sandbox: lines(sandbox, RIGHT)] * 200, jobs=2)
    assert next(running) == SUMS
    running.close()
    assert threading.active_count() == before


def test_options_that_cannot_be_used_are_named() -> None:
    with pytest.raises(InputError, match="timeout must be positive, got 0"):
        Sandbox(timeout=0)
    with pytest.raises(InputError, match="at least 64 MiB"):
        Sandbox(memory=1000)
    with pytest.raises(InputError, match="jobs must be at least 1, got 0"):
        list(run_many([], jobs=0))


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


@pytest.mark.slow
@given(plain, plain)
def test_two_values_spell_alike_exactly_when_they_are_equal(a: Any, b: Any) -> None:
    assert (spell(a) == spell(b)) == (a == b)
    assert spell(a).isascii()
    assert "\n" not in spell(a)


@given(st.sets(st.integers(-3, 3)), st.sets(st.integers(-3, 3)))
def test_sets_spell_alike_when_equal(a: set[int], b: set[int]) -> None:
    assert (spell(a) == spell(frozenset(b))) == (a == b)
    assert spell(set()) != spell({})
