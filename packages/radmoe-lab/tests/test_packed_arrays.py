"""Archives that claim more than they hold are refused before memory is taken for them."""

from __future__ import annotations

import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radmoe.errors import InputError
from radmoe_lab.agent.records import read_trajectories
from radmoe_lab.packed_arrays import unpack_arrays


def npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def archive(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        for name, content in members:
            made.writestr(f"{name}.npy", content)
    return file.getvalue()


def overlapping() -> bytes:
    """Ten entries of a zip's directory that all point at one member."""
    one = archive(("a", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1000000,), }", bytes(1_000_000))))
    at = one.index(b"PK\x01\x02")
    end = one.index(b"PK\x05\x06")
    entries = [one[at:end].replace(b"a.npy", b"%d.npy" % i) for i in range(10)]
    directory = b"".join(entries)
    tail = bytearray(one[end:])
    tail[8:10] = tail[10:12] = (10).to_bytes(2, "little")
    tail[12:16] = len(directory).to_bytes(4, "little")
    return one[:at] + directory + bytes(tail)


GIGABYTES = "{'descr': '|u1', 'fortran_order': False, 'shape': (6000000000,), }"
CLAIMS: dict[str, Callable[[], bytes]] = {
    "deflated": lambda: archive(("tasks", npy(GIGABYTES, bytes(64 << 20))), compression=zipfile.ZIP_DEFLATED),
    "a header of 6 GB": lambda: archive(("tasks", npy(GIGABYTES))),
    "a negative shape": lambda: archive(("tasks", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (-1,), }"))),
    "items of no bytes": lambda: archive(("tasks", npy("{'descr': '|V0', 'fortran_order': False, 'shape': (10,), }"))),
    "objects": lambda: archive(("tasks", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", bytes(8)))),
    "a header that is code": lambda: archive(("tasks", npy("__import__('os').abort()"))),
    "overlapping members": overlapping,
    "one name twice": lambda: archive(
        *[("a", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (), }", b"1"))] * 2
    ),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", CLAIMS)
def test_an_archive_that_claims_more_than_it_holds_is_refused(name: str, tmp_path: Path) -> None:
    data = lzma.compress(CLAIMS[name]())
    with pytest.raises(ValueError, match=r"array|malformed node"):
        unpack_arrays(data)
    (tmp_path / "x.npz.xz").write_bytes(data)
    with pytest.raises(InputError, match="holds no trajectories that can be read") as error:
        read_trajectories(tmp_path / "x.npz.xz")
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_an_xz_stream_is_not_unpacked_beyond_64_times_its_size() -> None:
    bomb = lzma.compress(bytes(200 << 20))
    assert len(bomb) < 1 << 20
    with pytest.raises(ValueError, match="too large for its size on disk"):
        unpack_arrays(bomb)


def test_what_numpy_saves_is_unpacked() -> None:
    arrays: dict[str, Any] = {
        "empty": np.zeros((0, 3), np.uint16),
        "one": np.float32(0.5),
        "flat": np.arange(7, dtype=np.int64),
        "columns": np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
        "with/slash": np.array([True, False]),
    }
    file = io.BytesIO()
    np.savez(file, **arrays)
    after = unpack_arrays(lzma.compress(file.getvalue()))
    assert list(after) == list(arrays)
    assert all(
        np.array_equal(after[name], array) and after[name].dtype == array.dtype for name, array in arrays.items()
    )
