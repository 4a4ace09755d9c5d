"""Similarity between route vectors: the Weighted-Jaccard kernel (Eq. 3) and its binary counterpart.

How the fast kernel works. Only sums of minima are needed: the sum of maxima is s_i + s_j - m_ij,
and s_i is m_ii. Features are taken BLOCK at a time. A block of Z is transposed, so that rollouts
lie side by side in vectors, and a 64-bit mask says where each rollout is non-zero; rollout i then
walks its set bits only, adding min(z_i, z_j) for a vector of j at once. Much of a route matrix is
zero, and that much of the work is never done.

Why equal rollouts get equal bits. The selector breaks ties at the lowest index, so m_ij may not
depend on where i and j stand, on threads, or on the vector width. Every m_ij is added up in one
order: half a block of features in float32, the two halves, then block after block in float64. The
terms that a mask skips are exact zeros. Rounding is monotone, so m_ij <= min(s_i, s_j), and the
result lies in [0, 1] and is 1 for equal rows.

Error. A block sum is off by at most 32 * 2^-24 of itself (31 additions and one for the halves),
and a relative error e in m, s_i and s_j moves WJ by at most 2 e WJ (1 + WJ) <= 4 e < 8e-6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radmoe.errors import KernelError
from radmoe.selection.kernels.jit import jit
from radmoe.selection.kernels.reference import reference_weighted_jaccard
from radmoe.selection.kernels.simd import BLOCK, LANES, SQUARE, add_minima, masks_of, popcount, transpose

PANEL = (BLOCK + 1) * BLOCK  # the one row more holds zeros: a half without set bits left reads there
THREAD_WORK = 2**28  # every further N * N * D of this size, some milliseconds of work, is worth one more thread

Result = TypeVar("Result")
Kernel = Callable[[NDArray[Any], int], NDArray[np.float32]]


def weighted_jaccard(Z: ArrayLike, *, threads: int = 1) -> NDArray[np.float32]:
    """WJ(u, v) = sum min(u, v) / sum max(u, v) between all rows of Z (Eq. 3).

    Z [N, D] is non-negative, and float32 in C order is not copied; the result is [N, N]. A batch
    [P, N, D] gives [P, N, N]. Two zero rows are identical: their similarity is 1. Cost: N^2/2 minima
    per non-zero feature. Threads share the problems of a batch, or the rows of a single matrix.
    """
    return _all_pairs(_weighted, _real(Z, 2, 3), threads)


def binary_jaccard(B: ArrayLike, *, threads: int = 1) -> NDArray[np.float32]:
    """|u & v| / |u | v| between the sets of non-zero entries of B's rows. Shapes are those of `weighted_jaccard`.

    Rows are packed 64 features to the word. Cost: N^2/2 * D/64 popcounts.
    """
    return _all_pairs(_binary, _real(B, 2, 3), threads)


def weighted_jaccard_many(Zs: Iterable[ArrayLike], *, threads: int = 1) -> list[NDArray[np.float32]]:
    """`weighted_jaccard` of each matrix [n_p, D]; they may differ in height. Threads share the problems."""
    return _each_problem(_weighted, [_real(Z, 2) for Z in Zs], threads)


def binary_jaccard_many(Bs: Iterable[ArrayLike], *, threads: int = 1) -> list[NDArray[np.float32]]:
    """`binary_jaccard` of each matrix [n_p, D]; they may differ in height. Threads share the problems."""
    return _each_problem(_binary, [_real(B, 2) for B in Bs], threads)


# Inputs -----------------------------------------------------------------------------------------


def _real(X: ArrayLike, *dimensions: int) -> NDArray[Any]:
    array = np.asarray(X)
    if array.dtype.kind not in "biuf":
        raise KernelError(f"a route matrix holds real numbers, got dtype {array.dtype}")
    if array.ndim not in dimensions:
        raise KernelError(f"a route matrix is [N, D], and a batch of them [P, N, D]; got shape {array.shape}")
    return array


def _refuse_invalid(X: NDArray[Any]) -> None:
    if X.dtype.kind in "bu":
        return
    for what, wrong in (("NaN", np.isnan(X)), ("infinite", np.isinf(X)), ("negative", X < 0)):
        if wrong.any():
            raise KernelError(f"a route matrix must be finite and >= 0: {what} at [row, column] = {_first(wrong)}")


def _first(mask: NDArray[np.bool_]) -> list[int]:
    return [int(i) for i in np.argwhere(mask)[0]]


# Matrices and threads ---------------------------------------------------------------------------


def _all_pairs(kernel: Kernel, X: NDArray[Any], threads: int) -> NDArray[np.float32]:
    if X.ndim == 2:
        return kernel(X, threads)
    S = np.empty((len(X), X.shape[1], X.shape[1]), np.float32)
    for p, similarity in enumerate(_each_problem(kernel, X, threads)):
        S[p] = similarity
    return S


def _each_problem(
    kernel: Kernel, problems: Sequence[NDArray[Any]] | NDArray[Any], threads: int
) -> list[NDArray[np.float32]]:
    def one(p: int) -> NDArray[np.float32]:
        try:
            return kernel(problems[p], 1)
        except KernelError as error:
            raise KernelError(f"problem {p}: {error}") from None

    return _parallel(one, len(problems), threads)


def _parallel(function: Callable[[int], Result], count: int, threads: int) -> list[Result]:
    """[function(0), ..., function(count - 1)]. Compiled code releases the GIL, so plain threads run in parallel."""
    if threads < 1:
        raise KernelError(f"threads is {threads}: at least one is needed")
    if threads == 1 or count < 2:
        return [function(i) for i in range(count)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, range(count)))


def _weighted(Z: NDArray[Any], threads: int) -> NDArray[np.float32]:
    if Z.dtype.kind == "f" and Z.dtype.itemsize > 4:
        return _weighted_any_range(Z, threads)
    narrow = np.ascontiguousarray(Z, np.float32)
    tail = _tail(narrow)
    sums = np.zeros((len(Z), -(-len(Z) // BLOCK) * BLOCK))
    step = min(threads, 1 + sums.size * Z.shape[1] // THREAD_WORK)
    if any(_parallel(lambda first: _sum_minima(narrow, tail, first, step, sums), step, threads)):
        return _weighted_any_range(Z, threads)
    return cast(NDArray[np.float32], _ratios(sums))


def _weighted_any_range(Z: NDArray[Any], threads: int) -> NDArray[np.float32]:
    """Compare rows that may not fit float32. Invalid entries are refused, and a power of two scales the others.

    Where entries are too small for float32 even then, the NumPy reference computes the result in float64.
    """
    _refuse_invalid(Z)
    wide = Z.astype(np.float64)
    wide = np.ldexp(wide, -np.frexp(wide.max(initial=0.0))[1])
    if wide.min(initial=1.0, where=wide > 0) < np.finfo(np.float32).tiny:
        return reference_weighted_jaccard(wide)
    return _weighted(wide.astype(np.float32), threads)


def _binary(B: NDArray[Any], threads: int) -> NDArray[np.float32]:
    if B.dtype.kind == "f" and B.dtype.itemsize > 4:  # a tiny float64 must not become a float32 zero
        _refuse_invalid(B)
        B = B != 0
    narrow = np.ascontiguousarray(B, np.float32)
    packed = np.empty((len(B), -(-B.shape[1] // BLOCK)), np.uint64)
    if _pack(narrow, _tail(narrow), packed):
        _refuse_invalid(B)
    sums = np.zeros((len(B), len(B)))
    step = min(threads, 1 + sums.size * packed.shape[1] // THREAD_WORK)
    _parallel(lambda first: _count_common(packed, first, step, sums), step, threads)
    return cast(NDArray[np.float32], _ratios(sums))


def _tail(Z: NDArray[np.float32]) -> NDArray[np.float32]:
    """The features that whole blocks leave over, padded with zeros to one more block: [N, BLOCK]."""
    tail = np.zeros((len(Z), BLOCK), np.float32)
    left = Z.shape[1] % BLOCK
    tail[:, :left] = Z[:, Z.shape[1] - left :]
    return tail


# Compiled ---------------------------------------------------------------------------------------


@jit
def _load_block(Z: Any, start: int, stride: int, first: int, step: int, panels: Any, base: int, masks: Any) -> Any:
    """Transpose one block of features into `panels`, and fill `masks` for rows first, first + step, and so on.

    Returns a number that is not zero if an entry of these rows is invalid.
    """
    rows = len(masks)
    invalid = np.uint64(0)
    for i in range(first, rows, step):
        masks[i], wrong = masks_of(Z, start + i * stride)
        invalid |= wrong
    for i in range(0, rows, SQUARE):
        out = base + i // BLOCK * PANEL + i % BLOCK
        for e in range(0, BLOCK, SQUARE):
            transpose(Z, start + i * stride + e, stride, rows - 1 - i, panels, out + e * BLOCK)
    return invalid


@jit
def _sum_minima(Z: Any, tail: Any, first: int, step: int, sums: Any) -> Any:
    """Fill rows first, first + step, and so on of sums [N, padded N] from the diagonal on.

    Returns True if an entry of these rows is invalid.
    """
    rows, features = Z.shape
    padded = sums.shape[1]
    panels = np.zeros(padded // BLOCK * PANEL + LANES, np.float32)
    base = -(panels.ctypes.data // 4) % LANES  # a vector across two cache lines loads at half speed
    masks = np.empty(rows, np.uint64)
    invalid = np.uint64(0)
    for e in range(0, features, BLOCK):
        if e + BLOCK <= features:
            invalid |= _load_block(Z, e, features, first, step, panels, base, masks)
        else:
            invalid |= _load_block(tail, 0, BLOCK, first, step, panels, base, masks)
        for panel in range(0, rows, BLOCK):
            end = min(panel + BLOCK, -(-rows // LANES) * LANES)
            for i in range(first, min(rows, end), step):
                if masks[i]:
                    j = max(panel, i // LANES * LANES)
                    own = base + i // BLOCK * PANEL + i % BLOCK
                    other = base + panel // BLOCK * PANEL + j % BLOCK
                    add_minima(panels, own, other, masks[i], sums, i * padded + j, (end - j) // LANES)
    return invalid != 0


@jit
def _pack(B: Any, tail: Any, packed: Any) -> Any:
    """Fill packed [N, words] with one bit per feature. Returns True if an entry may be invalid."""
    features = B.shape[1]
    invalid = np.uint64(0)
    for i in range(len(B)):
        for word in range(packed.shape[1]):
            if (word + 1) * BLOCK <= features:
                packed[i, word], wrong = masks_of(B, i * features + word * BLOCK)
            else:
                packed[i, word], wrong = masks_of(tail, i * BLOCK)
            invalid |= wrong
    return invalid != 0


@jit
def _count_common(packed: Any, first: int, step: int, sums: Any) -> None:
    """Fill rows first, first + step, and so on of sums [N, N], from the diagonal on, with sizes of intersections."""
    for i in range(first, len(packed), step):
        for j in range(i, len(packed)):
            common = np.uint64(0)
            for word in range(packed.shape[1]):
                common += popcount(packed[i, word] & packed[j, word])
            sums[i, j] = common


@jit
def _ratios(sums: Any) -> Any:
    """S [N, N] from the sums of minima, which are given on the diagonal and to the right of it."""
    rows = len(sums)
    S = np.empty((rows, rows), np.float32)
    for i in range(rows):
        S[i, i] = 1
        for j in range(i + 1, rows):
            whole = sums[i, i] + sums[j, j] - sums[i, j]
            S[i, j] = S[j, i] = sums[i, j] / whole if whole > 0 else 1.0
    return S
