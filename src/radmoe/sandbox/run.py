"""Running untrusted Python, at no cost to the caller whatever the program does.

A `Sandbox` is a helper process (see `jail.py`) that forks a confined child per program, which takes a millisecond or
two. The child is told the arguments or the input, and never what should come back.
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
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from radmoe.errors import InputError
from radmoe.sandbox.jail import DIED, HEADER, MAX_RESULT, RAISED, TIMEOUT, TOO_MUCH, UNCONFINED

TIMEOUT_S = 1.0
MEMORY = 256 << 20
TOOK_DOWN = -1  # a status beside those of the jail: the helper did not survive the program

_JAIL = Path(__file__).with_name("jail.py")
_GRACE_S = 5.0  # beyond the wall clock, before the helper itself is given up
_FIRST_UID = 2_000_000_000  # user ids that nobody has

T = TypeVar("T")


class Outcome(NamedTuple):
    """How a program ended and what it wrote, under the limits it had.

    `status` is one of the jail's, or TOOK_DOWN. After calls, `data` is one line per call that was answered: the value
    as `spell` writes it, or "!" and what was raised. After a text, it is what the program printed, and, if the program
    raised something, "\\0!" and what that was.
    """

    status: int
    data: bytes
    timeout: float
    most: int

    @property
    def raised(self) -> bool:
        """Whether a program that was fed a text ended with an exception or an error code."""
        return self.status == RAISED

    def failure(self, *, partial: bool) -> str:
        """The reason that there is nothing to look at; empty where there is something.

        A program that was killed fails here; with `partial`, only if it wrote nothing before.
        """
        if self.status == TIMEOUT:
            return f"it ran out of time ({self.timeout:g} s of CPU)"
        if self.status == TOO_MUCH:
            return f"its results exceed {self.most} bytes"
        if self.status == TOOK_DOWN:
            return "it took the sandbox down"
        if self.status == DIED and not (partial and self.data):
            return "it was killed: out of CPU time or memory, or a crash"
        return ""


class Sandbox:
    """One helper process, started when first needed and again whenever a program took it down.

    `timeout` is CPU seconds per run, rounded up; the wall clock allows five times as much, or ten seconds more,
    whichever is less. A sandbox serves one thread at a time: open one for each.
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

    def call(self, program: str, entry: str, calls: Sequence[tuple[Any, ...]], *, most: int = 0) -> Outcome:
        """Run a program and call one of its functions with each tuple of arguments, all in one process.

        An `entry` of the form "Solution.name" is a method, as in a programming contest: the names that contests
        import beforehand are there, and only the first call is made. `most` is how many bytes the results may
        have, beyond a mebibyte.
        """
        return self._outcome(program, entry, [marshal.dumps(tuple(arguments)) for arguments in calls], None, most)

    def feed(self, program: str, text: str, *, most: int = 0) -> Outcome:
        """Run a program with a text as its standard input. What it prints may have `most` bytes beyond a mebibyte."""
        return self._outcome(program, "", [], text.encode("utf-8", "replace"), most)

    def _outcome(self, program: str, entry: str, calls: list[bytes], text: bytes | None, most: int) -> Outcome:
        """How a program ends. One that takes the helper down has a second try, as another may have been at fault."""
        most += MAX_RESULT
        answer = self._ask(program, entry, calls, text, most) or self._ask(program, entry, calls, text, most)
        status, data = answer or (TOOK_DOWN, b"")
        if status == UNCONFINED:
            raise InputError(
                "this system cannot confine programs (no seccomp filter on it): grade code on Linux, x86_64 or aarch64"
            )
        return Outcome(status, data, self.timeout, most)

    def _ask(
        self, program: str, entry: str, calls: list[bytes], text: bytes | None, most: int
    ) -> tuple[int, bytes] | None:
        """How the program ended and what it wrote; None if the helper did not survive it."""
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
        except BaseException:  # interrupted: what comes next would be read as another program's answer
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


def run_many(
    work: Sequence[Callable[[Sandbox], T]], *, jobs: int = 1, timeout: float = TIMEOUT_S, memory: int = MEMORY
) -> Generator[T, None, None]:
    """What each piece of work returns when it is given a sandbox, in order. `jobs` sandboxes work side by side."""
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    free: SimpleQueue[Sandbox] = SimpleQueue()
    sandboxes = [Sandbox(timeout=timeout, memory=memory) for _ in range(jobs)]
    for sandbox in sandboxes:
        free.put(sandbox)

    def run(piece: Callable[[Sandbox], T]) -> T:
        sandbox = free.get()
        try:
            return piece(sandbox)
        finally:
            free.put(sandbox)

    with contextlib.ExitStack() as stack:
        for sandbox in sandboxes:
            stack.enter_context(sandbox)
        threads = stack.enter_context(ThreadPoolExecutor(jobs))
        stack.callback(threads.shutdown, cancel_futures=True)
        for future in [threads.submit(run, piece) for piece in work]:
            yield future.result()
