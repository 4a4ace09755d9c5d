"""Files that somebody else made: what they may choose, and how much of them is read.

Pools, archives, trajectories, calibrations and data files are exchanged between people. A string in one of them may choose
among names of ours (`check_recorded`); a dotted path or a regular expression, which runs what its author wrote, comes from the
command line or from Python alone. A file is read only if it is one (`read_file`), and an archive's arrays are measured before
memory is taken for them (`unpack_arrays`).
"""

from __future__ import annotations

import io
import lzma
import math
import os
import stat
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError

_SMALL = 64 << 20  # bytes that any file may claim
_RATIO = 64  # how many bytes an honest archive has for each byte on disk: ours have 10 to 23
_DECODER = 256 << 20  # bytes that xz may take for its dictionary: ours take 64 MiB
_MOST_SHOWN = 80
_NUMBERS = "biuf"  # kinds of numpy types: truth values, whole numbers and fractions


def check_recorded(name: object, known: Collection[str], what: str, where: object, way_out: str) -> str:
    """The name that a file records, if it is one of the known ones; InputError for any other, a dotted path included."""
    if isinstance(name, str) and name in known:
        return name
    raise InputError(
        f"{where} records the {what} {name!r:.{_MOST_SHOWN}}, and a file chooses only among {', '.join(known)}: {way_out}"
    )


def read_file(path: str | Path, holds: str) -> bytes:
    """The content of a file. `holds` says in messages what it should be, such as "a JSONL file of problems".

    Links are followed. Raises InputError where there is no such file, where it is something else (a FIFO is not waited for, and
    a device not read), and where it is sparse, with a size that its bytes on disk do not account for.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"cannot read {path} (not a regular file): pass {holds}")
            if status.st_size > max(_SMALL, _RATIO * 512 * status.st_blocks):
                raise InputError(f"cannot read {path} ({status.st_size:,} bytes, nearly none on disk): pass {holds}")
            return file.read()
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {path} ({getattr(error, 'strerror', None) or error}): pass {holds}") from None


def unpack_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an npz archive inside one xz stream. Raises a ValueError, or what xz and zip raise, for anything else.

    Members are stored, not compressed, and lie in the stream as often as they are named; an array has the bytes that its
    header claims. So no more memory is taken than 64 times the bytes on disk (64 MB where that is more).
    """
    most = max(_SMALL, _RATIO * len(data))
    opened = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DECODER)
    plain = opened.decompress(data, max_length=most)
    if not opened.eof or opened.unused_data:
        raise ValueError("it ends too early, or too late, or is too large for its size on disk")
    with zipfile.ZipFile(io.BytesIO(plain)) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("its arrays are compressed once more")
        if sum(member.file_size for member in members) > len(plain):
            raise ValueError("its arrays overlap")
        arrays = {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}
    if len(arrays) != len(members):
        raise ValueError("it has two arrays of one name")
    return arrays


def _array(content: bytes) -> NDArray[Any]:
    """The array in the bytes of an npy file: numbers, as many as there are."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"an array of format {version}")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in _NUMBERS:
        raise ValueError(f"an array of type {dtype}")
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError(f"an array of shape {shape} in {len(content)} bytes")
    return np.frombuffer(content, dtype, offset=file.tell()).reshape(shape, order="F" if fortran_order else "C")
