"""Routing as servers encode it: what was packed comes out, and whatever else is one line."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.engines.checkpoint import RouterLayout
from radmoe.engines.http.answers import moe_layers, stock_rows, unpack_int32, unpack_npy, unrouted
from radmoe.errors import EngineError, RadmoeError
from radmoe.types import RouterShape


def model(layers: int, sparse: list[int], experts: int = 8, top_k: int = 2) -> RouterLayout:
    return RouterLayout(RouterShape(len(sparse), experts, top_k), layers, tuple(sparse), "model")


def routing(rows: int, layers: int, top_k: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.argsort(rng.random((rows, layers, 8)), -1)[..., :top_k]


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


SHAPES = {
    "rows": st.integers(1, 9),
    "layers": st.integers(1, 4),
    "top_k": st.integers(1, 3),
    "seed": st.integers(0, 99),
}


@given(**SHAPES, dtype=st.sampled_from(["u1", "u2", "i4"]))
def test_what_was_packed_comes_out(rows: int, layers: int, top_k: int, seed: int, dtype: str) -> None:
    ids = routing(rows, layers, top_k, seed)
    assert np.array_equal(unpack_npy(base64.b64encode(npy(ids.astype(dtype))).decode()), ids)
    text = base64.b64encode(ids.astype("<i4").tobytes()).decode()
    assert np.array_equal(unpack_int32(text, rows, model(layers, list(range(layers)), top_k=top_k)), ids)


@settings(max_examples=300)
@given(cut=st.integers(0, 200), changed=st.lists(st.tuples(st.integers(0, 199), st.integers(0, 255)), max_size=3))
def test_a_damaged_npy_is_one_line_or_an_array(cut: int, changed: list[tuple[int, int]]) -> None:
    data = bytearray(npy(routing(3, 2, 2).astype("u1"))[: 200 - cut])
    for at, value in changed:
        if at < len(data):
            data[at] = value
    said = ""
    try:
        assert unpack_npy(base64.b64encode(data).decode()).ndim == 3
    except EngineError as error:
        said = str(error)
    assert len(said.splitlines()) <= 1


@pytest.mark.slow
@given(st.text(max_size=40))
def test_what_is_no_base64_is_one_line(text: str) -> None:
    for unpack in (unpack_npy, lambda said: unpack_int32(said, 3, model(2, [0, 1]))):
        with pytest.raises(RadmoeError) as caught:
            unpack(text)
        assert len(str(caught.value).splitlines()) == 1


def test_an_object_array_is_not_unpickled() -> None:
    with pytest.raises(EngineError, match=r"no base64 \.npy"):
        unpack_npy(base64.b64encode(npy(np.array([[[print]]], object))).decode())


@given(**SHAPES, tokens=st.integers(1, 9), dense=st.integers(0, 2))
def test_the_last_rows_are_the_tokens(rows: int, layers: int, top_k: int, seed: int, tokens: int, dense: int) -> None:
    """`rows` before R(0), `tokens` from it on; dense layers come first, as zeros or not at all."""
    ids = routing(rows - 1 + tokens, layers, top_k, seed)
    local = model(layers + dense, list(range(dense, layers + dense)), top_k=top_k)
    placed = np.pad(ids, ((0, 0), (dense, 0), (0, 0)))
    for raw in (ids, placed):
        assert np.array_equal(stock_rows(raw, rows, tokens, local, "advice"), ids[rows - 1 :])
        assert np.array_equal(stock_rows(raw[rows - 1 :], rows, tokens, local, "", first=rows - 1), ids[rows - 1 :])
    with pytest.raises(EngineError, match="rows of routing for a prompt of"):
        stock_rows(ids[1:], rows, tokens, local, "advice")


def test_layers_of_another_model_are_refused() -> None:
    with pytest.raises(
        EngineError, match="the server returns 3 layers, top-2; model has 4 layers, 2 of them with experts"
    ):
        moe_layers(routing(2, 3, 2), model(4, [1, 3]))


def test_rows_without_routing_are_told_from_routing() -> None:
    ids = routing(4, 3, 3)
    assert not unrouted(ids).any()
    ids[1, 2] = 0
    ids[3, 0, 2] = ids[3, 0, 0]
    assert np.argwhere(unrouted(ids)).tolist() == [[1, 2], [3, 0]]
    with pytest.raises(EngineError, match=r"2 of 12 \(row, layer\) pairs have no routing: change the kernel"):
        stock_rows(ids, 1, 4, model(3, [0, 1, 2], top_k=3), "change the kernel")
