"""Runs untrusted Python programs so that nothing they do can harm the caller.

A `Sandbox` is a helper process (see `jail.py`) that is confined once and forks a child per program, which takes a few
milliseconds. The child is told the arguments or the input, and never what should come back.
"""

from __future__ import annotations

import contextlib
import marshal
import math
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from radmoe.errors import InputError
from radmoe.sandbox import boot, kernel
from radmoe.sandbox.jail import END, NO_CHILD, START
from radmoe.sandbox.library import PROBE, PROBE_MEMORY, PROBE_S, PROMISED
from radmoe.system.scratch import Scratch
from radmoe.system.side_by_side import in_order

TIMEOUT_S = 1.0
MEMORY = 256 << 20
MAX_RESULT = 1 << 20
OK, TIMEOUT, TOO_MUCH, DIED, RAISED, TOOK_DOWN = range(6)

Mechanism = Literal["namespaces", "landlock", "none"]
MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)  # best first; the last one leaves all files readable

_GRACE_S = 5.0  # for the helper to answer, before it is given up
_START_S = 60.0
_FIRST_UID = 2_000_000_000  # user ids that nobody has

_CANNOT = "this system cannot confine programs"
_WAY_OUT = (
    "grade code on Linux 5.13 or later, x86_64 or aarch64, or give --unconfined (unconfined=True) and accept that "
    "programs can read your files and their tests"
)

T = TypeVar("T")


class Outcome(NamedTuple):
    """How a program ended and what it wrote, under the limits it had.

    `status` is one of those above. After calls, `data` is one line per call that was answered: the value as `spell`
    writes it, or "!" and what was raised. After a text, it is what the program printed, and, if the program raised
    something, "\\0!" and what that was.
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
        """The reason that the program has no result; empty if it has one.

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

    Programs are confined by the best `mechanism` that the system has, unless one is named. Where it has none, using
    the sandbox raises InputError, unless `unconfined` says that programs may read all files, their tests among them.
    While a helper runs, this process cannot be looked into by others of the same user (PR_SET_DUMPABLE).
    """

    def __init__(
        self,
        *,
        timeout: float = TIMEOUT_S,
        memory: int = MEMORY,
        mechanism: Mechanism | None = None,
        unconfined: bool = False,
    ) -> None:
        if os.name != "posix":
            raise InputError("grading code needs a POSIX system (Linux or macOS): run it in WSL or a container")
        if timeout <= 0:
            raise InputError(f"sandbox timeout must be positive, got {timeout}")
        if memory < 64 << 20:
            raise InputError(f"sandbox memory must be at least 64 MiB, which the interpreter needs, got {memory} bytes")
        self.timeout, self.memory = timeout, memory
        self._mechanisms: tuple[Mechanism, ...] = (mechanism,) if mechanism else MECHANISMS[: 3 if unconfined else 2]
        self._helper: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._scratch: Scratch | None = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self, program: str, entry: str, calls: Sequence[tuple[Any, ...]], *, most: int = 0, bare: bool = False
    ) -> Outcome:
        """Run a program and call one of its functions with each tuple of arguments, all in one process.

        An `entry` of the form "Solution.name" is a method, as in a programming contest: the names that contests
        import beforehand are there, unless the environment is to be `bare`, and only the first call is made. `most` is how
        many bytes the results may have, beyond a mebibyte.
        """
        dumped = [marshal.dumps(tuple(arguments)) for arguments in calls]
        return self._outcome({"program": program, "entry": entry, "calls": dumped, "bare": bare}, None, most)

    def feed(self, program: str, text: str, *, most: int = 0, bare: bool = False) -> Outcome:
        """Run a program with a text as its standard input. What it prints may have `most` bytes beyond a mebibyte.

        The names that contests import beforehand are there, unless the environment is to be `bare`.
        """
        request = {"program": program, "entry": "", "calls": [], "bare": bare}
        return self._outcome(request, text.encode("utf-8", "replace"), most)

    def _outcome(self, request: dict[str, Any], text: bytes | None, most: int) -> Outcome:
        """Run a program. If the helper dies, the program runs once more, because an earlier program may have damaged it."""
        most += MAX_RESULT
        request |= {"timeout": self.timeout}
        status, data = self._ask(request, text, most) or self._ask(request, text, most) or (TOOK_DOWN, b"")
        return Outcome(status, data, self.timeout, most)

    def _ask(self, request: dict[str, Any], text: bytes | None, most: int) -> tuple[int, bytes] | None:
        """Let the helper process run a program. Returns its exit status and what it wrote, or None if the helper died."""
        try:
            self._start()
            self._probe()
            return self._run(request, text, self.memory, most)
        except (OSError, EOFError):
            self.close()
            return None
        except BaseException:  # interrupted: what comes next would be read as another program's answer
            self.close()
            raise

    def _run(self, request: dict[str, Any], text: bytes | None, memory: int, most: int) -> tuple[int, bytes]:
        """Have the helper run one program. Raises OSError or EOFError if the helper does not answer."""
        assert self._helper
        assert self._control
        timeout = request["timeout"]
        wall = min(5 * max(1.0, timeout), timeout + 10)
        uid = _FIRST_UID + self._helper.pid % 100_000_000
        read, write = os.pipe()
        try:
            with _closing([write]) as theirs:
                theirs.insert(0, kernel.anonymous_file(marshal.dumps(request)))
                if text is not None:
                    theirs.append(kernel.anonymous_file(text))
                start = START.pack(max(1, math.ceil(timeout)), memory, uid, len(theirs))
                socket.send_fds(self._control, [start], theirs)
            status, output = _collect(read, time.monotonic() + wall, most)
        finally:
            os.close(read)
        self._control.sendall(b".")
        (code,) = END.unpack(self._read(END.size, time.monotonic() + _GRACE_S))
        if code == NO_CHILD:
            raise OSError("the helper could start no process")
        if status == OK and not output:
            raise InputError(f"{_CANNOT} (a process could not put itself behind the filter): {_WAY_OUT}")
        if status == OK and os.WIFSIGNALED(code) and (output == b"+" or text is not None):
            status = DIED
        elif status == OK and text is not None and os.waitstatus_to_exitcode(code):
            status = RAISED
        return status, output[1:]

    def _read(self, count: int, deadline: float) -> bytes:
        """Read `size` bytes from the helper. Raises EOFError if they do not come in time."""
        assert self._control
        data = bytearray()
        while len(data) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._control], [], [], left)[0]:
                raise EOFError
            piece = self._control.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def _start(self) -> None:
        """Start a helper unless there is one, with the first mechanism that works. Raises InputError if none does."""
        if self._helper is not None:
            return
        refusals = []
        for mechanism in self._mechanisms:
            refusal = self._launch(mechanism)
            if refusal is None:
                self._mechanisms = (mechanism,)
                return
            refusals.append(f"{mechanism}: {refusal}")
            self.close()
        raise InputError(f"{_CANNOT} ({'; '.join(refusals)}): {_WAY_OUT}")

    def _launch(self, mechanism: Mechanism) -> str | None:
        """Start a helper that confines programs by one mechanism. Returns the reason that it cannot; None if it can."""
        self._scratch = Scratch(Path(tempfile.gettempdir()), "radmoe-sandbox-")
        home = self._scratch.path
        home.chmod(0o755)
        self._control, theirs = socket.socketpair()
        with theirs:
            self._helper = subprocess.Popen(
                boot.command_line("jail", mechanism, str(home)),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=home,
                env={},
                start_new_session=True,
            )
        _PRIVACY.keep()
        self._control.settimeout(_START_S)
        hello = b""
        with contextlib.suppress(OSError):
            while not hello.endswith(b"\n") and (piece := self._control.recv(1024)):
                hello += piece
        self._control.settimeout(None)
        if hello == b"+\n":
            return None
        return hello[1:].decode("utf-8", "replace").strip() or "its helper process ended at once"

    def _probe(self) -> None:
        """Import what programs are promised, once per process and mechanism. Raises InputError if something fails."""
        key = self._mechanisms[0], os.geteuid()
        with _PROBING:
            if key in _PROBED:
                return
            request = {
                "program": PROBE,
                "entry": "f",
                "timeout": PROBE_S,
                "calls": [marshal.dumps((PROMISED.split(),))],
            }
            status, data = self._run(request, None, max(self.memory, PROBE_MEMORY), MAX_RESULT)
            if status != OK or data != b"[]":
                missing = data.decode("ascii", "replace").strip("[]") or "any module"
                raise InputError(
                    f"programs in the sandbox cannot import {missing}, which docs/grading.md promises: run radmoe with "
                    f"another Python than {sys.executable}"
                )
            _PROBED.add(key)

    def close(self) -> None:
        """End the helper and all it started, and remove its directory."""
        helper, self._helper = self._helper, None
        control, self._control = self._control, None
        scratch, self._scratch = self._scratch, None
        if control is not None:
            control.close()  # at which the helper ends its child and itself
        if helper is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                helper.wait(_GRACE_S)
            with contextlib.suppress(OSError):
                os.killpg(helper.pid, signal.SIGKILL)
            helper.wait()
            _PRIVACY.release()
        if scratch is not None:
            scratch.remove()


class _Privacy:
    """Keeps others of the same user from looking into this process while any helper runs."""

    def __init__(self) -> None:
        self._lock, self._helpers, self._before = threading.Lock(), 0, True

    def keep(self) -> None:
        with self._lock:
            if self._helpers == 0:
                self._before = kernel.set_dumpable(False)
            self._helpers += 1

    def release(self) -> None:
        with self._lock:
            self._helpers -= 1
            if self._helpers == 0:
                kernel.set_dumpable(self._before)


_PRIVACY = _Privacy()
_PROBING, _PROBED = threading.Lock(), set[tuple[str, int]]()


@contextlib.contextmanager
def _closing(descriptors: list[int]) -> Iterator[list[int]]:
    """On leaving, close every descriptor in the list, including those added while inside."""
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _collect(read: int, deadline: float, most: int) -> tuple[int, bytes]:
    """Read a pipe until it closes, holds too much, or time is up."""
    data = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([read], [], [], left)[0]:
            return TIMEOUT, b""
        piece = os.read(read, 1 << 16)
        if not piece:
            return OK, bytes(data)
        data += piece
        if len(data) > most:
            return TOO_MUCH, b""


def run_many(
    work: Sequence[Callable[[Sandbox], T]],
    *,
    jobs: int = 1,
    timeout: float = TIMEOUT_S,
    memory: int = MEMORY,
    unconfined: bool = False,
) -> Generator[T, None, None]:
    """Call each piece of work with a sandbox and return the results in order. `jobs` sandboxes run in parallel."""
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    free: SimpleQueue[Sandbox] = SimpleQueue()
    sandboxes = [Sandbox(timeout=timeout, memory=memory, unconfined=unconfined) for _ in range(jobs)]
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
        for _, result in stack.enter_context(contextlib.closing(in_order(run, work, jobs))):
            yield result
