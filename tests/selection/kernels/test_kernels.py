"""Similarity and density against plain NumPy, and the bits the selector's ties rest on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radmoe.errors import InputError, KernelError
from radmoe.selection.kernels import (
    binary_jaccard,
    binary_jaccard_many,
    knn,
    knn_density,
    weighted_jaccard,
    weighted_jaccard_many,
)
from radmoe.selection.kernels import jaccard as kernels
from radmoe.selection.kernels.reference import reference_weighted_jaccard
from reference_kernels import reference_binary_jaccard, reference_knn_density

TOLERANCE = 1e-5  # the kernel's contract; its docstring derives 8e-6
examples = settings(deadline=None, max_examples=60)  # the first example may compile


def random_sparse(rng, rows, features):
    return (rng.random((rows, features)) * (rng.random((rows, features)) < rng.random())).astype(np.float32)


def route_like(rng, rows, features):
    """Blocks that sum to 1 per layer of 8 experts."""
    layers = -(-features // 8)
    Z = rng.random((rows, layers, 8)) ** 6 + 1e-9
    return (Z / Z.sum(axis=-1, keepdims=True)).reshape(rows, -1).astype(np.float32)


def few_values(rng, rows, features):
    return rng.integers(0, 3, (rows, features)).astype(np.float32) / 4


def duplicated(rng, rows, features):
    return random_sparse(rng, max(1, rows // 3), features)[rng.integers(0, max(1, rows // 3), rows)]


def all_equal(rng, rows, features):
    return np.full((rows, features), rng.random(), np.float32)


def with_zero_rows(rng, rows, features):
    return random_sparse(rng, rows, features) * (rng.random((rows, 1)) < 0.5).astype(np.float32)


def wild_scales(rng, rows, features):
    return random_sparse(rng, rows, features) * (10.0 ** rng.integers(-30, 30, (rows, 1))).astype(np.float32)


def wild_entries(rng, rows, features):
    return (10.0 ** rng.uniform(-44, 38, (rows, features))).astype(np.float32)


def one_huge_entry(rng, rows, features):
    Z = random_sparse(rng, rows, features)
    Z[rng.integers(rows), rng.integers(features)] = np.finfo(np.float32).max
    return Z


def near_the_largest(rng, rows, features):
    """Sums of these overflow float32."""
    return random_sparse(rng, rows, features) * np.float32(2.0**127)


def absorbed_by_a_leading_entry(rng, rows, features):
    """A leading 1 followed by terms of about half a float32 ulp: sequential summation at its worst."""
    Z = (2.0**-24 * (1 + 1e-3 * rng.integers(-1, 2, (rows, features)))).astype(np.float32)
    Z[:, ::64] = 1
    return Z


MAKERS = (
    random_sparse,
    route_like,
    few_values,
    duplicated,
    all_equal,
    with_zero_rows,
    wild_scales,
    wild_entries,
    one_huge_entry,
    near_the_largest,
    absorbed_by_a_leading_entry,
)


@st.composite
def matrices(draw, makers=MAKERS):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = draw(st.one_of(st.integers(1, 20), st.integers(60, 70), st.integers(125, 132)))
    features = draw(st.one_of(st.integers(1, 20), st.integers(60, 70), st.integers(120, 300)))
    return draw(st.sampled_from(makers))(rng, rows, features)


ORDINARY = tuple(maker for maker in MAKERS if maker not in (wild_entries, one_huge_entry))


@examples
@given(matrices())
def test_weighted_equals_reference(Z):
    S = weighted_jaccard(Z)
    assert S.dtype == np.float32
    np.testing.assert_allclose(S, reference_weighted_jaccard(Z), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 64), (16, 65), (17, 63), (64, 128), (65, 1), (130, 200)])
def test_every_kind_of_matrix_at_every_edge_of_the_blocks(maker, shape):
    Z = maker(np.random.default_rng(shape), *shape)
    np.testing.assert_allclose(weighted_jaccard(Z), reference_weighted_jaccard(Z), rtol=0, atol=TOLERANCE)


def test_paper_sized_matrix_is_exact_to_float32_rounding():
    Z = route_like(np.random.default_rng(7), 64, 48 * 128)
    np.testing.assert_allclose(weighted_jaccard(Z), reference_weighted_jaccard(Z), rtol=0, atol=2e-7)


def test_value_worked_by_hand():
    S = weighted_jaccard([[1, 0, 2], [0.5, 1, 2], [0, 3, 0]])  # minima 2.5, 0, 1; maxima 4, 6, 5.5
    np.testing.assert_array_equal(S, np.float32([[1, 2.5 / 4, 0], [2.5 / 4, 1, 1 / 5.5], [0, 1 / 5.5, 1]]))


@examples
@given(matrices())
def test_similarity_is_symmetric_within_bounds_and_one_on_the_diagonal(Z):
    S = weighted_jaccard(Z)
    np.testing.assert_array_equal(S, S.T)
    np.testing.assert_array_equal(np.diag(S), 1)
    assert S.min() >= 0
    assert S.max() <= 1


@examples
@given(matrices(makers=(random_sparse, route_like, few_values, with_zero_rows)), st.integers(-90, 90))
def test_a_common_power_of_two_changes_no_bit(Z, exponent):
    np.testing.assert_array_equal(weighted_jaccard(np.ldexp(Z, exponent)), weighted_jaccard(Z))


@examples
@given(matrices(), st.randoms(use_true_random=False))
def test_permuting_rows_permutes_the_bits(Z, random):
    order = random.sample(range(len(Z)), len(Z))
    np.testing.assert_array_equal(weighted_jaccard(Z[order]), weighted_jaccard(Z)[np.ix_(order, order)])


@examples
@given(matrices(), st.integers(1, 12), st.data())
def test_duplicates_get_identical_similarities_and_density(Z, k, data):
    i = data.draw(st.integers(0, len(Z) - 1))
    at = data.draw(st.integers(0, len(Z)))
    Z = np.insert(Z, at, Z[i], axis=0)
    twin = i + (at <= i)
    S = weighted_jaccard(Z)
    assert S[twin, at] == 1
    np.testing.assert_array_equal(S[twin], S[at])
    density = knn_density(S, k)
    assert density[twin] == density[at]


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("kernel", [weighted_jaccard, binary_jaccard])
@examples
@given(Z=matrices())
def test_threads_change_no_bit(kernel, threads, Z):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "THREAD_WORK", 1)  # small matrices are split too
        np.testing.assert_array_equal(kernel(Z, threads=threads), kernel(Z))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("kernel", [weighted_jaccard, binary_jaccard])
def test_batch_equals_one_by_one(kernel, threads):
    rng = np.random.default_rng(3)
    Z = np.stack([random_sparse(rng, 19, 77) for _ in range(4)])
    S = kernel(Z, threads=threads)
    assert S.shape == (4, 19, 19)
    for p in range(4):
        np.testing.assert_array_equal(S[p], kernel(Z[p]))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    ("many", "kernel"), [(weighted_jaccard_many, weighted_jaccard), (binary_jaccard_many, binary_jaccard)]
)
def test_problems_of_any_height_come_back_in_order(many, kernel, threads):
    rng = np.random.default_rng(4)
    Zs = [random_sparse(rng, rows, 90) for rows in (5, 0, 70, 1, 16)]
    for Z, S in zip(Zs, many(iter(Zs), threads=threads), strict=True):
        np.testing.assert_array_equal(S, kernel(Z))


@examples
@given(matrices())
def test_binary_equals_reference_and_weighted_on_indicators(Z):
    S = binary_jaccard(Z)
    np.testing.assert_array_equal(S, reference_binary_jaccard(Z))
    np.testing.assert_array_equal(S, weighted_jaccard(Z != 0))


def test_empty_sets_are_identical_to_each_other_and_disjoint_from_the_rest():
    Z = np.float32([[0, 0], [0, 0], [1, 0]])
    expected = [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    np.testing.assert_array_equal(weighted_jaccard(Z), expected)
    np.testing.assert_array_equal(binary_jaccard(Z), expected)


@pytest.mark.parametrize("kernel", [weighted_jaccard, binary_jaccard])
def test_degenerate_shapes(kernel):
    assert kernel(np.empty((0, 7))).shape == (0, 0)
    assert kernel(np.empty((0, 3, 7))).shape == (0, 3, 3)
    assert kernel(np.empty((2, 0, 7))).shape == (2, 0, 0)
    np.testing.assert_array_equal(kernel(np.empty((2, 0))), np.ones((2, 2)))
    np.testing.assert_array_equal(kernel([[3.0]]), [[1]])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "f2", ">f4", "f4", "f8", "g"])
def test_any_real_dtype_and_layout(dtype):
    Z = few_values(np.random.default_rng(5), 9, 70) * 4
    expected, indicators = weighted_jaccard(Z), binary_jaccard(Z)
    if dtype == "?":
        expected = indicators
    for array in (Z.astype(dtype), np.asfortranarray(Z.astype(dtype)), np.repeat(Z.astype(dtype), 2, axis=1)[:, ::2]):
        array.flags.writeable = False
        np.testing.assert_array_equal(weighted_jaccard(array), expected)
        np.testing.assert_array_equal(binary_jaccard(array), indicators)


@pytest.mark.parametrize("scale", [1e-300, 1e-42, 1e42, 1e300])
def test_float64_beyond_the_range_of_float32(scale):
    Z = few_values(np.random.default_rng(6), 9, 70).astype(np.float64)
    np.testing.assert_allclose(weighted_jaccard(Z * scale), weighted_jaccard(Z), rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal(binary_jaccard(Z * scale), binary_jaccard(Z))


def test_float64_rows_too_far_apart_for_float32_are_still_told_apart():
    S = weighted_jaccard([[1e50, 1.0], [1e-50, 1e-50], [1e-50, 0]])
    np.testing.assert_allclose(S, [[1, 0, 0], [0, 1, 0.5], [0, 0.5, 1]], rtol=0, atol=TOLERANCE)


def test_input_is_left_alone_and_minus_zero_is_zero():
    Z = np.float32([[0.0, 1.0, -0.0], [-0.0, 1.0, 0.0]])
    before = Z.tobytes()
    np.testing.assert_array_equal(weighted_jaccard(Z), np.ones((2, 2)))
    np.testing.assert_array_equal(binary_jaccard(Z), np.ones((2, 2)))
    assert Z.tobytes() == before


@pytest.mark.parametrize(
    ("value", "name"), [(np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite"), (-1e-9, "negative")]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [weighted_jaccard, binary_jaccard])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (3, 63), (16, 64), (16, 69)])
def test_invalid_entry_is_named_with_its_row_and_column(kernel, dtype, value, name, row, column):
    Z = np.ones((17, 70), dtype)
    Z[row, column] = value
    with pytest.raises(KernelError, match=rf"{name} at \[row, column\] = \[{row}, {column}\]$"):
        kernel(Z)
    with pytest.raises(KernelError, match=rf"^problem 1: .*\[{row}, {column}\]$"):
        kernel(np.stack([np.ones_like(Z), Z]), threads=2)


def test_negative_integer_is_refused():
    with pytest.raises(KernelError, match=r"negative at \[row, column\] = \[1, 0\]"):
        weighted_jaccard([[1, 2], [-1, 2]])


@pytest.mark.parametrize("kernel", [weighted_jaccard, binary_jaccard])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones(3), r"got shape \(3,\)"),
        (np.float32(1), r"got shape \(\)"),
        (np.ones((1, 1, 1, 1)), r"got shape \(1, 1, 1, 1\)"),
        (np.ones((2, 2), complex), "dtype complex128"),
        ([["a"]], "dtype <U1"),
    ],
)
def test_what_is_no_route_matrix_is_refused(kernel, bad, message):
    with pytest.raises(KernelError, match=message):
        kernel(bad)


@pytest.mark.parametrize("many", [weighted_jaccard_many, binary_jaccard_many])
def test_ragged_problems_are_matrices(many):
    with pytest.raises(KernelError, match=r"got shape \(1, 1, 1\)"):
        many([np.ones((1, 1, 1))])
    assert many([]) == []


@pytest.mark.parametrize("threads", [0, -1])
def test_at_least_one_thread(threads):
    for call in (weighted_jaccard, binary_jaccard, weighted_jaccard_many, binary_jaccard_many):
        with pytest.raises(KernelError, match=f"threads is {threads}"):
            call(np.ones((2, 2, 2)) if "many" in call.__name__ else np.ones((2, 2)), threads=threads)


@examples
@given(matrices(makers=ORDINARY), st.integers(1, 140))
def test_density_equals_reference_and_k_is_capped(Z, k):
    S = weighted_jaccard(Z)
    density = knn_density(S, k)
    assert density.dtype == np.float64
    np.testing.assert_allclose(density, reference_knn_density(S, k), rtol=1e-12, atol=0)
    np.testing.assert_array_equal(knn_density(S, 10**6), knn_density(S, max(1, len(S) - 1)))


def test_density_leaves_self_out_whatever_the_diagonal_says():
    S = np.float32([[9, 0.25, 0.5], [0.25, 9, 0.125], [0.5, 0.125, 9]])
    np.testing.assert_array_equal(knn_density(S, 1), [0.5, 0.25, 0.5])
    np.testing.assert_array_equal(knn_density(S, 2), [0.75, 0.375, 0.625])
    np.testing.assert_array_equal(knn_density([[1.0]], 3), [0.0])
    assert knn_density(np.empty((0, 0)), 3).shape == (0,)


@examples
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_equal_neighbour_values_in_any_order_give_equal_density(seed, k):
    rng = np.random.default_rng(seed)
    values = rng.random(12)
    S = np.array([np.insert(rng.permutation(values), i, 1.0) for i in range(13)])
    assert len(set(knn_density(S, k))) == 1


@examples
@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 40))
def test_neighbours_are_sorted_by_similarity_then_index(seed, rows, k):
    S = np.random.default_rng(seed).integers(0, 4, (rows, rows)) / 4
    found = knn(S, k)
    assert found.dtype == np.int64
    assert found.shape == (rows, min(k, rows - 1))
    for i in range(rows):
        expected = sorted((j for j in range(rows) if j != i), key=lambda j: (-S[i, j], j))
        assert found[i].tolist() == expected[:k]


@pytest.mark.parametrize("function", [knn, knn_density])
def test_bad_similarity_or_k_is_refused(function):
    for k in (0, -2):
        with pytest.raises(KernelError, match=f"k is {k}"):
            function(np.eye(3), k)
    for shape in ((3,), (2, 3), (2, 2, 2)):
        with pytest.raises(KernelError, match="square"):
            function(np.ones(shape), 1)
    with pytest.raises(InputError, match=r"NaN at \[row, column\] = \[1, 0\]"):
        function([[1, 1], [np.nan, 1]], 1)
