"""Running untrusted Python against hidden tests, at no cost to the grader whatever the program does.

A `Sandbox` is a helper process (see `jail.py`) that forks a confined child per program, a millisecond or two each.
The child is told the arguments or its input, never the expected values: those are compared here, byte for byte in a
spelling in which nothing can pretend to be equal to something else; what was printed, as LiveCodeBench does it. If a
program takes its helper down, that is its verdict.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from radmoe.errors import InputError
from radmoe.sandbox.jail import HEADER, MAX_RESULT, STDIN, spell
from radmoe.sandbox.verdicts import TOOK_DOWN, Outcome, Test, Verdict, judge_calls, wrong_output, wrong_return

TIMEOUT_S = 1.0
MEMORY = 256 << 20
_JAIL = Path(__file__).with_name("jail.py")
_GRACE_S = 5.0  # beyond the wall clock, before the helper itself is given up
_FIRST_UID = 2_000_000_000  # user ids nobody has


class Sandbox:
    """One helper process, started when first needed and again whenever a program took it down.

    `timeout` is CPU seconds per program (of a contest: per test), rounded up; the wall clock allows five times as much,
    or ten seconds more. Not for use by two threads at once: open one each.
    """

    def __init__(self, *, timeout: float = TIMEOUT_S, memory: int = MEMORY, namespaces: bool = True) -> None:
        if os.name != "posix":
            raise InputError("grading code needs a POSIX system (Linux or macOS): run it in WSL or a container")
        if timeout <= 0:
            raise InputError(f"sandbox timeout must be positive, got {timeout}")
        if memory < 64 << 20:
            raise InputError(f"sandbox memory must be at least 64 MiB, which the interpreter needs, got {memory} bytes")
        self.timeout, self.memory, self.namespaces = timeout, memory, namespaces
        self._helper: subprocess.Popen[bytes] | None = None
        self._home: str | None = None
        self._count = 0

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, program: str, tests: Sequence[Test], entry: str = "f") -> Verdict:
        """Call the program's function with each test's arguments and compare what it returns.

        A contest's program is run afresh for every test: `entry` is then "Solution.name", or "<stdin>" for a program
        that reads the test's one argument and must print what is expected.
        """
        if not tests:
            raise InputError("a program without tests cannot be judged: give at least one (arguments, expected) pair")
        if not program.strip():
            return Verdict(False, "there is no program")
        if entry != STDIN and "." not in entry:
            calls = [marshal.dumps(tuple(args)) for args, _ in tests]
            return judge_calls(self._outcome(program, entry, calls), tests, entry)
        for number, test in enumerate(tests, 1):
            if wrong := self._contest(program, test, entry):
                return Verdict(False, f"test {number} of {len(tests)}: {wrong}")
        return Verdict(True, f"passed {len(tests)} of {len(tests)}")

    def _contest(self, program: str, test: Test, entry: str) -> str:
        args, expected = test
        if entry == STDIN:
            text = str(args[0]).encode("utf-8", "replace")
            return wrong_output(self._outcome(program, entry, [], text, 4 * len(expected)), expected)
        most = 4 * len(spell(expected))
        return wrong_return(self._outcome(program, entry, [marshal.dumps(tuple(args))], None, most), test, entry)

    def _outcome(
        self, program: str, entry: str, calls: list[bytes], text: bytes | None = None, most: int = 0
    ) -> Outcome:
        """How a program ends. One that takes the helper down is given a second chance: it may have been another's fault."""
        most += MAX_RESULT
        asked = self._ask(program, entry, calls, text, most) or self._ask(program, entry, calls, text, most)
        return Outcome(*(asked or (TOOK_DOWN, b"")), self.timeout, most)

    def _ask(
        self, program: str, entry: str, calls: list[bytes], text: bytes | None, most: int
    ) -> tuple[int, bytes] | None:
        """How the program ended and what it wrote; None when the helper did not survive it."""
        helper, home = self._start()
        self._count += 1
        wall = min(5 * max(1.0, self.timeout), self.timeout + 10)
        request = {
            "program": program,
            "entry": entry,
            "calls": calls,
            "text": text,
            "most": most,
            "contest": "." in entry,
            "timeout": self.timeout,
            "wall": wall,
            "memory": self.memory,
            "home": f"{home}/{self._count}",
            "uid": _FIRST_UID + helper.pid % 100_000_000,
        }
        data = marshal.dumps(request)
        deadline = time.monotonic() + wall + _GRACE_S
        try:
            assert helper.stdin
            helper.stdin.write(HEADER.pack(len(data)) + data)
            helper.stdin.flush()
            (length,) = HEADER.unpack(self._read(HEADER.size, deadline))
            if not 1 <= length <= 2 * most:
                raise EOFError
            answer = self._read(length, deadline)
        except (OSError, EOFError):
            self.close()
            return None
        except BaseException:  # interrupted half-way: what comes next would be read as another program's answer
            self.close()
            raise
        return answer[0], answer[1:]

    def _read(self, count: int, deadline: float) -> bytes:
        assert self._helper
        assert self._helper.stdout
        fd, data = self._helper.stdout.fileno(), bytearray()
        while len(data) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise EOFError
            piece = os.read(fd, count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def _start(self) -> tuple[subprocess.Popen[bytes], str]:
        if self._helper is None or self._home is None:
            self._home = tempfile.mkdtemp(prefix="radmoe-sandbox-")
            Path(self._home).chmod(0o711)
            options = () if self.namespaces else ("--no-namespaces",)
            self._helper = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", str(_JAIL), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._home,
                env={},
                start_new_session=True,
            )
        return self._helper, self._home

    def close(self) -> None:
        """End the helper and all it started, and remove its directory."""
        helper, self._helper = self._helper, None
        home, self._home = self._home, None
        if helper is not None:
            with contextlib.suppress(OSError):
                os.killpg(helper.pid, signal.SIGKILL)
            helper.wait()
            for pipe in (helper.stdin, helper.stdout):
                if pipe:
                    with contextlib.suppress(OSError):  # what was still to be written
                        pipe.close()
        if home is not None:
            shutil.rmtree(home, ignore_errors=True)


def run_tests(
    program: str, tests: Sequence[Test], *, timeout: float = TIMEOUT_S, memory: int = MEMORY, entry: str = "f"
) -> Verdict:
    """Run one program against its tests in a sandbox of its own; about 40 ms, most of it starting."""
    with Sandbox(timeout=timeout, memory=memory) as sandbox:
        return sandbox.run(program, tests, entry)


def run_many(
    items: Iterable[tuple[str, Sequence[Test], str]],
    *,
    jobs: int = 1,
    timeout: float = TIMEOUT_S,
    memory: int = MEMORY,
) -> Iterator[Verdict]:
    """Verdicts of many programs, each with its tests and entry, in order.

    The same program with the same tests (the same object) runs once.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    work = list(items)
    free: SimpleQueue[Sandbox] = SimpleQueue()
    boxes = [Sandbox(timeout=timeout, memory=memory) for _ in range(jobs)]
    for box in boxes:
        free.put(box)

    def judge(program: str, tests: Sequence[Test], entry: str) -> Verdict:
        box = free.get()
        try:
            return box.run(program, tests, entry)
        finally:
            free.put(box)

    with contextlib.ExitStack() as stack:
        for box in boxes:
            stack.enter_context(box)
        threads = stack.enter_context(ThreadPoolExecutor(jobs))
        stack.callback(threads.shutdown, cancel_futures=True)
        first = {(program, id(tests)): (program, tests, entry) for program, tests, entry in work}
        found = {key: threads.submit(judge, *item) for key, item in first.items()}
        for program, tests, _ in work:
            yield found[program, id(tests)].result()
