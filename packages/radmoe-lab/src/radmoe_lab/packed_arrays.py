"""Reading an npz archive inside one xz stream. Somebody else may have made it, so its arrays are measured before memory is taken."""

from __future__ import annotations

import io
import lzma
import math
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SMALL = 64 << 20  # bytes that any archive may claim
_RATIO = 64  # how many bytes an honest archive has for each byte on disk: ours have 10 to 23
_DECODER = 256 << 20  # bytes that xz may take for its dictionary: ours take 64 MiB
_NUMBERS = "biuf"  # kinds of numpy types: truth values, whole numbers and fractions


def unpack_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an npz archive inside one xz stream. Raises a ValueError, or what xz and zip raise, for anything else.

    Takes no more memory than 64 times the bytes on disk (at least 64 MB): compressed or overlapping members are refused, and
    so is an array whose header claims another size than it has.
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
    """Parse the bytes of an npy file: numbers only, as many as the header claims."""
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
