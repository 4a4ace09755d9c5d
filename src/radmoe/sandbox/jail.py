"""The helper inside the sandbox: a process that runs one untrusted program after another, each in a child of its own.

It is started with a bare interpreter (`boot.py`), so it uses the standard library only. Its standard input is a socket.
For each program come the limits and three descriptors: the request, where the results go, and a text to read, if there
is one. The helper itself never reads a request or a result, so a child, which begins as a copy of the helper, finds
nothing there of other programs. A request holds a program and the arguments to call its function with, but never what
should come back. That is compared by whoever asked, so a program that takes over its process gains nothing but the
chance to be wrong in another way.

What holds a program back:

- It sees an interpreter, read-only, and no other files (`root.py`): in a mount namespace, or else by Landlock.
- A seccomp filter lets it compute, import, read files and wait, and nothing else: no processes, threads, signals,
  sockets, writes to files, renames or deletions. Each child proves that the filter is in force before it looks at the
  program.
- In namespaces it has no network, and a process tree of its own outside of which it sees and can signal nobody.
- If the caller is root, it gets a user id that owns nothing; in any case it can gain no privileges.
- CPU time, memory, file size, open files and processes are limited, and the caller keeps a wall clock.
- It has no descriptors but /dev/null, its input and the pipe that takes its results, and it stands in an empty directory.
"""

from __future__ import annotations

import _socket
import contextlib
import gc
import importlib
import marshal
import os
import resource
import signal
import struct
import sys
from typing import NoReturn

from radmoe.sandbox import filters, kernel, root, worker

START = struct.Struct("<IQII")  # seconds of CPU, bytes of memory, user id, number of descriptors
END = struct.Struct("<i")  # how the child ended, as waitpid has it, or NO_CHILD
NO_CHILD = -1
NAMESPACES, LANDLOCK, NONE = "namespaces", "landlock", "none"

_FILTER = filters.for_programs()


class _Confinement:
    """The confinement that every child applies to itself: mechanism, rules and capabilities, prepared once."""

    def __init__(self, mechanism: str, home: str) -> None:
        """Prepare a mechanism for the children. Raises OSError if the system does not have it."""
        self.mechanism, self.ruleset, self.capabilities = mechanism, -1, 0
        if mechanism != NONE and _FILTER is None:
            raise OSError(f"no seccomp filter on it for {os.uname().machine}")
        if sys.platform != "linux":
            return
        sys.executable = os.path.realpath(sys.executable)  # which is in view
        view = root.interpreter(home)
        # What root's own library needs: without it, another user could not read a library in root's home.
        if os.getuid() == 0 and root.private(view, parents=mechanism != NAMESPACES):
            self.capabilities = kernel.CAN_READ_ALL
        if mechanism == NAMESPACES:
            root.enter(view, home)
        elif mechanism == LANDLOCK:
            self.ruleset = kernel.landlock(root.rules(view))
        os.chdir(home)
        kernel.set_dumpable(False)

    def apply(self, seconds: int, memory: int, uid: int, ruleset: int) -> bool:
        """Give up everything that is not needed to compute, and return whether that worked."""
        os.setsid()
        limits = {"CPU": seconds, "AS": memory, "FSIZE": 1 << 20, "NOFILE": 64, "NPROC": 0, "CORE": 0}
        for name, most in limits.items():
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
        if sys.platform == "linux":
            kernel.become(uid, uid, self.capabilities)
            kernel.die_with_parent()  # which another user has to ask for anew
        if self.mechanism == LANDLOCK:
            kernel.gain_nothing()
            kernel.landlock_restrict(ruleset)
            os.close(ruleset)
        if _FILTER is not None:
            _FILTER.install()
        return self.mechanism == NONE or _cannot_signal()


def _cannot_signal() -> bool:
    """Whether the filter is in force. Signal 0 does no harm, and only the filter would forbid sending it to ourselves."""
    try:
        os.kill(os.getpid(), 0)
    except PermissionError:
        return True
    return False


def _child(confinement: _Confinement, descriptors: list[int], seconds: int, memory: int, uid: int) -> NoReturn:
    """Runs in the child that runs one program. Its standard output and error are closed off when it begins."""
    code, reads = 1, len(descriptors) > 2
    try:
        places = {4: descriptors[0], 3: descriptors[1], 0: descriptors[2] if reads else 1}
        if reads:
            places[1] = descriptors[1]
        if confinement.ruleset >= 0:
            places[5] = confinement.ruleset
        for number, descriptor in places.items():
            os.dup2(descriptor, 100 + number)  # first out of the way
        for number in places:
            os.dup2(100 + number, number)
        os.closerange(max(places) + 1, 1024)
        if not confinement.apply(seconds, memory, uid, 5):
            os._exit(0)
        os.write(3, b"+")  # sent before the program is looked at, so that none can deny it
        with open(4, "rb") as file:
            request = marshal.load(file)
        out, code = worker.run(request, reads=reads)
        left = memoryview(out)
        while left:
            left = left[os.write(3, left) :]
    finally:
        os._exit(code)


def _run(control: _socket.socket, confinement: _Confinement) -> None:
    """Start one program, wait until the caller has seen enough, and end it with all it started."""
    message, ancillary, _, _ = control.recvmsg(START.size, _socket.CMSG_SPACE(3 * 4))
    if len(message) < START.size:
        os._exit(0)  # the caller is gone
    seconds, memory, uid, count = START.unpack(message)
    descriptors = list(struct.unpack(f"{count}i", ancillary[0][2][: 4 * count]))
    try:
        child = os.fork()
    except OSError:
        child = 0
    else:
        if child == 0:
            _child(confinement, descriptors, seconds, memory, uid)
    for descriptor in descriptors:
        os.close(descriptor)
    go_on = os.read(0, 1)
    code = _end(child) if child else NO_CHILD
    if not go_on:
        os._exit(0)
    os.write(0, END.pack(code))


def _end(child: int) -> int:
    """End a child and whatever it left behind. Returns how it ended."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(child, signal.SIGKILL)
    alone = os.getpid() == 1  # the first of a tree of its own: whatever else runs there was left behind by the program
    if alone:
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
    _, code = os.waitpid(child, 0)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0 if alone else os.WNOHANG)[0]:
            pass
    return code


def main(mechanism: str, home: str) -> None:
    """Say whether the mechanism is there, then run programs until the caller closes its end."""
    for name in (worker.OFTEN_IMPORTED + " " + worker.STARRED).split():
        importlib.import_module(name)
    try:
        confinement = _Confinement(mechanism, home)
    except OSError as error:
        os.write(0, f"-{error.strerror or error}\n".encode())
        os._exit(0)
    control = _socket.socket(fileno=0)
    os.write(0, b"+\n")
    gc.disable()
    gc.freeze()  # what is never collected is never copied into a child
    while True:
        _run(control, confinement)
