"""Programs that do not behave, under each mechanism, as root and as another user: none passes, nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hostile
import radmoe
from available import MECHANISMS, needs_landlock, needs_namespaces
from hostile import ENDLESS, HOSTILE, SECRET, SEEN_UNDER_LANDLOCK
from leftovers import leftovers
from radmoe.sandbox import Sandbox, spell
from radmoe.sandbox.run import _FIRST_UID
from readable import readable_copy

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")]

CALLS = [([3, 1, 2],), ([],), ([5],)]
SUMS = "\n".join(map(spell, (6, 0, 5))).encode()
RIGHT = "def f(xs):\n    return sum(xs)\n"
UNHARMED = "\n\ntry:\n    f\nexcept NameError:\n    f = sum"  # what a program becomes whose attempt succeeds


@pytest.fixture(scope="module", params=MECHANISMS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(mechanism=request.param) as opened:
        assert opened.call(RIGHT, "f", CALLS).data == SUMS
        yield opened


@pytest.fixture(scope="module", autouse=True)
def hidden() -> Iterator[Path]:
    """Tests in a file that all may read, named on a command line, in an environment and in memory."""
    with tempfile.TemporaryDirectory(prefix="hidden-tests-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        path = Path(directory, "tests.jsonl")
        path.write_text(json.dumps({"tests": SECRET}))
        path.chmod(0o644)
        wait = [sys.executable, "-c", "import sys; sys.stdin.read()", "--data", str(path)]
        decoy = subprocess.Popen(wait, stdin=subprocess.PIPE, env={"HIDDEN": SECRET})
        yield path
        decoy.communicate()


def fails_at_no_cost(sandbox: Sandbox, program: str) -> None:
    assert sandbox._helper
    uid = _FIRST_UID + sandbox._helper.pid % 100_000_000
    before, started = leftovers(uid), time.monotonic()
    data = sandbox.call(program + UNHARMED, "f", CALLS).data
    assert data != SUMS
    assert not re.match(rb"!(SyntaxError|IndentationError|NameError|AttributeError)", data), (
        "the program itself is broken"
    )
    assert time.monotonic() - started < 8  # the wall clock allows five seconds
    assert leftovers(uid) == before
    assert sandbox.call(RIGHT, "f", CALLS).data == SUMS


def test_there_are_at_least_eighty() -> None:
    assert len(HOSTILE) + len(ENDLESS) >= 80


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_fails_at_no_cost(sandbox: Sandbox, name: str) -> None:
    fails_at_no_cost(sandbox, HOSTILE[name])


@pytest.mark.parametrize("name", ENDLESS)
def test_a_program_without_end_is_stopped(sandbox: Sandbox, name: str) -> None:
    fails_at_no_cost(sandbox, ENDLESS[name])


@needs_namespaces
@pytest.mark.parametrize("name", SEEN_UNDER_LANDLOCK)
def test_in_namespaces_not_even_names_are_seen(name: str) -> None:
    with Sandbox(mechanism="namespaces") as sandbox:
        assert sandbox.call(SEEN_UNDER_LANDLOCK[name] + UNHARMED, "f", CALLS).data != SUMS


@needs_namespaces
def test_a_program_finds_nothing_of_another_in_its_memory() -> None:
    """A helper that held requests would hand them to every child, and with them a right program for the same tests."""
    other = "# the program of " + "another rollout\n" + RIGHT
    scan = """
import ctypes, re
def f(xs):
    needle = re.compile(rb'the program of [a]nother rollout')  # which does not match itself
    for line in open('/proc/self/maps'):
        span, rights = line.split()[:2]
        low, high = (int(end, 16) for end in span.split('-'))
        if rights.startswith('rw') and '[v' not in line:
            if needle.search(ctypes.string_at(low, high - low)):
                return 'found'
    return 'nothing'
"""
    with Sandbox(mechanism="namespaces", memory=1 << 30) as sandbox:
        for _ in range(3):
            assert sandbox.call(other, "f", CALLS).data == SUMS
            assert sandbox.feed("# the program of " + "another rollout\nprint(6)", "").data == b"6\n"
        assert sandbox.call(scan, "f", [(1,)]).data == spell("nothing").encode()


def test_the_grader_cannot_be_looked_into_while_a_helper_runs() -> None:
    script = """
import ctypes
from radmoe.sandbox import Sandbox
dumpable = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
states = [dumpable()]
with Sandbox() as first, Sandbox() as second:
    for sandbox in (first, second):
        sandbox.call("f = sum", "f", [([1],)])
        states.append(dumpable())
    first.close()
    states.append(dumpable())
print(*states, dumpable())
"""
    environment = {"PYTHONPATH": str(Path(radmoe.__file__).parent.parent)}
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert answer.stdout == "1 0 0 0 1\n", answer.stderr


# -- as another user --------------------------------------------------------------------------------

AS_ANOTHER = """
import json, os, sys
sys.path.insert(0, {here!r})
import hostile
from hostile import ENDLESS, HOSTILE
from radmoe.sandbox import Sandbox

calls, sums, unharmed = json.load(sys.stdin)
calls = [tuple(call) for call in calls]
passed, ran = [], 0
for mechanism in ("namespaces", "landlock"):
    with Sandbox(mechanism=mechanism) as sandbox:
        if sandbox.call("f = sum", "f", calls).data.decode() != sums:
            passed.append("a right program fails")
        for name, program in HOSTILE.items():
            ran += 1
            if sandbox.call(program + unharmed, "f", calls).data.decode("utf-8", "replace") == sums:
                passed.append(mechanism + ": " + name)
json.dump([os.getuid(), ran, passed], sys.stdout)
"""


@needs_namespaces
@needs_landlock
def test_as_another_user_no_hostile_program_passes_either(tmp_path: Path) -> None:
    """The system's own Python, which anybody may read, as a user without privileges."""
    python = Path("/usr/bin/python3")
    if os.getuid() or not python.exists() or not shutil.which("setpriv"):
        pytest.skip("needs root, to become somebody else, and a Python that all may read")
    with readable_copy(Path(hostile.__file__)) as here:
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        answer = subprocess.run(
            [*nobody, str(python), "-c", AS_ANOTHER.format(here=here)],
            input=json.dumps([CALLS, SUMS.decode(), UNHARMED]),
            capture_output=True,
            text=True,
            cwd="/",
            env={"HIDDEN": SECRET},
        )
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == [65534, 2 * len(HOSTILE), []]
