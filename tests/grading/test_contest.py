"""LiveCodeBench-style programs in the sandbox: read and print, or a method of Solution; and the same hostile ones."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from available import MECHANISMS
from crippled import without_filter
from hostile import HOSTILE
from radmoe.errors import InputError
from radmoe.grading.programs import Program, judge, judge_many
from radmoe.problems.base import STDIN
from radmoe.sandbox import Sandbox

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")]

READ = [(("3\n1 2 3\n",), "6\n"), (("1\n5",), "5"), (("0\n\n",), "0")]
READS = "input()\nprint(sum(map(int, input().split())))"
CALL = [(([3, 1, 2], 1), [4, 2, 3]), (([], 1), [])]
CALLED = "class Solution:\n    def add(self, xs: List[int], n: int) -> List[int]:\n        return [x + n for x in xs]\n"
# What these attack is theirs by right, or not there: a plus before a number is a number too.
NOT_FOR_READERS = {"reads stdin", "reads stdin descriptor", "closes the answer", "claims to be confined"}


@pytest.fixture(scope="module", params=MECHANISMS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(mechanism=request.param) as opened:
        yield opened


# -- programs that behave ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [
        READS,
        f"def main():\n    {READS.replace(chr(10), chr(10) + '    ')}\nif __name__ == '__main__':\n    main()",
        "import sys\nprint(sum(map(int, sys.stdin.read().split()[1:])))",
        "import sys\nsys.stdout.buffer.write(str(sum(map(int, sys.stdin.buffer.read().split()[1:]))).encode())",
        "stdin.readline()\nprint(sum(map(int, stdin.readline().split())))",
        "print(sum(map(int, open(0).read().split()[1:])))",
        "import os\nos.write(1, str(sum(map(int, os.read(0, 999).split()[1:]))).encode())",
        "input()\nprint(f'  {sum(map(int, input().split()))}.0  ')\nprint()\nexit()",
        "input()\nc = Counter(map(int, input().split()))\nprint(sum(k * n for k, n in c.items()))\nraise SystemExit(1)",
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n"
        + READS,
        f"import threading\nthreading.stack_size(2**27)\ndef main():\n    {READS.replace(chr(10), chr(10) + '    ')}\n"
        "t = threading.Thread(target=main)\nt.start()\nt.join()",
    ],
)
def test_a_program_that_reads_and_prints_passes(sandbox: Sandbox, program: str) -> None:
    verdict = judge(sandbox, program, READ, STDIN)
    assert verdict.passed, verdict
    assert verdict.reason == "passed 3 of 3"


@pytest.mark.parametrize(
    "program",
    [
        CALLED,
        "class Solution:\n    def add(self, xs, n):\n        return tuple(x + n for x in xs)",
        "class Solution:\n    def add(self, xs, n):\n        print(xs)\n        return [float(x + n) for x in xs]",
        "def add(xs, n):\n    return [x + n for x in xs]",
        "@cache\ndef plus(a, b):\n    return a + b\n\nclass Solution:\n    def add(self, xs, n):\n        return [plus(x, n) for x in xs]",
    ],
)
def test_a_method_of_solution_passes(sandbox: Sandbox, program: str) -> None:
    verdict = judge(sandbox, program, CALL, "Solution.add")
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print(6)", r"test 2 of 3: line 1 is '6', not '5'"),
        ("print(6, 6)", r"test 1 of 3: line 1 is '6 6', not '6'"),
        ("print(6)\nprint(6)", "test 1 of 3: it printed 2 lines, not 1"),
        ("print('six')", "line 1 is 'six', not '6'"),
        ("print('nan')", "line 1 is 'nan', not '6'"),
        ("print('sNaN')", "line 1 is 'sNaN', not '6'"),
        ("print(6.0000000001)", "not '6'"),
        ("pass", "line 1 is '', not '6'"),
        ("print(6)\nprint(1 / 0)", "it raised ZeroDivisionError: division by zero"),
        ("print(6)\nraise ValueError('a\\0!b')", r"it raised ValueError: a\x00!b"),
        ("print(6", "it raised SyntaxError"),
        ("import os\nprint(6, flush=True)\nos._exit(3)", "it exited with an error"),
        ("print(6)\n" + "x = input()\n" * 9, "it raised EOFError"),
        ("import numpy", "it raised ModuleNotFoundError"),
        ("print('\\ud800')", "it raised UnicodeEncodeError"),
        (" ", "there is no program"),
    ],
)
def test_wrong_output_fails_and_the_reason_says_where(sandbox: Sandbox, program: str, reason: str) -> None:
    verdict = judge(sandbox, program, READ, STDIN)
    assert not verdict.passed
    assert reason in verdict.reason
    assert "\n" not in verdict.reason


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (
            "class Solution:\n    def add(self, xs, n):\n        return xs",
            r"add([3, 1, 2], 1) did not return [4, 2, 3]",
        ),
        ("class Solution:\n    def other(self): ...", "NameError: it defines no Solution.add"),
        ("class Solution:\n    def __init__(self, x): ...\n    def add(self): ...", "TypeError"),
        (
            "class Solution:\n    def add(self, xs, n):\n        return xs[9]",
            "raised IndexError: list index out of range",
        ),
        ("x = ", "SyntaxError"),
    ],
)
def test_a_wrong_method_fails_and_the_reason_says_where(sandbox: Sandbox, program: str, reason: str) -> None:
    verdict = judge(sandbox, program, CALL, "Solution.add")
    assert not verdict.passed
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("printed", "expected", "right"),
    [
        ("1.0 2.50", "1 2.5", True),
        ("a  b", "a b", False),
        ("YES", "Yes", False),
        ("1\n2\n\n", "1\n2", True),
        ("1\n\n2", "1\n2", False),
        ("0.30000000000000004", "0.3", False),
        ("50000000000000001", "50000000000000000", False),
        ("1e3", "1000", True),
        ("1 2", "1 2 3", False),
        (" 1 ", "1", True),
    ],
)
def test_output_is_compared_as_livecodebench_does(sandbox: Sandbox, printed: str, expected: str, right: bool) -> None:
    assert judge(sandbox, f"print({printed!r})", [(("",), expected)], STDIN).passed == right


def test_much_to_read_and_much_to_print(sandbox: Sandbox) -> None:
    numbers = "\n".join(map(str, range(300_000)))
    assert judge(sandbox, "import sys\nprint(sys.stdin.read())", [((numbers,), numbers)], STDIN).passed
    xs = list(range(200_000))
    assert judge(sandbox, "class Solution:\n    def same(self, xs): return xs", [((xs,), xs)], "Solution.same").passed


def test_every_test_has_time_of_its_own() -> None:
    """A second of CPU each: together they take more."""
    program = "import time\nt = time.process_time()\nwhile time.process_time() - t < 0.6: pass\nprint(6)"
    with Sandbox(timeout=1) as sandbox:
        assert judge(sandbox, program, [(("",), "6")] * 3, STDIN).passed


def test_deep_recursion_is_allowed(sandbox: Sandbox) -> None:
    program = "def down(n): return n and 1 + down(n - 1)\nprint(down(20_000))"
    assert judge(sandbox, program, [(("",), "20000")], STDIN).passed


# -- what can be seen from inside: harmless probes --------------------------------------------------


@pytest.mark.parametrize("attempt", ["os.kill(os.getppid(), 0)", "os.kill(-1, 0)", "os.fork()", "open('x', 'w')"])
def test_neither_form_can_signal_fork_or_write(sandbox: Sandbox, attempt: str) -> None:
    for program, tests, entry in (
        (f"import os\n{attempt}\n{READS}", READ, STDIN),
        (f"import os\n{attempt}\n{CALLED}", CALL, "Solution.add"),
    ):
        assert "PermissionError" in judge(sandbox, program, tests, entry).reason


def test_a_reader_has_its_input_its_output_and_nothing_else_open(sandbox: Sandbox) -> None:
    program = """
import os
def is_open(fd):
    try: return bool(os.fstat(fd))
    except OSError: return False
print(*[fd for fd in range(64) if is_open(fd)], os.listdir('.'), *os.environ.keys() - {'LC_CTYPE'})
"""
    assert judge(sandbox, program, [(("",), "0 1 2 3 []")], STDIN).passed


# -- programs that do not behave --------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name in HOSTILE if "def f(" not in HOSTILE[name] and name not in NOT_FOR_READERS]
)
def test_a_hostile_reader_fails_at_no_cost(sandbox: Sandbox, name: str) -> None:
    started = time.monotonic()
    verdict = judge(sandbox, f"{HOSTILE[name]}\n{READS}", READ, STDIN)
    assert not verdict.passed, verdict
    assert time.monotonic() - started < 6
    assert judge(sandbox, READS, READ, STDIN).passed


@pytest.mark.parametrize(
    "name", [name for name in HOSTILE if "def f(" not in HOSTILE[name] or name == "closes the answer"]
)
def test_a_hostile_solution_fails_at_no_cost(sandbox: Sandbox, name: str) -> None:
    started = time.monotonic()
    verdict = judge(sandbox, f"{HOSTILE[name]}\n{CALLED}", CALL, "Solution.add")
    assert not verdict.passed, verdict
    assert time.monotonic() - started < 6
    assert judge(sandbox, CALLED, CALL, "Solution.add").passed


LOOPS = ["while True: pass", "while True: print('a' * 10**6)", "import os\nwhile True: os.write(1, b'x' * 2**20)"]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("form", ["stdin", "functional"])
def test_neither_endless_work_nor_ten_gigabytes_hold_it_up(loop: str, form: str) -> None:
    program, tests, entry = (
        (f"{loop}\n{READS}", READ, STDIN) if form == "stdin" else (f"{loop}\n{CALLED}", CALL, "Solution.add")
    )
    with Sandbox() as sandbox:
        started = time.monotonic()
        verdict = judge(sandbox, program, tests, entry)
        assert not verdict.passed
        assert time.monotonic() - started < 6
        assert verdict.reason.startswith("test 1 of")
        assert judge(sandbox, READS, READ, STDIN).passed


def test_a_system_that_cannot_confine_runs_neither_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_filter(tmp_path, monkeypatch)
    for entry in (STDIN, "Solution.add"):
        with Sandbox() as sandbox, pytest.raises(InputError, match="cannot confine programs"):
            judge(sandbox, "print(6)", READ, entry)


def test_many_programs_of_different_forms_come_back_in_order() -> None:
    work = [
        (READS, READ, STDIN),
        (CALLED, CALL, "Solution.add"),
        ("print(6)", READ, STDIN),
        ("f = sum", [(([1],), 1)], "f"),
    ]
    assert [verdict.passed for verdict in judge_many([Program(*each) for each in work * 3], jobs=2)] == [
        True,
        True,
        False,
        True,
    ] * 3


# -- a bare environment -----------------------------------------------------------------------------

DEEP = "def depth(n):\n    return n and 1 + depth(n - 1)\n"


@pytest.mark.parametrize(
    ("program", "tests", "entry", "needs"),
    [
        (CALLED, CALL, "Solution.add", "NameError"),  # List is not imported
        ("print(sum(map(int, stdin.read().split()[1:])))", READ, STDIN, "NameError"),
        (DEEP, [((3000,), 3000)], "Solution.depth", "RecursionError"),
        (DEEP + "print(depth(int(input())))", [(("3000",), "3000")], STDIN, "RecursionError"),
        (f"from typing import List\n{CALLED}", CALL, "Solution.add", None),
        (READS, READ, STDIN, None),
        (DEEP, [((300,), 300)], "Solution.depth", None),
    ],
)
def test_a_bare_environment_has_no_names_imported_and_the_usual_recursion_limit(
    sandbox: Sandbox, program: str, tests: list[Any], entry: str, needs: str | None
) -> None:
    assert judge(sandbox, program, tests, entry).passed
    bare = judge(sandbox, program, tests, entry, bare=True)
    assert bare.passed == (needs is None)
    assert needs is None or needs in bare.reason
    (verdict,) = judge_many([Program(program, tests, entry, bare=True)])
    assert verdict == bare
