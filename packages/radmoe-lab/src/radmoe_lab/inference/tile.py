"""A few rows times a matrix, in registers: the inner loop of products too small for a library's.

The rows may lie anywhere, so that nothing has to be gathered first. Like `simd`, this is portable LLVM: on machines with
vectors narrower than 512 bits they are split.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types

from radmoe.selection.kernels.simd import LANES, int64, vector_at, write_llvm

ROWS = 6  # of a tile, at most
# Vectors of columns of a tile, at most: with six rows these sums fill the registers of a machine.
VECTORS = 4 if binding.get_host_cpu_features().get("avx512f") else 1

_F32, _I64 = ir.FloatType(), ir.IntType(64)
_CONTRACT = ("contract",)


@write_llvm
def multiply_tile(
    _: Any, A: Any, places: Any, first: Any, rows: Any, B: Any, start: Any, stride: Any, depth: Any, C: Any, at: Any, step: Any, vectors: Any
) -> Any:  # fmt: skip
    """C.flat[at + r step + j] = sum over k < depth of A.flat[places[first + r] + k] B.flat[start + k stride + j].

    For r < rows, which is at most ROWS, and j < LANES vectors, with at most VECTORS vectors; the arrays A, B and C are
    float32, `places` is int64, all are in C order. Depth is at least 1.
    """
    whole = types.int64
    signature = types.void(A, places, whole, whole, B, whole, whole, whole, C, whole, whole, whole)

    def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        A, places, first, rows, B, start, stride, depth, C, at, step, vectors = args
        kinds = signature.args
        offsets = context.make_array(kinds[1])(context, builder, places).data
        source = context.make_array(kinds[0])(context, builder, A).data
        shape = builder.add(builder.mul(rows, int64(VECTORS + 1)), vectors)
        done = builder.append_basic_block()
        switch = builder.switch(shape, done)
        for height in range(1, ROWS + 1):
            for width in range(1, VECTORS + 1):
                entry = builder.append_basic_block()
                switch.add_case(int64(height * (VECTORS + 1) + width), entry)
                builder.position_at_end(entry)
                left = [
                    builder.gep(source, [builder.load(builder.gep(offsets, [builder.add(first, int64(r))]))])
                    for r in range(height)
                ]
                sums = _sums(context, builder, left, (kinds[4], B), (start, stride, depth), width)
                for r in range(height):
                    for v in range(width):
                        place = builder.add(builder.add(at, builder.mul(step, int64(r))), int64(v * LANES))
                        builder.store(sums[r][v], vector_at(context, builder, kinds[8], C, place, _F32, LANES), align=4)
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, write


def _sums(
    context: Any, builder: Any, left: list[Any], right: tuple[Any, Any], walk: Any, width: int
) -> list[list[Any]]:
    """Write the loop over the depth; its sums stay in registers."""
    start, stride, depth = walk
    vector, entry = ir.VectorType(_F32, LANES), builder.block
    nothing = ir.Constant(vector, ir.Undefined)
    broadcast = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    loop, leave = builder.append_basic_block(), builder.append_basic_block()
    builder.branch(loop)
    builder.position_at_end(loop)
    k, place = builder.phi(_I64), builder.phi(_I64)
    totals = [[builder.phi(vector) for _ in range(width)] for _ in left]
    columns = [
        builder.load(vector_at(context, builder, *right, builder.add(place, int64(v * LANES)), _F32, LANES), align=4)
        for v in range(width)
    ]
    updated: list[list[Any]] = []
    for row, total in zip(left, totals, strict=True):
        value = builder.load(builder.gep(row, [k]))
        value = builder.shuffle_vector(
            builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0)), nothing, broadcast
        )
        updated.append(
            [
                builder.fadd(before, builder.fmul(value, column, flags=_CONTRACT), flags=_CONTRACT)
                for before, column in zip(total, columns, strict=True)
            ]
        )
    k_next, place_next = builder.add(k, int64(1)), builder.add(place, stride)
    builder.cbranch(builder.icmp_signed("<", k_next, depth), loop, leave)
    for phi, initial, later in ((k, int64(0), k_next), (place, start, place_next)):
        phi.add_incoming(initial, entry)
        phi.add_incoming(later, loop)
    zero = ir.Constant(vector, [0.0] * LANES)
    for total, later in zip(totals, updated, strict=True):
        for before, after in zip(total, later, strict=True):
            before.add_incoming(zero, entry)
            before.add_incoming(after, loop)
    builder.position_at_end(leave)
    return updated
