"""Seccomp filters: which system calls a program may make, and what radmoe-agent's filter for commands is written with.

A call that is not allowed fails with "operation not permitted"; a call of another machine type ends the process. Numbers
are given for x86_64 and aarch64, -1 where a machine has no such call.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import NamedTuple

from radmoe.sandbox.kernel import gain_nothing, prctl

# System calls of a program that computes, imports, reads and waits: (x86_64, aarch64).
_ALLOWED = (
    (0, 63), (1, 64), (9, 222), (11, 215), (12, 214), (202, 98),  # read, write, mmap, munmap, brk, futex
    (3, 57), (5, 80), (262, 79), (332, 291), (4, -1), (6, -1), (8, 62),  # close, fstat, newfstatat, statx, stat, lstat, lseek
    (10, 226), (25, 216), (28, 233), (17, 67), (19, 65), (20, 66),  # mprotect, mremap, madvise, pread64, readv, writev
    (13, 134), (14, 135), (15, 139), (131, 132), (219, 128),  # rt_sig{action,procmask,return}, sigaltstack, restart
    (21, -1), (269, 48), (439, 439), (89, -1), (267, 78), (217, 61), (79, 17),  # access.., readlink.., getdents64, getcwd
    (39, 172), (110, 173), (186, 178), (102, 174), (107, 175), (104, 176), (108, 177),  # getpid, getppid, gettid, get*id
    (24, 124), (204, 123), (228, 113), (229, 114), (96, 169), (318, 278),  # sched_*, clock_get*, gettimeofday, getrandom
    (63, 160), (99, 179), (100, 153), (98, 165), (324, 283), (334, 293),  # uname, sysinfo, times, getrusage, membarrier, rseq
    (35, 101), (230, 115),  # nanosleep, clock_nanosleep
    (60, 93), (231, 94),  # exit, exit_group
)  # fmt: skip
_OPENAT = (257, 56)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH
LOAD, EQUAL, ANY_OF, GIVE = 0x20, 0x15, 0x45, 0x06
ALLOW, _KILL, NO_SUCH_CALL, DENY = 0x7FFF0000, 0x80000000, 0x00050026, 0x00050001
_NUMBER, _ARCH, FIRST, _THIRD = 0, 4, 16, 32  # offsets: the call's number, the machine, two of its arguments

Code = list[tuple[int, int, int, int]]  # instruction, how many to skip if true, if false, its operand


class Filter(NamedTuple):
    """A filter as the kernel takes it (struct sock_fprog), and the instructions that it points to."""

    program: ctypes.Array[ctypes.c_char]
    lines: ctypes.Array[ctypes.c_char]

    def install(self) -> None:
        """Put this process behind the filter for good. Raises OSError if the system has no such filters."""
        gain_nothing()
        prctl(22, 2, ctypes.addressof(self.program))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def for_programs() -> Filter | None:
    """The filter that lets a program compute, import, read files and wait. None on a machine it was not written for."""
    machine = machine_code()
    if machine is None:
        return None
    column, code = machine
    code += [(EQUAL, 0, 4, _OPENAT[column]), (LOAD, 0, 0, _THIRD), (ANY_OF, 0, 1, _WRITES)]
    code += [(GIVE, 0, 0, DENY), (GIVE, 0, 0, ALLOW)]
    return assembled(code + verdicts(_ALLOWED, column, ALLOW), DENY)


def machine_code() -> tuple[int, Code] | None:
    """This machine's column in the tables, and a beginning that loads the number of a call made for this machine."""
    column, arch = _MACHINES.get(os.uname().machine, (0, 0))
    if sys.platform != "linux" or not arch:
        return None
    code = [(LOAD, 0, 0, _ARCH), (EQUAL, 1, 0, arch), (GIVE, 0, 0, _KILL), (LOAD, 0, 0, _NUMBER)]
    code += [(ANY_OF, 0, 1, 0x40000000), (GIVE, 0, 0, DENY)]  # x32 has the same calls under other numbers
    return column, code


def verdicts(calls: tuple[tuple[int, int], ...], column: int, verdict: int) -> Code:
    """Instructions that give one verdict for all calls of a table."""
    numbers = [call[column] for call in calls if call[column] >= 0]
    return [line for number in numbers for line in ((EQUAL, 0, 1, number), (GIVE, 0, 0, verdict))]


def assembled(code: Code, otherwise: int) -> Filter:
    """The filter of these instructions, which ends with a verdict for all other calls."""
    code.append((GIVE, 0, 0, otherwise))
    blob = b"".join(struct.pack("<HBBI", *line) for line in code)
    lines = ctypes.create_string_buffer(blob, len(blob))
    pointer = struct.pack("@HxxxxxxP", len(code), ctypes.addressof(lines))
    return Filter(ctypes.create_string_buffer(pointer, len(pointer)), lines)
