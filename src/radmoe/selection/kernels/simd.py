"""Four vector operations that numba's own loops do not reach, written in LLVM for the kernels.

numba stops at 256-bit vectors and cannot keep a row of running sums in registers. The code here is
portable LLVM: on machines with vectors narrower than 512 bits it is split, and gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

BLOCK = 64  # features per mask word, and rollouts per panel: a transposed panel is 16 KiB, half of L1
LANES = 16  # float32 per 512-bit vector
SQUARE = 8  # side of the square transposed in registers
LARGEST = 2.0**120  # 64 entries up to this cannot overflow a float32 block sum

_I1, _I32, _I64, _F32, _F64 = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()


def write_llvm(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function that writes its own LLVM."""
    return cast(Callable[..., Any], intrinsic(function))


def int64(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)


def vector_at(context: Any, builder: Any, array_type: Any, array: Any, offset: Any, element: Any, lanes: int) -> Any:
    """Pointer to `lanes` elements of a C-order array, from a flat offset on."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), ir.VectorType(element, lanes).as_pointer())


@write_llvm
def masks_of(_: Any, Z: Any, start: Any) -> Any:
    """Two masks of Z.flat[start : start + BLOCK], one bit per entry.

    The first marks the entries that are not zero, the second those that are no number in [0, LARGEST].
    """
    signature = types.UniTuple(types.uint64, 2)(Z, types.int64)  # type: ignore[no-untyped-call]

    def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.load(vector_at(context, builder, signature.args[0], args[0], args[1], _I32, BLOCK), align=4)

        def splat(value: int) -> ir.Constant:
            return ir.Constant(bits.type, [value] * BLOCK)

        nonzero = builder.icmp_unsigned("!=", builder.and_(bits, splat(0x7FFFFFFF)), splat(0))
        # Floats are ordered as their bits are. Subtracting one makes zero a large integer, as negatives and NaN are.
        limit = int(np.float32(LARGEST).view(np.uint32))
        usable = builder.icmp_unsigned("<", builder.sub(bits, splat(1)), splat(limit))
        nonzero, usable = builder.bitcast(nonzero, _I64), builder.bitcast(usable, _I64)
        return context.make_tuple(builder, signature.return_type, [nonzero, builder.xor(nonzero, usable)])

    return signature, write


@write_llvm
def transpose(_: Any, Z: Any, start: Any, stride: Any, last: Any, panel: Any, out: Any) -> Any:
    """Transpose SQUARE rows of Z, `stride` apart, into rows of `panel`, BLOCK apart; rows past `last` repeat it."""
    signature = types.void(Z, types.int64, types.int64, types.int64, panel, types.int64)

    def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        z, start, stride, last, panel, out = args
        rows = []
        for k in range(SQUARE):
            row = builder.select(builder.icmp_signed("<", int64(k), last), int64(k), last)
            offset = builder.add(start, builder.mul(row, stride))
            source = vector_at(context, builder, signature.args[0], z, offset, _F32, SQUARE)
            rows.append(builder.load(source, align=4))
        for step in (1, 2, 4):  # swap off-diagonal squares of side 1, then 2, then 4
            order = [[j + (SQUARE - step if j & step else 0) for j in range(SQUARE)]]
            order.append([j + (SQUARE if j & step else step) for j in range(SQUARE)])
            low, high = (ir.Constant(ir.VectorType(_I32, SQUARE), o) for o in order)
            for k in range(SQUARE):
                if not k & step:
                    pair = rows[k], rows[k + step]
                    rows[k], rows[k + step] = (builder.shuffle_vector(*pair, o) for o in (low, high))
        for k, row in enumerate(rows):
            offset = builder.add(out, int64(k * BLOCK))
            target = vector_at(context, builder, signature.args[4], panel, offset, _F32, SQUARE)
            builder.store(row, target, align=4)
        return context.get_dummy_value()

    return signature, write


@write_llvm
def add_minima(_: Any, panels: Any, own: Any, other: Any, mask: Any, sums: Any, out: Any, width: Any) -> Any:
    """sums.flat[out + j] += sum over set bits e of min(panels[own + 64 e], panels[other + 64 e + j]), j < 16 width.

    The mask must not be empty. One loop is written per width, so that its sums live in registers.
    """
    signature = types.void(panels, types.int64, types.int64, types.uint64, sums, types.int64, types.int64)

    def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        panels, own, other, mask, sums, out, width = args
        vector = ir.VectorType(_F32, LANES)
        nothing, broadcast = (
            ir.Constant(ir.VectorType(_F32, 1), ir.Undefined),
            ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES),
        )
        halves = [builder.and_(mask, int64(half)) for half in (0xFFFFFFFF, 0xFFFFFFFF << 32)]
        done = builder.append_basic_block()
        switch = builder.switch(width, done)
        for vectors in range(1, BLOCK // LANES + 1):
            entry, loop, leave = (builder.append_basic_block() for _ in range(3))
            switch.add_case(int64(vectors), entry)
            builder.position_at_end(entry)
            builder.branch(loop)
            builder.position_at_end(loop)
            lefts = [builder.phi(_I64) for _ in halves]
            totals = [[builder.phi(vector) for _ in range(vectors)] for _ in halves]
            updated: list[list[Any]] = []
            more = int64(0)
            for half, left, total in zip(halves, lefts, totals, strict=True):
                feature = builder.mul(builder.cttz(left, ir.Constant(_I1, 0)), int64(BLOCK))  # 64 when none is left
                source = vector_at(context, builder, signature.args[0], panels, builder.add(own, feature), _F32, 1)
                value = builder.shuffle_vector(builder.load(source, align=4), nothing, broadcast)
                updated.append([])
                for v, before in enumerate(total):
                    offset = builder.add(builder.add(other, feature), int64(v * LANES))
                    source = vector_at(context, builder, signature.args[0], panels, offset, _F32, LANES)
                    column = builder.load(source, align=4)
                    least = builder.select(builder.fcmp_ordered("<", value, column), value, column)
                    updated[-1].append(builder.fadd(before, least))
                    before.add_incoming(ir.Constant(vector, [0.0] * LANES), entry)
                    before.add_incoming(updated[-1][v], loop)
                rest = builder.and_(left, builder.sub(left, int64(1)))
                left.add_incoming(half, entry)
                left.add_incoming(rest, loop)
                more = builder.or_(more, rest)
            builder.cbranch(builder.icmp_unsigned("!=", more, int64(0)), loop, leave)
            builder.position_at_end(leave)
            for v, (low, high) in enumerate(zip(*updated, strict=True)):
                block_sum = builder.fpext(builder.fadd(low, high), ir.VectorType(_F64, LANES))
                offset = builder.add(out, int64(v * LANES))
                target = vector_at(context, builder, signature.args[4], sums, offset, _F64, LANES)
                builder.store(builder.fadd(builder.load(target, align=8), block_sum), target, align=8)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, write


@write_llvm
def popcount(_: Any, word: Any) -> Any:
    """The number of set bits in a 64-bit word."""

    def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), write
