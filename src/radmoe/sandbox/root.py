"""The file system of a confined process: the interpreter only, or for commands the system and a work tree.

`enter` builds that as a root of its own, in namespaces of its own. Where a system permits no mounts, `rules` says the
same to Landlock, which then lets a process open these files and no others.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from radmoe.sandbox import kernel
from radmoe.sandbox.kernel import BIND, NODEV, NOEXEC, NOSUID, PRIVATE, RDONLY, READ_DIR, READ_FILE, REC, REMOUNT

WORKDIR = "/testbed"  # where commands work; SWE-bench has its repositories there
SCRATCH = ("/tmp", "/dev/shm")
_INODE = 1 << 13  # bytes of a tmpfs for each file in it, as the kernel's memory for a file counts in no size
NOBODY = 65534
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}  # in /dev, to /proc/self
_FOREIGN = ("site-packages", "dist-packages")  # inside the library's directory, but no part of the library
_NOT_LOADED = re.compile(r"_(tkinter|test|xx|ctypes_test)")  # extension modules whose libraries nobody is promised
_FLAGS = {"ro": RDONLY, "nosuid": NOSUID, "nodev": NODEV, "noexec": NOEXEC}


class RootView(NamedTuple):
    """The directories and files that a confined process can read, at the same paths as outside.

    Directories in `hidden` lie in readable ones and appear empty. `home` is an empty directory to stand in. What can be
    written to lies in memory and is gone afterwards: with `disk`, WORKDIR takes so many bytes and belongs to `owner`
    (user and group), and /tmp and /dev/shm take `scratch` bytes each.
    """

    read: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    home: str = "/"
    disk: int = 0
    scratch: int = 0
    owner: tuple[int, int] | None = None


def interpreter(home: str) -> RootView:
    """This process's interpreter: the standard library, the shared libraries it is linked with, and time zones."""
    library = [os.path.normpath(path) for path in sys.path if Path(path).exists()]
    hidden = [f"{path}/{name}" for path in library for name in _FOREIGN if Path(path, name).is_dir()]
    others = [sys.executable, "/etc/ld.so.cache", "/usr/share/zoneinfo"]
    read = _outermost([*library, *_shared_libraries(library), *(path for path in others if Path(path).exists())])
    return RootView(tuple(read), tuple(hidden), home=home)


def _outermost(paths: list[str]) -> list[str]:
    """The paths, without those that lie in another."""
    chosen: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(f"{outer}/") for outer in chosen):
            chosen.append(path)
    return chosen


class _Loaded(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


def _shared_libraries(library: list[str]) -> list[str]:
    """The shared libraries of the interpreter and of its extension modules, under the names the loader looks for.

    A process that ends at once loads them all and asks the loader, which knows better than we do where it looks.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        names: list[bytes] = []
        try:
            for entry in (entry for path in library if Path(path).is_dir() for entry in os.scandir(path)):
                if entry.name.endswith(".so") and not _NOT_LOADED.match(entry.name):
                    with contextlib.suppress(OSError):
                        ctypes.CDLL(entry.path)
            visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)

            def note(loaded: Any, size: int, data: object) -> int:
                names.append(loaded.contents.name or b"")
                return 0

            kernel.LIBC.dl_iterate_phdr(visit(note), None)
            with os.fdopen(write, "wb") as out:
                out.write(b"\0".join(names))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        paths = [os.path.normpath(os.fsdecode(name)) for name in answer.read().split(b"\0")]
    os.waitpid(child, 0)
    return [path for path in paths if path.startswith("/") and Path(path).is_file()]


# -- a root of its own -----------------------------------------------------------------------------------------------


def enter(view: RootView, place: str, fill: Callable[[str], None] = lambda workdir: None) -> None:
    """Enter namespaces with no other process, no network, and no files but those in view. Raises OSError if it cannot.

    Returns in a new process, the first of its tree: when it ends, whatever runs there ends too. The calling process
    waits for it and then ends with its exit code. `place` is an empty directory to build the root on; it stays empty.
    `fill` is called while the outside can still be seen, with the path that WORKDIR has there.
    """
    flags = kernel.NEWNS | kernel.NEWPID | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS
    if view.owner is not None and os.getuid() == 0 and not kernel.maps(view.owner[0]):
        if Path("/proc/self/uid_map").read_text().split()[1] == "0":
            raise OSError("no command runs as root, and this user namespace has nobody else")
        _unshare_as_user(flags)  # root here is another user outside
    else:
        try:
            kernel.call("unshare", flags)
        except OSError:
            if view.owner is not None:
                kernel.become(*view.owner)  # root without the right to mount: an ordinary user has it in a namespace
                kernel.set_dumpable(True)  # which a change of users ends, and then /proc/self belongs to root
            _unshare_as_user(flags)
    first = os.fork()
    if first:
        signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
        os.closerange(0, 1024)
        code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    kernel.die_with_parent()
    os.umask(0o022)
    kernel.call("sethostname", b"sandbox", 7)
    _build(view, place)
    fill(place + WORKDIR)
    os.chdir(place)
    kernel.pivot_root()


def _unshare_as_user(flags: int) -> None:
    """Enter namespaces in which an unprivileged user may mount. Nobody is root there: root is called nobody."""
    ids = {"uid": os.getuid(), "gid": os.getgid()}
    kernel.call("unshare", flags | kernel.NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    for name, number in ids.items():
        Path(f"/proc/self/{name}_map").write_text(f"{number or NOBODY} {number} 1")


def _build(view: RootView, place: str) -> None:
    """Put on `place` what is in view, and make everything read-only that is not to be written to."""
    kernel.mount(None, "/", None, REC | PRIVATE)
    kernel.mount("tmpfs", place, "tmpfs", NOSUID | NODEV, "mode=755,size=1m")
    for path in (*_outermost(list(view.read)), *(f"/dev/{name}" for name in _DEVICES)):
        _bind(path, place)
    for path in view.hidden:
        kernel.mount("tmpfs", place + path, "tmpfs", NOSUID | NODEV, "mode=755,size=1m")
    for name, target in _LINKS.items():
        Path(place, "dev", name).symlink_to(f"/proc/self/{target}")
    Path(place + view.home).mkdir(parents=True, exist_ok=True)
    Path(place, "proc").mkdir()
    with contextlib.suppress(OSError):  # an unprivileged user in a container may get none: then there is none
        kernel.mount("proc", f"{place}/proc", "proc", NOSUID | NODEV | NOEXEC, "hidepid=2,subset=pid")
    for path in (WORKDIR, *SCRATCH) if view.disk else ():
        Path(place + path).mkdir(exist_ok=True)
    for point, flags in list(_mounts(place)):
        devices = 0 if point.startswith(f"{place}/dev/") else NODEV
        kernel.mount(None, point, None, REMOUNT | BIND | RDONLY | NOSUID | devices | flags)
    if view.disk and view.owner:
        uid, gid = view.owner
        mount_memory(place + WORKDIR, view.disk, f"mode=755,uid={uid},gid={gid}")
        for path in SCRATCH:
            mount_memory(place + path, view.scratch, "mode=1777")


def mount_memory(path: str, size: int, options: str) -> None:
    """Mount a memory file system with a limit on its bytes and, in proportion, on its files."""
    kernel.mount("tmpfs", path, "tmpfs", NOSUID | NODEV, f"{options},size={size},nr_inodes={max(64, size // _INODE)}")


def _bind(path: str, place: str) -> None:
    """Show a file or a directory, if it exists, at its own path below `place`."""
    outside, inside = Path(path), Path(place + path)
    if not outside.exists():
        return
    inside.parent.mkdir(parents=True, exist_ok=True)
    if outside.is_symlink() and outside.is_dir():  # /bin on most systems, which is /usr/bin
        inside.symlink_to(outside.readlink())
        return
    if outside.is_dir():
        inside.mkdir(exist_ok=True)
    else:
        inside.touch()
    kernel.mount(path, str(inside), None, BIND | REC)


def _mounts(place: str) -> Iterator[tuple[str, int]]:
    """Where something is mounted at or below a place, and with which flags, which an unprivileged user has to repeat."""
    for line in os.fsencode(Path("/proc/self/mountinfo").read_text(errors="surrogateescape")).splitlines():
        escaped, options = line.split()[4:6]
        point = os.fsdecode(re.sub(rb"\\(\d{3})", lambda match: bytes([int(match[1], 8)]), escaped))
        if f"{point}/".startswith(f"{place}/"):
            yield point, sum(_FLAGS.get(option, 0) for option in options.decode().split(","))


# -- the same for Landlock -------------------------------------------------------------------------------------------


def rules(view: RootView) -> list[tuple[str, int]]:
    """The view as rules of Landlock, each of which also holds for what lies below its path.

    So a directory with something hidden in it is given entry by entry: the names in it can be listed, but what is
    hidden cannot be opened.
    """
    chosen = [(view.home, READ_DIR), *((f"/dev/{name}", READ_FILE) for name in _DEVICES)]
    for path in view.read:
        if not Path(path).is_dir():
            chosen.append((path, READ_FILE))
        elif any(other.startswith(f"{path}/") for other in view.hidden):
            chosen.append((path, READ_DIR))
            entries = [entry for entry in os.scandir(path) if entry.path not in view.hidden]
            chosen += [(entry.path, READ_FILE | READ_DIR if entry.is_dir() else READ_FILE) for entry in entries]
        else:
            chosen.append((path, READ_FILE | READ_DIR))
    return chosen


def private(view: RootView, *, parents: bool) -> bool:
    """Whether another user may not read some file in the view, or, with `parents`, may not enter a directory above one."""
    for path in map(Path, view.read):
        files = [path, *path.iterdir()] if path.is_dir() else [path]
        if any(not file.stat().st_mode & stat.S_IROTH for file in files if file.exists()):
            return True
        if parents and any(not parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents):
            return True
    return False
