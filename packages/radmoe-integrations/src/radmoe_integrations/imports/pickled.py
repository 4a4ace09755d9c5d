"""Reads a pickle as data. Nothing that it names is imported, looked up or called.

A pickle is a program: it names functions and says with which arguments they are called. Here a name stays a name, and a call
is noted as a `PickledCall` with its arguments, for the reader of a format to make sense of. Names that no reader knows are refused at
once, and so is every instruction that an honest file does not need.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from radmoe.errors import InputError

_OPCODES = b"".join(
    (
        pickle.PROTO + pickle.FRAME + pickle.STOP + pickle.MARK + pickle.POP + pickle.POP_MARK,
        pickle.NONE + pickle.NEWTRUE + pickle.NEWFALSE + pickle.BINFLOAT,
        pickle.BININT + pickle.BININT1 + pickle.BININT2 + pickle.LONG1 + pickle.LONG4,
        pickle.BINUNICODE + pickle.SHORT_BINUNICODE + pickle.BINUNICODE8,
        pickle.SHORT_BINBYTES + pickle.BINBYTES + pickle.BINBYTES8,
        pickle.EMPTY_TUPLE + pickle.TUPLE1 + pickle.TUPLE2 + pickle.TUPLE3 + pickle.TUPLE,
        pickle.EMPTY_LIST + pickle.APPEND + pickle.APPENDS + pickle.EMPTY_DICT + pickle.SETITEM + pickle.SETITEMS,
        pickle.BINGET + pickle.LONG_BINGET + pickle.BINPUT + pickle.LONG_BINPUT + pickle.MEMOIZE,
        pickle.GLOBAL + pickle.STACK_GLOBAL + pickle.REDUCE + pickle.NEWOBJ + pickle.BUILD + pickle.BINPERSID,
    )
)
_LONG_LIST = 64  # numbers from which a list is kept as an array, in an eighth of the memory
_LARGE = 1 << 20  # bytes from which a text of bytes stays in the file
NUMPY = {f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")}
NUMPY |= {"numpy.ndarray", "numpy.dtype", "_codecs.encode", "collections.OrderedDict"}


class PickledName:
    """What a pickle names, as in "torch.FloatStorage"."""

    def __init__(self, path: str) -> None:
        self.path = path


class PickledCall:
    """What a pickle would have had called: the name, its arguments, and the state that the object is given."""

    def __init__(self, path: str, arguments: tuple[Any, ...]) -> None:
        self.path, self.arguments, self.state = path, arguments, None


class FileSpan:
    """Bytes that stay in the file, from `start` on."""

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size = start, size


def read_pickle(file: BinaryIO, where: Path, names: Collection[str]) -> Any:
    """What a pickle holds, with its calls as `PickledCall`. It may name what `names` lists, and what numpy's arrays need.

    A long list of numbers comes as an array, and bytes of a megabyte or more as their place in the file.
    """
    try:
        return _Reader(file, where, {*names, *NUMPY}).load()
    except InputError:
        raise
    except Exception as error:  # whatever Python makes of bytes that somebody else wrote
        reason = (str(error) or type(error).__name__).splitlines()[0][:120]
        raise InputError(
            f"{where} holds no whole pickle ({type(error).__name__}: {reason}): copy it again, or say which format it is"
        ) from None


def plain(value: Any) -> Any:
    """A value with numpy's arrays and scalars in place of the calls that make them; other calls stay."""
    if not isinstance(value, PickledCall):
        return value
    name = value.path.rpartition(".")[2]
    if name == "scalar" and len(value.arguments) == 2:
        dtype, data = _dtype(value.arguments[0]), value.arguments[1]
        if dtype is not None and isinstance(data, bytes) and len(data) == dtype.itemsize:
            return np.frombuffer(data, dtype)[0].item()
    if name == "_reconstruct" and isinstance(value.state, tuple) and len(value.state) == 5:
        _, shape, described, fortran, data = value.state
        dtype = _dtype(described)
        if isinstance(data, list | np.ndarray) and shape == (len(data),):
            return [plain(item) for item in data]
        if dtype is not None and isinstance(data, bytes) and isinstance(shape, tuple) and not fortran:
            count = len(data) // dtype.itemsize
            if all(type(n) is int and n >= 0 for n in shape) and _product(shape) == count:
                return np.frombuffer(data, dtype, count).reshape(shape)
    return value


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for length in shape:
        product *= length
    return product


def _dtype(value: Any) -> np.dtype[Any] | None:
    """A plain number type that a pickle describes; None for anything else."""
    match value:
        case PickledCall(path="numpy.dtype", arguments=(str(code), *_), state=(_, "<" | "|", *_)) if code in _NUMBERS:
            return np.dtype(code).newbyteorder("<")
    return None


_NUMBERS = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"}


class _Reader(pickle._Unpickler):
    """Python's own reader of pickles, with what it would look up or call taken out.

    It is the one in Python, because the one in C makes room for as many objects as a file says that it remembers.
    """

    dispatch = {code: how for code, how in pickle._Unpickler.dispatch.items() if code in _OPCODES}  # noqa: RUF012
    stack: list[Any]
    memo: dict[int, Any]
    append: Callable[[Any], None]
    read: Callable[[int], bytes]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, file: BinaryIO, where: Path, names: Collection[str]) -> None:
        super().__init__(file, encoding="ASCII")
        self._source, self._where, self._names = file, where, names
        self._remembered: dict[int, int] = {}  # by the identity of a list: where it is remembered

    def load(self) -> Any:
        try:
            return super().load()
        except KeyError as error:
            if isinstance(error.args[0], int) and error.args[0] < 256:
                self._refuse(f"the instruction {bytes((error.args[0],))!r}")
            raise

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"{self._where} is a pickle with {what}, which its format does not have and which may run code: nothing of it was run; "
            "have it written again by the framework itself"
        )

    def find_class(self, module: str, name: str) -> PickledName:
        path = f"{module}.{name}"
        if path not in self._names:
            self._refuse(f"the name {path[:120]!r}")
        return PickledName(path)

    def persistent_load(self, pid: Any) -> PickledCall:
        return PickledCall("storage", pid if isinstance(pid, tuple) else (pid,))

    def _call(self) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        if type(name) is not PickledName or type(arguments) is not tuple:
            self._refuse("a call of something that has no name")
        if name.path == "collections.OrderedDict" and not arguments:
            self.append({})
        elif name.path == "_codecs.encode" and arguments[1:] == ("latin1",) and isinstance(arguments[0], str):
            self.append(arguments[0].encode("latin1"))  # how bytes are written for Python 2
        else:
            self.append(PickledCall(name.path, arguments))

    def _build(self) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) is not PickledCall:
            self._refuse("a state of something that has none")
        self.stack[-1].state = state

    def _extend(self) -> None:
        items = self.pop_mark()
        if type(self.stack[-1]) is not list:
            self._refuse("items of something that is no list")
        self.stack[-1].extend(items)

    def _append_item(self) -> None:
        item = self.stack.pop()
        if type(self.stack[-1]) is not list:
            self._refuse("items of something that is no list")
        self.stack[-1].append(item)

    def _set_items(self) -> None:
        items = self.pop_mark()
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2 or not all(type(key) in (str, int) for key in items[::2]):
            self._refuse("keys that are neither texts nor numbers")
        target.update(zip(items[::2], map(self._packed, items[1::2]), strict=True))

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        if type(self.stack[-1]) is not dict or type(key) not in (str, int):
            self._refuse("keys that are neither texts nor numbers")
        self.stack[-1][key] = self._packed(value)

    def _packed(self, value: Any) -> Any:
        """A value, or the array of a long list of numbers, which is remembered in the list's place."""
        if type(value) is not list or len(value) < _LONG_LIST:
            return value
        kinds = set(map(type, value))
        if not kinds <= {int, float}:
            return value
        try:
            array: NDArray[Any] = np.array(value, np.int64 if kinds == {int} else np.float64)
            if kinds == {int} and array.min() >= -(1 << 31) and array.max() < 1 << 31:
                array = array.astype(np.int32)
        except OverflowError:
            return value
        if (place := self._remembered.pop(id(value), None)) is not None:
            self.memo[place] = array
        return array

    def _remember(self, place: int) -> None:
        value = self.stack[-1]
        self.memo[place] = value
        if type(value) is list:
            self._remembered[id(value)] = place

    def _large(self, size: int) -> None:
        """Bytes: in memory if they are few or stand in a frame, else as their place in the file."""
        if size < _LARGE or self._unframer.current_frame is not None:  # type: ignore[attr-defined]
            content = self.read(size)
            if len(content) < size:
                raise EOFError("it ends within bytes")
            self.append(content)
            return
        self.append(FileSpan(self._source.tell(), size))
        self._source.seek(size, 1)


def _sized(layout: str) -> Callable[[_Reader], None]:
    size = struct.calcsize(layout)
    return lambda reader: reader._large(struct.unpack(layout, reader.read(size))[0])


def _placed(layout: str) -> Callable[[_Reader], None]:
    size = struct.calcsize(layout)
    return lambda reader: reader._remember(struct.unpack(layout, reader.read(size))[0])


_OWN: dict[bytes, Callable[[_Reader], None]] = {
    pickle.REDUCE: _Reader._call,
    pickle.NEWOBJ: _Reader._call,
    pickle.BUILD: _Reader._build,
    pickle.APPEND: _Reader._append_item,
    pickle.APPENDS: _Reader._extend,
    pickle.SETITEM: _Reader._set_item,
    pickle.SETITEMS: _Reader._set_items,
    pickle.BINBYTES: _sized("<I"),
    pickle.BINBYTES8: _sized("<Q"),
    pickle.BINPUT: _placed("<B"),
    pickle.LONG_BINPUT: _placed("<I"),
    pickle.MEMOIZE: lambda reader: reader._remember(len(reader.memo)),
}
_Reader.dispatch |= {code[0]: how for code, how in _OWN.items()}  # type: ignore[misc]
