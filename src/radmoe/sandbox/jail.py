"""Inside the sandbox: a process that runs one untrusted program after another, each in a child of its own.

It is run by path with a bare interpreter (`python -I -S -B jail.py`), so it uses the standard library only. Requests
come in on stdin and outcomes go out on stdout, both as length-prefixed frames. A request holds a program and the
arguments to call its function with, or the text to feed it, but never what should come back. That is compared by
whoever asked, so a program that takes over its process gains nothing but the chance to be wrong in another way.

What holds a program back:

- A seccomp filter lets it compute, import and read files, and nothing else: no processes, threads, signals, sockets,
  writes to files, renames or deletions. Each child proves that the filter is in force before it looks at the program.
  Where the system has no such filter, no program is run at all.
- Where namespaces are permitted, it has no network, and a process tree of its own outside of which it can signal nobody.
- If the caller is root, it gets a user id that owns nothing; in any case it can gain no privileges.
- CPU time, memory, file size, open files and processes are limited, and its parent keeps a wall clock.
- It has no descriptors but /dev/null, its input and the pipe that takes its results, and it stands in an empty directory.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import marshal
import math
import os
import resource
import select
import shutil
import signal
import struct
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

MAX_RESULT = 1 << 20
HEADER = struct.Struct("<I")
# Modules that programs like to import. They are loaded once, and so are there even where the child's user may not
# read the library's files.
_LIKED = (
    "array bisect cmath collections copy dataclasses datetime decimal enum fractions functools heapq itertools json "
    "operator queue random re statistics string typing"
)
# Modules that a contest's programs find imported, with all their names, in the order of LiveCodeBench's own runner.
_STARRED = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json "
    "builtins typing"
)
_RECURSION = 50_000

OK, TIMEOUT, TOO_MUCH, DIED, UNCONFINED, RAISED = range(6)

_NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
_PDEATHSIG, _SECCOMP, _NO_NEW_PRIVS = 1, 22, 38

# System calls of a program that computes, imports and reads: (x86_64, aarch64); -1 where there is none.
_CALLS = (
    (0, 63), (1, 64), (9, 222), (11, 215), (12, 214), (202, 98),  # read, write, mmap, munmap, brk, futex
    (3, 57), (5, 80), (262, 79), (332, 291), (4, -1), (6, -1), (8, 62),  # close, fstat, newfstatat, statx, stat, lstat, lseek
    (10, 226), (25, 216), (28, 233), (17, 67), (19, 65), (20, 66),  # mprotect, mremap, madvise, pread64, readv, writev
    (13, 134), (14, 135), (15, 139), (131, 132), (219, 128),  # rt_sig{action,procmask,return}, sigaltstack, restart
    (21, -1), (269, 48), (439, 439), (89, -1), (267, 78), (217, 61), (79, 17),  # access.., readlink.., getdents64, getcwd
    (39, 172), (110, 173), (186, 178), (102, 174), (107, 175), (104, 176), (108, 177),  # getpid, getppid, gettid, get*id
    (24, 124), (204, 123), (228, 113), (229, 114), (96, 169), (318, 278),  # sched_*, clock_get*, gettimeofday, getrandom
    (63, 160), (99, 179), (100, 153), (98, 165), (324, 283), (334, 293),  # uname, sysinfo, times, getrusage, membarrier, rseq
    (60, 93), (231, 94),  # exit, exit_group
)  # fmt: skip
_OPENAT = (257, 56)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def spell(value: Any, depth: int = 0) -> str:
    """A value in ASCII on one line. Plain values that are equal are spelled alike, and nothing else is.

    A subclass, or anything that is not plain data, is a TypeError, because it could claim to equal whatever it likes.
    """
    kind = type(value)
    if depth > 20:
        raise ValueError("nested too deeply")
    if kind is bool or kind is int:
        return hex(value)
    if kind is float:
        return hex(int(value)) if value.is_integer() else value.hex()
    if value is None or kind is str or kind is bytes:
        return ascii(value)
    if kind is list or kind is tuple:
        inner = ",".join([spell(item, depth + 1) for item in value])
        return f"[{inner}]" if kind is list else f"({inner},)"
    if kind is set or kind is frozenset:
        return "{" + ",".join(sorted(spell(item, depth + 1) for item in value)) + "}"
    if kind is dict:
        pairs = sorted(f"{spell(k, depth + 1)}:{spell(v, depth + 1)}" for k, v in value.items())
        return "{" + ",".join(pairs) + ":}"
    raise TypeError(f"{kind.__name__} is not plain data")


# -- the child: confined for good, then given the program ------------------------------------------------------------


def _confine(result: int, text: bytes | None, seconds: int, memory: int, uid: int) -> bool:
    """Give up everything that is not needed to compute, and return whether that worked.

    Results go to descriptor 3. A text to read becomes standard input, and standard output then goes to the results too.
    """
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(result, 1000)  # out of the way
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    if text is not None:
        _feed(text)
        os.dup2(1000, 1)
    os.dup2(1000, 3)
    os.closerange(4, 1001)
    for name in ("socket", "_socket", "ssl", "_ssl"):
        sys.modules[name] = None  # type: ignore[assignment]
    if os.getuid() == 0:
        with contextlib.suppress(OSError):  # in a user namespace there may be nobody else to be
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
    _prctl(_PDEATHSIG, signal.SIGKILL)
    limits = {"CPU": seconds, "AS": memory, "FSIZE": 1 << 20, "NOFILE": 64, "NPROC": 0, "CORE": 0}
    for name, most in limits.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    return _seccomp() and _cannot_signal()


def _feed(text: bytes) -> None:
    file = os.memfd_create("input")
    left = memoryview(text)
    while left:
        left = left[os.write(file, left) :]
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _cannot_signal() -> bool:
    """Whether the filter is in force. Signal 0 does no harm, and only the filter would forbid sending it to ourselves."""
    try:
        os.kill(os.getpid(), 0)
    except PermissionError:
        return True
    return False


def _seccomp() -> bool:
    """Allow the calls above, so that every other fails with "not permitted". False if the system has no such filter."""
    return _FILTER is not None and _prctl(_NO_NEW_PRIVS, 1) and _prctl(_SECCOMP, 2, ctypes.addressof(_FILTER[0]))


def _filter() -> tuple[Any, Any] | None:
    """The filter as the kernel takes it (struct sock_fprog), and the instructions it points to."""
    column, arch = _MACHINES.get(os.uname().machine, (0, 0))
    if sys.platform != "linux" or not arch:
        return None
    load, equal, any_of, give = 0x20, 0x15, 0x45, 0x06
    allow, deny, kill = 0x7FFF0000, 0x00050001, 0x80000000
    code = [(load, 0, 0, 4), (equal, 1, 0, arch), (give, 0, 0, kill), (load, 0, 0, 0), (equal, 0, 4, _OPENAT[column])]
    code += [(load, 0, 0, 32), (any_of, 0, 1, _WRITES), (give, 0, 0, deny), (give, 0, 0, allow)]  # how it is opened
    for call in _CALLS:
        if call[column] >= 0:
            code += [(equal, 0, 1, call[column]), (give, 0, 0, allow)]
    code.append((give, 0, 0, deny))
    blob = b"".join(struct.pack("<HBBI", *line) for line in code)
    lines = ctypes.create_string_buffer(blob, len(blob))
    return ctypes.create_string_buffer(struct.pack("@HxxxxxxP", len(code), ctypes.addressof(lines)), 16), lines


def _prctl(option: int, first: int, second: int = 0) -> bool:
    if sys.platform != "linux":
        return False
    word = ctypes.c_ulong
    return bool(_LIBC.prctl(ctypes.c_int(option), word(first), word(second), word(0), word(0)) == 0)


_LIBC, _FILTER = ctypes.CDLL(None), _filter()  # made once: a child is forked with them


def _answer(program: str, entry: str, calls: list[bytes]) -> list[str]:
    """What each call returns, spelled. A line that begins with "!" says why there is nothing more."""
    names: dict[str, Any] = {"__name__": "program"}
    try:
        exec(compile(program, "<program>", "exec", dont_inherit=True), names)
    except BaseException as error:
        return ["!" + _complaint(error)]
    function = names.get(entry)
    if function is None:
        return [f"!NameError: it defines no function {entry}"]
    lines = []
    for call in calls:
        try:
            lines.append(spell(function(*marshal.loads(call))))
        except BaseException as error:
            lines.append("!" + _complaint(error))
            break
    return lines


def _module(name: str) -> dict[str, Any]:
    """The names of a fresh module, with everything in it that a contest's programs expect."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    for source in _STARRED.split():
        names = vars(sys.modules[source])
        public = names.get("__all__") or [key for key in names if key[0] != "_"]
        module.__dict__.update({key: names[key] for key in public})
    module.__dict__.update({source: sys.modules[source] for source in _STARRED.split()})
    sys.setrecursionlimit(_RECURSION)
    # No thread can start here. The one that many programs start, for a deeper stack, may as well run at once.
    threading.Thread.start = threading.Thread.run  # type: ignore[method-assign]
    threading.Thread.join = lambda self, timeout=None: None  # type: ignore[method-assign]
    threading.stack_size = lambda size=0: 0
    return module.__dict__


def _play(program: str) -> str:
    """Run a program that reads and prints. Returns a complaint, set off from what it printed, or nothing."""
    complaint = ""
    try:
        exec(compile(program, "<program>", "exec", dont_inherit=True), _module("__main__"))
    except SystemExit:
        pass
    except BaseException as error:
        complaint = "\0!" + _complaint(error)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    return complaint


def _call(program: str, entry: str, call: bytes) -> str:
    """What one call of a function, or of a method of the class Solution, returns: the value spelled, or a complaint."""
    names = _module("program")
    try:
        exec(compile(program, "<program>", "exec", dont_inherit=True), names)
        owner, name = names.get("Solution"), entry.rpartition(".")[2]
        function = names.get(name) if owner is None else getattr(owner(), name, None)
        if function is None:
            return f"!NameError: it defines no {entry}"
        return spell(function(*marshal.loads(call)))
    except BaseException as error:
        return "!" + _complaint(error)


def _complaint(error: BaseException) -> str:
    try:
        return ascii(f"{type(error).__name__}: {error}")[1:-1][:200]
    except BaseException:
        return "an exception that cannot be shown"


# -- the parent of the children --------------------------------------------------------------------------------------


def _run(request: dict[str, Any], alone: bool) -> tuple[int, bytes]:
    """Run one program in a child. Returns how it ended and what it wrote."""
    read, write = os.pipe()
    home, entry, text = request["home"], request["entry"], request["text"]
    Path(home).mkdir()
    seconds = max(1, math.ceil(request["timeout"]))
    child = os.fork()
    if child == 0:
        code = 0
        try:
            os.chdir(home)
            if _confine(write, text, seconds, request["memory"], request["uid"]):
                os.write(3, b"+")  # sent before the program is looked at, so that none can deny it
            else:
                os._exit(0)
            if text is not None:
                lines = [_play(request["program"])]
                code = bool(lines[0])
            elif request["contest"]:
                lines = [_call(request["program"], entry, request["calls"][0])]
            else:
                lines = _answer(request["program"], entry, request["calls"])
            out = memoryview("\n".join(lines).encode("ascii", "replace"))
            while out:
                out = out[os.write(3, out) :]
        finally:
            os._exit(code)
    os.close(write)
    status, data = _collect(read, time.monotonic() + request["wall"], request["most"])
    os.close(read)
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(child, signal.SIGKILL)
    if alone and os.getpid() == 1:  # the first of its own tree: whatever else runs there was left behind by the program
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
    _, code = os.waitpid(child, 0)
    if status == OK and not data:
        status = UNCONFINED
    elif status == OK and os.WIFSIGNALED(code) and (data == b"+" or text is not None):
        status = DIED
    elif status == OK and text is not None and os.waitstatus_to_exitcode(code):
        status = RAISED
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG if not alone else 0)[0]:
            pass
    shutil.rmtree(home, ignore_errors=True)
    return status, data[1:]


def _collect(read: int, deadline: float, most: int) -> tuple[int, bytes]:
    """Read the pipe until it closes, holds too much, or time is up."""
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


def _enter_namespaces() -> bool:
    """Enter a network with nothing in it and a process tree of our own. True in the first process of that tree."""
    if sys.platform != "linux":
        return False
    uid, gid = os.getuid(), os.getgid()
    flags = _NEWPID | _NEWNET | _NEWIPC
    if not (uid == 0 and _LIBC.unshare(flags) == 0):
        if _LIBC.unshare(flags | _NEWUSER) != 0:
            return False
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with contextlib.suppress(OSError):
                Path(f"/proc/self/{name}").write_text(text)
    try:
        inner = os.fork()
    except OSError:
        return False
    if inner == 0:
        _prctl(_PDEATHSIG, signal.SIGKILL)
        return True
    os.closerange(0, 3)
    os.waitpid(inner, 0)
    os._exit(0)


def _read(count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = os.read(0, count - len(data))
        if not piece:
            os._exit(0)  # the caller is gone
        data += piece
    return bytes(data)


def serve(namespaces: bool) -> None:
    """Answer requests until the caller closes its end."""
    alone = namespaces and _enter_namespaces()
    for name in (_LIKED + " " + _STARRED).split():
        importlib.import_module(name)
    gc.disable()
    gc.freeze()  # what is never collected is never copied into a child
    while True:
        request = marshal.loads(_read(*HEADER.unpack(_read(HEADER.size))))
        try:
            status, data = _run(request, alone)
        except OSError as error:
            status, data = DIED, f"!{error}".encode("ascii", "replace")
        out = memoryview(HEADER.pack(len(data) + 1) + bytes([status]) + data)
        while out:
            out = out[os.write(1, out) :]


if __name__ == "__main__":
    serve("--no-namespaces" not in sys.argv)
