"""A few rows times a matrix: the same as NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from radmoe.selection.kernels.jit import jit
from radmoe.selection.kernels.simd import LANES
from radmoe_lab.inference.tile import ROWS, VECTORS, multiply_tile


@jit
def multiply(A, places, first, rows, B, start, depth, C, at, vectors):  # type: ignore[no-untyped-def]
    multiply_tile(A, places, first, rows, B, start, B.shape[1], depth, C, at, C.shape[1], vectors)


@pytest.mark.slow
@pytest.mark.parametrize("rows", range(1, ROWS + 1))
@pytest.mark.parametrize("vectors", range(1, VECTORS + 1))
@pytest.mark.parametrize("depth", [1, 2, 33])
def test_a_tile_is_the_product_of_rows_that_lie_anywhere(rows: int, vectors: int, depth: int) -> None:
    rng = np.random.default_rng(rows)
    A = rng.normal(size=(20, 40)).astype(np.float32)
    B = rng.normal(size=(depth + 2, LANES * VECTORS + 5)).astype(np.float32)
    C = np.full((ROWS, LANES * VECTORS + 9), 7, np.float32)
    chosen = rng.integers(0, 20, ROWS + 1)
    start, columns = 2 * B.shape[1] + 3, LANES * vectors
    multiply(A, chosen * 40, 1, rows, B, start, depth, C, 4, vectors)
    expected = A[chosen[1 : rows + 1], :depth] @ B[2:, 3 : 3 + columns]
    assert np.allclose(C[:rows, 4 : 4 + columns], expected, atol=1e-4)
    C[:rows, 4 : 4 + columns] = 7
    assert (C == 7).all()  # nothing else is written
