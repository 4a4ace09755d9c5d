"""The helper inside the confinement that runs one command after another: see `session.py`, which starts it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
from pathlib import Path
from typing import Any, NoReturn

from radmoe.sandbox import kernel, root
from radmoe.sandbox.filters import (
    ALLOW,
    ANY_OF,
    DENY,
    EQUAL,
    FIRST,
    GIVE,
    LOAD,
    NO_SUCH_CALL,
    Filter,
    assembled,
    machine_code,
    verdicts,
)

STARTED, RUN, STOP = b"+", b"!", b"."
END = struct.Struct("<i")  # the exit code of a command, 128 + n after signal n
_FIRST_UID = 2_100_000_000  # user ids that nobody has, and no program of `run.py` either
_CAPBSET_DROP = 24  # an option of prctl
_ENDED_FIRST = 1000  # oom_score_adj: commands go before anybody else when the machine's memory runs out

# System calls that no command of an agent needs, and that have been ways out of confinement or around its limits.
_DENIED = (
    (165, 40), (166, 39), (155, 41), (161, 51), (272, 97), (308, 268),  # mount, umount2, pivot_root, chroot, unshare, setns
    (428, 428), (429, 429), (430, 430), (431, 431), (432, 432), (433, 433), (442, 442),  # open_tree .. fspick, mount_setattr
    (101, 117), (310, 270), (311, 271), (312, 272), (438, 438),  # ptrace, process_vm_{readv,writev}, kcmp, pidfd_getfd
    (248, 217), (249, 218), (250, 219),  # add_key, request_key, keyctl
    (321, 280), (298, 241), (323, 282), (425, 425), (426, 426), (427, 427),  # bpf, perf_event_open, userfaultfd, io_uring_*
    (303, 264), (304, 265), (175, 105), (313, 273), (176, 106), (246, 104), (320, 294), (169, 142),  # handles, modules, kexec
    (319, 279), (447, 447), (29, 194), (68, 186), (64, 190), (206, 0),  # memory that no limit counts: memfd_*, {shm,msg,sem}get, io_setup
)  # fmt: skip
_CLONE, _CLONE3, _SOCKET, _PRLIMIT = (56, 220), (435, 435), (41, 198), (302, 261)
_NAMESPACES = (  # the last one is NEWCGROUP
    kernel.NEWNS | kernel.NEWUTS | kernel.NEWIPC | kernel.NEWUSER | kernel.NEWPID | kernel.NEWNET | 0x2000000
)
# of sockets: Unix, IPv4, IPv6, netlink. Others, such as vsock, reach beyond a network namespace.
_FAMILIES = (1, 2, 10, 16)


def main(order: str, control: str, place: str) -> None:
    """Confine this process, then run commands until the caller closes its end of the control socket.

    A command comes as three descriptors: of a file that says what to run, of its input, and of a pipe that takes both
    its outputs. When it ends, or the caller says STOP, whatever it started is ended too, /tmp and /dev/shm are emptied,
    and its exit code goes back.
    """
    # Python ignores the first two, which a command would inherit, and catches the last, so that a command could end this process.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    caller = socket.socket(fileno=int(control))
    with os.fdopen(int(order), "rb") as file:
        wanted: dict[str, Any] = json.load(file)
    try:
        barrier, view = _enter(wanted, place)
    except OSError as error:
        caller.send(f"{error.strerror or error}".encode("utf-8", "replace")[:1000])
        os._exit(127)
    caller.send(STARTED)
    while True:
        message, descriptors, _, _ = socket.recv_fds(caller, 1, 3)
        if not message:
            os._exit(0)  # the caller is gone, and all that runs here goes with this process
        if message == RUN:  # a STOP came too late for the command that it was meant for
            code = _run(caller, wanted, barrier, view, descriptors)
            _empty_scratch(view)
            caller.send(END.pack(code))


def _enter(wanted: dict[str, Any], place: str) -> tuple[Filter, root.RootView]:
    """Confine this process as `wanted` says, and hide it from the commands that it will run.

    Returns the system call filter that commands start behind, and their view of the file system.
    """
    barrier = _for_commands()
    if barrier is None:
        raise OSError(f"there is no seccomp filter for {os.uname().machine}")
    owner = _owner(_FIRST_UID + os.getpid() % 10_000_000)
    view = root.RootView(tuple(wanted["read"]), disk=wanted["disk"], scratch=wanted["scratch"], owner=owner)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_ENDED_FIRST))
    root.enter(view, place, lambda workdir: _fill(workdir, wanted, owner))
    kernel.set_dumpable(False)
    return barrier, view


def _for_commands() -> Filter | None:
    """The filter that keeps a command from leaving its namespaces or making others. None on a machine it was not written for."""
    machine = machine_code()
    if machine is None:
        return None
    column, code = machine
    code += [(EQUAL, 0, 4, _CLONE[column]), (LOAD, 0, 0, FIRST), (ANY_OF, 0, 1, _NAMESPACES)]
    code += [(GIVE, 0, 0, DENY), (GIVE, 0, 0, ALLOW)]
    code += [(EQUAL, 0, 1, _CLONE3[column]), (GIVE, 0, 0, NO_SUCH_CALL)]  # the C library then uses clone
    code += [(EQUAL, 0, 2 + 2 * len(_FAMILIES), _SOCKET[column]), (LOAD, 0, 0, FIRST)]
    code += [line for family in _FAMILIES for line in ((EQUAL, 0, 1, family), (GIVE, 0, 0, ALLOW))]
    code += [(GIVE, 0, 0, DENY)]
    # its own limits, not the helper's
    code += [(EQUAL, 0, 4, _PRLIMIT[column]), (LOAD, 0, 0, FIRST), (EQUAL, 0, 1, 0)]
    code += [(GIVE, 0, 0, ALLOW), (GIVE, 0, 0, DENY)]
    return assembled(code + verdicts(_DENIED, column, DENY), ALLOW)


def _owner(number: int) -> tuple[int, int]:
    """User and group of commands: the caller's own or, if that is root, ids that nobody else has."""
    if os.getuid():
        return os.getuid(), os.getgid()
    uid = number if kernel.maps(number) else root.NOBODY
    return uid, uid


def _empty_scratch(view: root.RootView) -> None:
    """Replace /tmp and /dev/shm by empty ones, whatever is in them. Nobody may be using them."""
    for path in root.SCRATCH:
        kernel.unmount(path)
        root.mount_memory(path, view.scratch, "mode=1777")


def _fill(workdir: str, wanted: dict[str, Any], owner: tuple[int, int]) -> None:
    """Copy a directory and files into the work tree, in a process of their owner, who can read them all."""
    answer, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        reason = ""
        try:
            _become(owner, kernel.CAN_READ_ALL)
            os.chdir(workdir)
            reason = _copied(wanted["copy"], wanted["files"])
        except OSError as error:
            reason = f"{error.strerror or error}"
        finally:
            os.write(theirs, reason.encode("utf-8", "replace")[:1000])
            os._exit(0)
    os.close(theirs)
    with os.fdopen(answer, "rb") as file:
        reason = file.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    if reason != STARTED.decode():
        raise OSError(f"its work tree cannot be made: {reason or 'a process was killed'}")


def _become(owner: tuple[int, int], capabilities: int = 0, *, bounding: bool = False) -> None:
    """Become the owner, with no more than the given capabilities; with `bounding` none come back when a program is executed."""
    if bounding:
        for number in range(64):
            try:
                kernel.prctl(_CAPBSET_DROP, number)
            except OSError:
                break
    kernel.become(*owner, capabilities)
    if 0 in (*os.getresuid(), *os.getresgid()):
        raise OSError("no command runs as root, and this root has no right to become another user")


def _copied(directory: str, files: dict[str, str]) -> str:
    """Fill the working directory. Returns STARTED, or what went wrong first."""
    name = directory
    try:
        if directory:
            import shutil  # takes longer than all the rest

            shutil.copytree(directory, ".", symlinks=True, ignore=_special, dirs_exist_ok=True)
        for name, text in files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(_encoded(text))
    except RecursionError:
        return "directories are nested too deeply"
    except OSError as error:
        if isinstance(error.args[0], list):  # what copytree could not copy: from where, to where, and the reason
            path, _, reason = error.args[0][0]
            return f"{path}: {reason}"
        return f"{error.filename}: {error.strerror}"
    except ValueError as error:  # a null byte, half a character
        return f"{name!r} is no name of a file ({error})"
    return STARTED.decode()


def _special(directory: str, names: list[str]) -> list[str]:
    """The names in a directory that are neither files, directories nor links. Pipes, sockets and devices are not copied."""
    kinds = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return [name for name in names if not any(kind(Path(directory, name).lstat().st_mode) for kind in kinds)]


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _run(
    caller: socket.socket, wanted: dict[str, Any], barrier: Filter, view: root.RootView, descriptors: list[int]
) -> int:
    command = os.fork()
    if command == 0:
        _command(wanted, barrier, view, *descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    ended = os.pidfd_open(command)
    select.select([ended, caller.fileno()], [], [])
    os.close(ended)
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    code = 127
    with contextlib.suppress(ChildProcessError):
        while True:
            process, status = os.wait()
            if process == command:
                code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _command(
    wanted: dict[str, Any], barrier: Filter, view: root.RootView, words: int, given: int, output: int
) -> NoReturn:
    """Runs in the process that becomes the command: sets limits, installs the filter, drops root, and executes it."""
    assert view.owner
    try:
        with os.fdopen(words, "rb") as file:
            command = json.load(file)
        for number, descriptor in ((100, given), (101, output)):
            os.dup2(descriptor, number)  # first out of the way
        for number, descriptor in enumerate((100, 101, 101)):
            os.dup2(descriptor, number)
        os.closerange(3, 4096)
        os.setsid()
        for name, most in (wanted["limits"] | {"CPU": command["seconds"]}).items():
            _limit(getattr(resource, f"RLIMIT_{name}"), most)
        _become(view.owner, bounding=True)
        os.chdir(command["cwd"])
        barrier.install()
        os.execvpe(command["argv"][0], command["argv"], wanted["environment"])
    except OSError as error:
        os.write(2, f"{error.strerror or error}\n".encode())
    finally:
        os._exit(127)


def _limit(kind: int, most: int) -> None:
    """Lower a limit, unless it is lower already."""
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))
