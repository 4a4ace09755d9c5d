"""The tensors of a file that torch.save wrote, read from where they lie in the file.

Such a file is a zip archive, not compressed: `data.pkl` is a pickle that describes the tensors, and each storage is a member.
The pickle is read as data (`pickled`), and of a tensor only the rows that are asked for, so that a file of any size takes little
memory. A tensor must lie within its storage, and a storage within the file: a shape that lies is refused before anything is
read for it.
"""

from __future__ import annotations

import math
import os
import stat
import struct
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import SEEK_CUR, SEEK_END, BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError
from radmoe_integrations.imports.pickled import NUMPY, PickledCall, PickledName, read_pickle

_TYPES = {  # storages of torch, and the names of its types in a TensorDict's description
    **dict.fromkeys(("torch.LongStorage", "torch.int64"), "<i8"),
    **dict.fromkeys(("torch.IntStorage", "torch.int32"), "<i4"),
    **dict.fromkeys(("torch.ShortStorage", "torch.int16"), "<i2"),
    **dict.fromkeys(("torch.CharStorage", "torch.int8"), "<i1"),
    **dict.fromkeys(("torch.ByteStorage", "torch.uint8"), "<u1"),
    **dict.fromkeys(("torch.BoolStorage", "torch.bool"), "?"),
    **dict.fromkeys(("torch.HalfStorage", "torch.float16"), "<f2"),
    **dict.fromkeys(("torch.FloatStorage", "torch.float32"), "<f4"),
    **dict.fromkeys(("torch.DoubleStorage", "torch.float64"), "<f8"),
}
_TENSOR = "torch._utils._rebuild_tensor_v2"
_TYPED = "torch._tensor._rebuild_from_type_v2"
_NESTED = "torch.nested._internal.nested_tensor._rebuild_njt"
_TENSORDICT = "tensordict._reductions._make_td"
_CONSOLIDATED = "tensordict._reductions._rebuild_tensordict_files_consolidated"
NAMES = {
    *NUMPY,
    *(name for name in _TYPES if name.endswith("Storage")),
    "torch.BFloat16Storage",
    "torch.Size",
    "torch.Tensor",
}
NAMES |= {_TENSOR, _TYPED, _NESTED, "torch.nested._internal.nested_tensor.NestedTensor", "__builtin__.set"}
NAMES |= {"torch._dynamo.decorators._DimRange", _TENSORDICT, _CONSOLIDATED, "tensordict._td.TensorDict"}
NAMES |= {f"tensordict.tensorclass.NonTensor{kind}" for kind in ("Data", "Stack")}
_LOCAL_HEAD = struct.Struct(
    "<4s22xHH"
)  # of a zip's member: its mark, and the lengths of its name and of what is behind it


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """A regular file to read. Raises InputError for anything else; a FIFO is not waited for."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"cannot read {path} (not a regular file): pass a file of rollouts")
            yield file
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}): pass a file of rollouts") from None


@dataclass(frozen=True, eq=False)
class FileTensor:
    """A tensor that lies in a file, row after row."""

    file: BinaryIO
    where: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int) -> FileTensor:
        """The row of this index, as a tensor."""
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        return replace(self, offset=self.offset + index * row, shape=self.shape[1:])

    def read(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Rows [start, stop) as an array."""
        stop = len(self) if stop is None else min(stop, len(self))
        out = np.empty((max(stop - start, 0), *self.shape[1:]), self.dtype)
        if not out.size:
            return out
        place, left = self[start].offset, out.data.cast("B")
        while left:
            count = os.preadv(self.file.fileno(), [left], place)
            if not count:
                raise InputError(f"{self.where} ends within a tensor: it was cut while it was copied, copy it again")
            place, left = place + count, left[count:]
        return out


@dataclass(frozen=True, eq=False)
class Ragged:
    """Tensors of different lengths, one behind the other in one tensor. `offsets` say where each begins, and the last one ends."""

    values: FileTensor
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> FileTensor:
        first, last = self.offsets[index : index + 2].tolist()
        return replace(self.values, offset=self.values[first].offset, shape=(last - first, *self.values.shape[1:]))


class Window(RawIOBase):
    """A part of a file as a file of its own."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(offset + (self._at if whence == SEEK_CUR else self._size if whence == SEEK_END else 0), 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = memoryview(buffer).cast("B")[: max(self._size - self._at, 0)]
        count = os.preadv(self._file.fileno(), [wanted], self._start + self._at)
        self._at += count
        return count


def is_torch(file: BinaryIO) -> bool:
    """Whether a file begins as the zip archives do that torch writes."""
    return os.pread(file.fileno(), 4, 0) == b"PK\3\4"


def read_torch(
    file: BinaryIO, where: Path, *, names: Collection[str] = (), start: int = 0, size: int | None = None
) -> Any:
    """What torch.save wrote, with a `FileTensor` for each tensor.

    `names` are what the pickle may name besides tensors. The archive takes `size` bytes of the file from `start` on.
    """
    end = os.fstat(file.fileno()).st_size
    size = end - start if size is None else size
    if size > end - start:
        raise InputError(f"{where} ends before what it says it holds: it was cut while it was copied, copy it again")
    try:
        archive = zipfile.ZipFile(BufferedReader(Window(file, start, size)))
        members = {name.partition("/")[2]: info for name, info in archive.NameToInfo.items()}
        places = {name: _place(file, where, start, start + size, info) for name, info in members.items()}
    except InputError:
        raise
    except Exception as error:  # whatever zipfile makes of a forged archive
        reason = (str(error) or type(error).__name__).splitlines()[0][:120]
        raise InputError(
            f"{where} is no file of torch.save, or was cut ({reason}): copy it again, or say which format it is"
        ) from None
    if "data.pkl" not in places or _content(file, places, "byteorder") not in (b"", b"little"):
        raise InputError(f"{where} is a zip archive without tensors of torch (data.pkl): say which format it is")
    at, length = places["data.pkl"]
    described = read_pickle(BufferedReader(Window(file, at, length)), where, {*NAMES, *names})
    return _resolved(described, _Storages(file, where, places))


def _place(file: BinaryIO, where: Path, start: int, end: int, info: zipfile.ZipInfo) -> tuple[int, int]:
    """Where a member's bytes lie in the file, and how many they are."""
    head = start + info.header_offset
    mark, name, more = _LOCAL_HEAD.unpack(os.pread(file.fileno(), _LOCAL_HEAD.size, head))
    at = head + _LOCAL_HEAD.size + name + more
    if mark != b"PK\3\4" or info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise InputError(f"{where} is a compressed zip archive, which torch.save does not write: unpack it first")
    if at + info.file_size > end:
        raise InputError(f"{where} ends within {info.filename[:80]}: it was cut while it was copied, copy it again")
    return at, info.file_size


def _content(file: BinaryIO, places: dict[str, tuple[int, int]], name: str) -> bytes:
    at, size = places.get(name, (0, 0))
    return os.pread(file.fileno(), min(size, 64), at)


@dataclass(frozen=True)
class _Storages:
    """The storages of an archive by name: where each lies, and how many bytes it has."""

    file: BinaryIO
    where: Path
    places: dict[str, tuple[int, int]]

    def tensor(self, call: PickledCall) -> FileTensor:
        """The tensor that a call describes. It must lie row after row, within its storage."""
        match call.arguments:
            case (
                PickledCall(path="storage", arguments=("storage", kind, str(key), _, _)),
                int(first),
                tuple(shape),
                tuple(strides),
                *_,
            ):
                pass
            case _:
                raise InputError(
                    f"{self.where} describes a tensor in a way that is not torch.save's: have it written again"
                )
        at, size = self.places.get(f"data/{key}", (0, -1))
        return self.placed(str(getattr(kind, "path", kind)), shape, at, size, first=first, strides=strides)

    def placed(
        self, kind: str, shape: Any, at: int, size: int, *, first: int = 0, strides: tuple[Any, ...] | None = None
    ) -> FileTensor:
        """The tensor of a type and shape that begins `first` items behind `at` and lies within `size` bytes from there."""
        if kind not in _TYPES or not all(type(n) is int and n >= 0 for n in (first, *shape)):
            raise InputError(
                f"{self.where} holds a tensor of {kind} {shape!r:.60}: give whole numbers, float32 or float16"
            )
        dtype, shape = np.dtype(_TYPES[kind]), tuple(shape)
        steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        if strides is not None and any(n > 1 and a != b for n, a, b in zip(shape, strides, steps, strict=False)):
            raise InputError(
                f"{self.where} holds a tensor of shape {shape} that does not lie row after row (strides {strides!r:.60}): "
                "call .contiguous() on it before it is saved"
            )
        if (first + math.prod(shape)) * dtype.itemsize > size:
            raise InputError(
                f"{self.where} claims a tensor of shape {shape}, {(first + math.prod(shape)) * dtype.itemsize:,} bytes, and its "
                f"storage has {max(size, 0):,}: it is damaged or forged, have it written again"
            )
        return FileTensor(self.file, self.where, at + first * dtype.itemsize, dtype, shape)

    def ragged(self, described: Any) -> Ragged:
        """A nested tensor of torch, whose first dimension alone is of different lengths."""
        match described:
            case {
                "values": PickledCall() as values,
                "offsets": PickledCall() as offsets,
                "lengths": None,
                "_ragged_idx": 1,
            }:
                whole, places = self.made(values), self.made(offsets)
            case _:
                raise InputError(
                    f"{self.where} holds a nested tensor with gaps, or ragged elsewhere: save its parts by themselves"
                )
        if (
            not isinstance(whole, FileTensor)
            or not isinstance(places, FileTensor)
            or len(places.shape) != 1
            or not whole.shape
        ):
            raise InputError(f"{self.where} holds a nested tensor that is not made of two tensors: it is damaged")
        starts = places.read().astype(np.int64)
        if not len(starts) or starts[0] != 0 or starts[-1] > len(whole) or (np.diff(starts) < 0).any():
            raise InputError(
                f"{self.where} holds a nested tensor whose parts lie outside its {len(whole):,} rows: it is damaged"
            )
        return Ragged(whole, starts)

    def made(self, call: PickledCall) -> Any:
        """What a call makes, where it makes tensors; else the call itself."""
        match call:
            case PickledCall(path=path) if path == _TENSOR:
                return self.tensor(call)
            case PickledCall(path=path, arguments=(PickledName(path=function), _, tuple(arguments), *_)) if (
                path == _TYPED
            ):
                if function == _TENSOR:
                    return self.tensor(PickledCall(function, arguments))
                return self.ragged(arguments[0]) if function == _NESTED and arguments else call
            case PickledCall(path=path, arguments=(_, {"_tensordict": dict(tensors)})) if path == _TENSORDICT:
                return {
                    name: self.made(value) if isinstance(value, PickledCall) else value
                    for name, value in tensors.items()
                }
            case PickledCall(path=path) if path == _CONSOLIDATED:
                return self.tensordict(call)
        return call

    def tensordict(self, call: PickledCall) -> dict[str, FileTensor]:
        """The tensors of a consolidated TensorDict: one storage of bytes, and which part of it is which tensor."""
        match call.arguments:
            case ({"leaves": dict(leaves)}, PickledCall() as storage):
                whole = self.tensor(storage)
            case _:
                raise InputError(
                    f"{self.where} holds a TensorDict that is not consolidated: save a dict of tensors instead"
                )
        tensors = {}
        for name, leaf in leaves.items():
            match leaf:
                case (str(kind), list(shape), int(begin), int(end), *_) if 0 <= begin <= end <= len(whole):
                    tensors[name] = self.placed(kind, shape, whole.offset + begin, end - begin)
                case _:
                    raise InputError(
                        f"{self.where} holds a TensorDict whose {name!r:.40} lies outside its bytes: it is damaged"
                    )
        return tensors


def _resolved(content: Any, storages: _Storages) -> Any:
    """What a pickle holds, with tensors in place of the calls that make them. Each container is looked into once."""
    top, seen = [content], set[int]()
    todo: list[Any] = [top]
    while todo:
        container = todo.pop()
        for key, item in list(container.items() if isinstance(container, dict) else enumerate(container)):
            if isinstance(item, PickledCall):
                container[key] = storages.made(item)
            elif isinstance(item, dict | list) and id(item) not in seen:
                seen.add(id(item))
                todo.append(item)
    return top[0]
