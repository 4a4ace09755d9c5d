"""System calls that confinement needs and Python does not offer, made through the C library.

Everything in this room that runs inside the sandbox uses the standard library only. A call that fails raises OSError
with the name of the call, so that a message can say what the system refused.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
from pathlib import Path

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
CAN_READ_ALL = 1 << 2  # CAP_DAC_READ_SEARCH

_PDEATHSIG, _GET_DUMPABLE, _SET_DUMPABLE, _KEEPCAPS, _NO_NEW_PRIVS = 1, 3, 4, 8, 38
_CAPABILITIES = 0x20080522  # the version of the structure that capset takes: 64 capabilities
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_FILES = (13, 13, 14, 15, 15, 16)  # how many kinds of access to files each version knows, from version 1 on
READ_FILE, READ_DIR = 1 << 2, 1 << 3  # two of them

LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library that returns -1 on failure, and raise OSError if it fails."""
    result: int = getattr(LIBC, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3])


def unmount(target: str) -> None:
    """Take a mount away at once, whoever still uses it."""
    call("umount2", os.fsencode(target), 2)  # MNT_DETACH


def pivot_root() -> None:
    """Make the working directory the root, and let go of the old root."""
    call("pivot_root", b".", b".")
    unmount(".")
    os.chdir("/")


def prctl(option: int, first: int, second: int = 0) -> int:
    word = ctypes.c_ulong
    return call("prctl", ctypes.c_int(option), word(first), word(second), word(0), word(0))


def die_with_parent() -> None:
    prctl(_PDEATHSIG, 9)


def gain_nothing() -> None:
    """From now on neither this process nor anything it starts can gain privileges, say by a setuid program."""
    prctl(_NO_NEW_PRIVS, 1)


def set_dumpable(dumpable: bool) -> bool:
    """Say whether others of the same user may look into this process, and return whether they could until now."""
    if sys.platform != "linux":
        return True
    before = prctl(_GET_DUMPABLE, 0) != 0
    prctl(_SET_DUMPABLE, int(dumpable))
    return before


def become(uid: int, gid: int, capabilities: int = 0) -> None:
    """Become another user who is in no groups, if this one may, and give up all capabilities but the given ones."""
    if os.getuid() == 0:
        if capabilities:
            prctl(_KEEPCAPS, 1)
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        except OSError:  # in a user namespace there may be nobody else to be
            pass
    try:
        _set_capabilities(capabilities)
    except OSError:  # nobody can keep what they do not have
        _set_capabilities(0)


def maps(uid: int) -> bool:
    """Whether this user namespace knows a user and a group of a number."""
    for name in ("uid_map", "gid_map"):
        ranges = [line.split() for line in Path(f"/proc/self/{name}").read_text().splitlines()]
        if not any(int(first) <= uid < int(first) + int(count) for first, _, count in ranges):
            return False
    return True


def _set_capabilities(capabilities: int) -> None:
    words = struct.pack("<3I", capabilities, capabilities, 0)  # effective, permitted, inheritable
    call("capset", struct.pack("<Ii", _CAPABILITIES, 0), words + bytes(12))


def landlock(rules: list[tuple[str, int]]) -> int:
    """A descriptor for `landlock_restrict`: what is not named in the rules (path, access) cannot be opened.

    Where the kernel can, it also forbids TCP, and signals and abstract sockets to processes outside. Raises OSError if it has no
    Landlock.
    """
    version = call("syscall", ctypes.c_long(_LANDLOCK_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint(1))
    files = (1 << _LANDLOCK_FILES[min(version, len(_LANDLOCK_FILES)) - 1]) - 1
    attributes = struct.pack("<3Q", files, 3, 3)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    number = ctypes.c_long(_LANDLOCK_CREATE)
    ruleset = call("syscall", number, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    for path, access in rules:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = struct.pack("<Qi", access, beneath)
            call("syscall", ctypes.c_long(_LANDLOCK_ADD), ruleset, 1, rule, ctypes.c_uint(0))
        finally:
            os.close(beneath)
    return ruleset


def landlock_restrict(ruleset: int) -> None:
    call("syscall", ctypes.c_long(_LANDLOCK_RESTRICT), ruleset, ctypes.c_uint(0))


def anonymous_file(data: bytes) -> int:
    """A descriptor, at its beginning, of a file that holds some data and has no name. On Linux nobody can change it."""
    if sys.platform == "linux":
        file = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        import tempfile

        with tempfile.TemporaryFile() as opened:
            file = os.dup(opened.fileno())
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
    os.lseek(file, 0, os.SEEK_SET)
    if sys.platform == "linux":
        fcntl.fcntl(
            file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
        )
    return file
