"""Blocks: what was packed is what is read, byte for byte the same every time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from radmoe.explorer.blocks import FORMAT, TYPES, pack, ragged, smallest
from unpacked import unpack

ARRAYS = st.dictionaries(
    st.text(max_size=8), st.sampled_from(TYPES).flatmap(lambda kind: arrays(f"<{kind}", st.tuples(st.integers(0, 9))))
)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20)), ARRAYS)
def test_a_block_is_read_as_it_was_packed(header: dict[str, str], values: dict[str, np.ndarray]) -> None:
    header.pop("arrays", None)
    block = pack(header, values)
    assert block == pack(header, values)
    read_header, read_arrays = unpack(block)
    assert read_header == header | {"format": FORMAT}
    assert list(read_arrays) == list(values)
    for name, array in values.items():
        assert read_arrays[name].dtype == array.dtype
        assert np.array_equal(read_arrays[name], array, equal_nan=array.dtype.kind == "f")


def test_a_type_that_no_page_reads_is_refused() -> None:
    with pytest.raises(TypeError, match=r"array x is float64: a block holds u1, u2"):
        pack({}, {"x": np.zeros(2)})


def test_whole_numbers_take_the_smallest_type_that_holds_them() -> None:
    assert [smallest(np.array([most])).dtype.name for most in (0, 255, 256, 65535, 65536)] == [
        "uint8",
        "uint8",
        "uint16",
        "uint16",
        "uint32",
    ]
    assert smallest(np.empty(0, np.int64)).dtype == np.uint8


def test_rows_of_different_lengths_are_one_array_and_where_they_begin() -> None:
    values, begins = ragged([[1, 2], [], [3]])
    assert (values.tolist(), begins.tolist()) == ([1, 2, 3], [0, 2, 2, 3])
