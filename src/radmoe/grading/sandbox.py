"""Running untrusted Python against hidden tests, at no cost to the grader whatever the program does.

A `Sandbox` is a helper process (see `jail.py`) that forks a confined child per program, a millisecond or two each.
The child is told the arguments, never the expected values: those are compared here, byte for byte in a spelling in
which nothing can pretend to be equal to something else. If a program takes its helper down, that is its verdict.
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
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from radmoe.errors import InputError
from radmoe.grading.jail import DIED, HEADER, MAX_RESULT, TIMEOUT, TOO_MUCH, UNCONFINED, spell

TIMEOUT_S = 1.0
MEMORY = 256 << 20
_JAIL = Path(__file__).with_name("jail.py")
_GRACE_S = 5.0  # beyond the wall clock, before the helper itself is given up
_FIRST_UID = 2_000_000_000  # user ids nobody has

Test = tuple[tuple[Any, ...], Any]


@dataclass(frozen=True)
class Verdict:
    """Whether a program passed all its tests, and in one line why or why not."""

    passed: bool
    reason: str


class Sandbox:
    """One helper process, started when first needed and again whenever a program took it down.

    `timeout` is CPU seconds per program, rounded up; the wall clock allows five times as much. Not for use by two
    threads at once: open one each.
    """

    def __init__(
        self, *, timeout: float = TIMEOUT_S, memory: int = MEMORY, namespaces: bool = True, entry: str = "f"
    ) -> None:
        if os.name != "posix":
            raise InputError("grading code needs a POSIX system (Linux or macOS): run it in WSL or a container")
        if timeout <= 0:
            raise InputError(f"sandbox timeout must be positive, got {timeout}")
        if memory < 64 << 20:
            raise InputError(f"sandbox memory must be at least 64 MiB, which the interpreter needs, got {memory} bytes")
        self.timeout, self.memory, self.namespaces, self.entry = timeout, memory, namespaces, entry
        self._helper: subprocess.Popen[bytes] | None = None
        self._home: str | None = None
        self._count = 0

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, program: str, tests: Sequence[Test]) -> Verdict:
        """Call the program's function with each test's arguments and compare what it returns."""
        if not tests:
            raise InputError("a program without tests cannot be judged: give at least one (arguments, expected) pair")
        if not program.strip():
            return Verdict(False, "there is no program")
        calls = [marshal.dumps(tuple(args)) for args, _ in tests]
        outcome = self._ask(program, calls) or self._ask(program, calls)
        if outcome is None:
            return Verdict(False, "it took the sandbox down")
        status, data = outcome
        lines = data.decode("ascii", "replace").split("\n") if data else []
        return self._judge(status, lines, tests)

    def _judge(self, status: int, lines: list[str], tests: Sequence[Test]) -> Verdict:
        if status == UNCONFINED:
            raise InputError(
                "this system cannot confine programs (no seccomp filter on it): grade code on Linux, x86_64 or aarch64"
            )
        if status == TIMEOUT:
            return Verdict(False, f"it ran out of time ({self.timeout:g} s of CPU)")
        if status == TOO_MUCH:
            return Verdict(False, f"its results exceed {MAX_RESULT} bytes")
        if status == DIED and not lines:
            return Verdict(False, "it was killed: out of CPU time or memory, or a crash")
        for number, (args, expected) in enumerate(tests, 1):
            if number > len(lines):
                return Verdict(False, f"it ended before test {number} was answered")
            line = lines[number - 1]
            if line != spell(expected):
                call = _short(f"{self.entry}({', '.join(map(repr, args))})")
                what = f"raised {_short(line[1:])}" if line[:1] == "!" else f"did not return {_short(repr(expected))}"
                return Verdict(False, f"test {number} of {len(tests)}: {call} {what}")
        if len(lines) != len(tests):
            return Verdict(False, "it answered more than it was asked")
        return Verdict(True, f"passed {len(tests)} of {len(tests)}")

    def _ask(self, program: str, calls: list[bytes]) -> tuple[int, bytes] | None:
        """How the program ended and what it wrote; None when the helper did not survive it."""
        helper, home = self._start()
        self._count += 1
        wall = 5 * max(1.0, self.timeout)
        request = {
            "program": program,
            "entry": self.entry,
            "calls": calls,
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
            if not 1 <= length <= 2 * MAX_RESULT:
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
        fd, data = self._helper.stdout.fileno(), b""
        while len(data) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise EOFError
            piece = os.read(fd, count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

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
    with Sandbox(timeout=timeout, memory=memory, entry=entry) as sandbox:
        return sandbox.run(program, tests)


def run_many(
    items: Iterable[tuple[str, Sequence[Test]]], *, jobs: int = 1, timeout: float = TIMEOUT_S, memory: int = MEMORY
) -> Iterator[Verdict]:
    """Verdicts of many programs, in order. The same program with the same tests (the same object) runs once."""
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    work = list(items)
    free: SimpleQueue[Sandbox] = SimpleQueue()
    boxes = [Sandbox(timeout=timeout, memory=memory) for _ in range(jobs)]
    for box in boxes:
        free.put(box)

    def judge(program: str, tests: Sequence[Test]) -> Verdict:
        box = free.get()
        try:
            return box.run(program, tests)
        finally:
            free.put(box)

    with contextlib.ExitStack() as stack:
        for box in boxes:
            stack.enter_context(box)
        threads = stack.enter_context(ThreadPoolExecutor(jobs))
        stack.callback(threads.shutdown, cancel_futures=True)
        first = {(program, id(tests)): (program, tests) for program, tests in work}
        found = {key: threads.submit(judge, *item) for key, item in first.items()}
        for program, tests in work:
            yield found[program, id(tests)].result()


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
