"""The one rule for what may be in a pool, and the file operations that keep to it.

A pool may come from a stranger, so nothing in it is opened on trust. The pool's directory may be given through a link,
because the user typed it; inside it there are only regular files, and directories of regular files. Links, FIFOs,
sockets and devices are refused, and so is every name in a description that is not one of the names of the format.
Files are opened without following links and without waiting, and a new file appears under its name only when it is
whole: it is written under a random name that did not exist before.

A pool may lie in object storage as well. Its paths are `StorePath`s there (`place`), and all functions here take either kind.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from radmoe.errors import PoolCorrupt, PoolUnsafe
from radmoe.pool import limits
from radmoe.pool.stores import StorePath, is_url
from radmoe.system.scratch import Scratch, new_file, remove_abandoned

T = TypeVar("T")
U = TypeVar("U")

_REQUESTS = 16  # to a store at a time
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_SPECIAL = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
}


def place(path: str | Path) -> Path:
    """A path as pools use it: into a store if it is a URL such as s3://bucket/pool, else on a disk."""
    return StorePath(path) if is_url(path) else Path(path)


def absolute(path: str | Path) -> Path:
    """A path as pools use it, that means the same to a process with another current directory."""
    return place(path) if is_url(path) else Path(path).absolute()


def in_store(path: Path) -> bool:
    return isinstance(path, StorePath)


def each(path: Path, function: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """Call a function that reads or writes at `path` with each item: several at a time where that is a store."""
    if not in_store(path):
        return [function(item) for item in items]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(function, items))


def check_tree(pool: Path) -> None:
    """Refuse a pool in which something is neither a regular file nor a directory, two levels deep as the format goes.

    What another worker of the pool removes meanwhile, such as the journal of a shard it seals, is not there.
    """
    if in_store(pool):
        return
    for entry in _entries(pool):
        with suppress(FileNotFoundError):
            inside = _entries(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else [entry]
            for inner in inside:
                with suppress(FileNotFoundError):
                    if not inner.is_dir(follow_symlinks=False):
                        _check_regular(Path(inner.path), inner.stat(follow_symlinks=False))


def check_names(names: Collection[str], known: Collection[str], where: Path) -> None:
    """Refuse a description that names a file which the format does not know, such as one outside the pool."""
    for name in names:
        if name not in known:
            raise PoolUnsafe(f"{where} names {name!r}, which is no file of a pool: the pool was not made by radmoe")


def exists(path: Path) -> bool:
    """Whether there is a regular file. Anything else of this name is refused."""
    try:
        _check_regular(path, path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_directory(path: Path) -> bool:
    """Whether there is a directory of this name in a pool. A link to one is refused."""
    if isinstance(path, StorePath):
        return path.is_dir()
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(mode):
        raise _unsafe(path, mode)
    return stat.S_ISDIR(mode)


def size_of(path: Path) -> int:
    """The size of a regular file; one that is missing or is something else is refused."""
    return _status(path).st_size


def on_disk(path: Path) -> int:
    """The bytes that a regular file really takes: a sparse file has a size, and little behind it."""
    status = _status(path)
    return status.st_size if in_store(path) else min(status.st_size, status.st_blocks * 512)


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading. A link is not followed, and a FIFO is refused instead of waited for."""
    if isinstance(path, StorePath):
        return path.open_object()
    size_of(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:  # by now
        raise _missing(path) from None
    try:
        _check_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def open_lock(path: Path) -> BinaryIO:
    """Open a lock file for reading and writing; it is made if it is not there.

    A file that has another name somewhere else (a hard link) is refused, because a lock file is written in place.
    """
    if exists(path) and path.lstat().st_nlink > 1:
        raise PoolUnsafe(f"{path} is a hard link to another file: remove it")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "r+b")


def read_bytes(path: Path) -> bytes:
    """The content of a file, which must not be larger than the memory limit."""
    if isinstance(path, StorePath):
        try:
            return path.content()
        except FileNotFoundError:
            raise _missing(path) from None
    size = size_of(path)
    limits.check_claim(path, f"{size:,} bytes", size)
    with open_file(path) as f:
        return f.read()


def read_spans(path: Path, spans: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes [start, stop) of a file, for each span; fewer where it ends before. A store is asked for all at once."""
    if isinstance(path, StorePath):
        return path.ranges(spans) if spans else []
    with open_file(path) as f:
        return [os.pread(f.fileno(), stop - start, start) for start, stop in spans]


def copy_spans(path: Path, spans: Sequence[tuple[int, int]], out: BinaryIO) -> None:
    """Copy the bytes [start, stop) of a file, for each span."""
    with open_file(path) as f:
        for start, stop in spans:
            f.seek(start)
            while start < stop and (block := f.read(min(stop - start, 1 << 20))):
                out.write(block)
                start += len(block)


def crc32_file(path: Path) -> int:
    with open_file(path) as f:
        return crc32(f, size_of(path))


def crc32(f: BinaryIO, size: int, crc: int = 0) -> int:
    """The CRC-32 of the next bytes of a file, at most `size`, which goes on from `crc`."""
    while size > 0 and (block := f.read(min(size, 1 << 20))):
        crc, size = zlib.crc32(block, crc), size - len(block)
    return crc


def write_atomic(path: Path, write: bytes | Callable[[BinaryIO], None], *, new: bool = False) -> None:
    """Make `path` appear whole or not at all, and survive power loss. What was there before is replaced, never opened.

    Where it must be `new`, FileExistsError is raised if it is there. What a killed process left of such a file is removed.
    """
    if isinstance(path, StorePath):
        with tempfile.TemporaryFile() as f:
            path.put(write if isinstance(write, bytes) else (write(f), f)[1], new=new)
        return
    kind = f".{path.name}.", ".tmp"
    remove_abandoned(path.parent, *kind)
    temporary, descriptor = new_file(path.parent, *kind)
    try:
        with os.fdopen(descriptor, "wb") as f:
            if isinstance(write, bytes):
                f.write(write)
            else:
                write(f)
            f.flush()
            os.fsync(f.fileno())
            if new and exists(path):  # whoever writes such a file holds a lock
                raise FileExistsError(errno.EEXIST, "another process has written it", str(path))
            temporary.replace(path)  # while it is locked, so that nobody takes it for abandoned
        sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def copy(source: Path, target: Path) -> None:
    """Make a file the copy of another: a hard link where the disk allows it. Between buckets and disks its bytes are sent."""
    if isinstance(target, StorePath):
        if isinstance(source, StorePath) and source.store is target.store:
            target.copy_from(source)
        else:
            with open_file(source) as f:
                target.put(f)
        return
    size_of(source)  # which refuses anything but a regular file
    try:
        if in_store(source):
            raise OSError
        os.link(source, target)
    except OSError:  # another file system, or one without links
        with open_file(source) as f, target.open("xb") as out:
            shutil.copyfileobj(f, out, 1 << 20)
        sync(target)


def is_temporary(path: Path) -> bool:
    """Whether this is the name of a file that `write_atomic` has not finished."""
    return _TEMPORARY.fullmatch(path.name) is not None


def remove_temporary(directory: Path) -> None:
    """Remove what a killed `write_atomic` left in a directory that nobody else writes to."""
    if in_store(directory):
        return
    for entry in _entries(directory):
        if is_temporary(Path(entry.path)):
            Path(entry.path).unlink()


def sync(path: Path) -> None:
    """fsync a file or directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        return list(entries)


def _status(path: Path) -> os.stat_result:
    """The status of a regular file; one that is missing or is something else is refused."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(path) from None
    _check_regular(path, status)
    return status


def _missing(path: Path) -> PoolCorrupt:
    return PoolCorrupt(f"{path} is missing: open the pool again if it was changed, or restore it from a copy")


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _unsafe(path, status.st_mode)


def _unsafe(path: Path, mode: int) -> PoolUnsafe:
    what = _SPECIAL.get(stat.S_IFMT(mode), "not a file")
    way_out = "copy the pool with cp -rL" if stat.S_ISLNK(mode) else "remove it"
    return PoolUnsafe(f"{path} is {what}: a pool holds only plain files and directories of them; {way_out}")


@contextmanager
def appearing(out: Path, purpose: str) -> Iterator[Path]:
    """A directory to write into beside `out`, whose place it takes at the end of the block. It is removed if the block fails.

    `purpose` is part of its name until then. `out` is missing or an empty directory.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Scratch(out.parent, f".{out.name}.{purpose}-")
    try:
        yield scratch.path
        if out.exists():
            out.rmdir()
        scratch.path.rename(out)
        sync(out.parent)
    except BaseException:
        scratch.remove()
        raise
    scratch.release()
