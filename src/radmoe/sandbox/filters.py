"""Seccomp filters: which system calls a program may make (a short list), and which an agent's command may not.

A call that is not allowed fails with "operation not permitted"; a call of another machine type ends the process. Numbers
are given for x86_64 and aarch64, -1 where a machine has no such call.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import NamedTuple

from radmoe.sandbox.kernel import NEWIPC, NEWNET, NEWNS, NEWPID, NEWUSER, NEWUTS, gain_nothing, prctl

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
_OPENAT, _CLONE, _CLONE3, _SOCKET, _PRLIMIT = (257, 56), (56, 220), (435, 435), (41, 198), (302, 261)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_NAMESPACES = NEWNS | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET | 0x2000000  # the last one is NEWCGROUP
_FAMILIES = (
    1,
    2,
    10,
    16,
)  # of sockets: Unix, IPv4, IPv6, netlink. Others, such as vsock, reach beyond a network namespace.

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH
_LOAD, _EQUAL, _ANY_OF, _GIVE = 0x20, 0x15, 0x45, 0x06
_ALLOW, _KILL, _NO_SUCH_CALL, _DENY = 0x7FFF0000, 0x80000000, 0x00050026, 0x00050001
_NUMBER, _ARCH, _FIRST, _THIRD = 0, 4, 16, 32  # offsets: the call's number, the machine, two of its arguments

_Code = list[tuple[int, int, int, int]]  # instruction, how many to skip if true, if false, its operand


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
    machine = _machine()
    if machine is None:
        return None
    column, code = machine
    code += [(_EQUAL, 0, 4, _OPENAT[column]), (_LOAD, 0, 0, _THIRD), (_ANY_OF, 0, 1, _WRITES)]
    code += [(_GIVE, 0, 0, _DENY), (_GIVE, 0, 0, _ALLOW)]
    return _filter(code + _all(_ALLOWED, column, _ALLOW), _DENY)


def for_commands() -> Filter | None:
    """The filter that keeps an agent's command from leaving its namespaces or making others. None as above."""
    machine = _machine()
    if machine is None:
        return None
    column, code = machine
    code += [(_EQUAL, 0, 4, _CLONE[column]), (_LOAD, 0, 0, _FIRST), (_ANY_OF, 0, 1, _NAMESPACES)]
    code += [(_GIVE, 0, 0, _DENY), (_GIVE, 0, 0, _ALLOW)]
    code += [(_EQUAL, 0, 1, _CLONE3[column]), (_GIVE, 0, 0, _NO_SUCH_CALL)]  # the C library then uses clone
    code += [(_EQUAL, 0, 2 + 2 * len(_FAMILIES), _SOCKET[column]), (_LOAD, 0, 0, _FIRST)]
    code += [line for family in _FAMILIES for line in ((_EQUAL, 0, 1, family), (_GIVE, 0, 0, _ALLOW))]
    code += [(_GIVE, 0, 0, _DENY)]
    code += [
        (_EQUAL, 0, 4, _PRLIMIT[column]),
        (_LOAD, 0, 0, _FIRST),
        (_EQUAL, 0, 1, 0),
    ]  # its own limits, not the helper's
    code += [(_GIVE, 0, 0, _ALLOW), (_GIVE, 0, 0, _DENY)]
    return _filter(code + _all(_DENIED, column, _DENY), _ALLOW)


def _machine() -> tuple[int, _Code] | None:
    """This machine's column in the tables, and a beginning that loads the number of a call made for this machine."""
    column, arch = _MACHINES.get(os.uname().machine, (0, 0))
    if sys.platform != "linux" or not arch:
        return None
    code = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_GIVE, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    return column, [
        *code,
        (_ANY_OF, 0, 1, 0x40000000),
        (_GIVE, 0, 0, _DENY),
    ]  # x32 has the same calls under other numbers


def _all(calls: tuple[tuple[int, int], ...], column: int, verdict: int) -> _Code:
    numbers = [call[column] for call in calls if call[column] >= 0]
    return [line for number in numbers for line in ((_EQUAL, 0, 1, number), (_GIVE, 0, 0, verdict))]


def _filter(code: _Code, otherwise: int) -> Filter:
    code.append((_GIVE, 0, 0, otherwise))
    blob = b"".join(struct.pack("<HBBI", *line) for line in code)
    lines = ctypes.create_string_buffer(blob, len(blob))
    pointer = struct.pack("@HxxxxxxP", len(code), ctypes.addressof(lines))
    return Filter(ctypes.create_string_buffer(pointer, len(pointer)), lines)
