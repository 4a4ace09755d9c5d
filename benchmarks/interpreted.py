"""OpenAI's Triton kernels as on an H100 or H200, in Triton's interpreter on a CPU (`benchmarks.vllm_mxfp4 --interpret WHEEL`).

The kernels' own Python runs, block by block, on the layout that Hopper's kernels want of MXFP4 weights. What the interpreter lacks is
given to it here: a target, bfloat16 (it computes on the bits), the two pieces of PTX that unpack MXFP4, and kernels of which arguments are fixed.
"""

from __future__ import annotations

import os
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

WARPS = 8  # of vLLM's layout for Hopper, and of the kernel


def values(bits: np.ndarray) -> np.ndarray:
    """What bfloat16 bits stand for, in float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(data: np.ndarray) -> np.ndarray:
    """The bits of float32 data rounded to bfloat16."""
    made = torch.from_numpy(np.ascontiguousarray(data, np.float32)).to(torch.bfloat16)
    return made.view(torch.int16).numpy().view(np.uint16).reshape(data.shape)


def unpacked(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The PTX of `_unpack_fp4_to_bf16_triton`: eight values of every four bytes, as bits, the first four and the last four."""
    word = codes.reshape(-1).view(np.uint32)
    four = np.uint32(0b10000001110000001000000111000000)
    last = word << 1 & np.uint32(0b10000000000000001000000000000000)
    last |= word >> 3 & np.uint32(0b00000001100000000000000110000000)
    last |= word >> 7 & np.uint32(0b00000000010000000000000001000000)
    registers = np.stack([word & four, word << 3 & four, word << 6 & four, last], 1)
    bits = rounded(values(registers.view(np.uint16)) * np.float32(2.0**126))
    return tuple(np.ascontiguousarray(half).reshape(codes.shape) for half in np.split(bits, 2, 1))


class Specialized:
    """A kernel some of whose arguments are fixed, while others are tuples that callers give one by one."""

    def __init__(self, kernel: Any, module: Any, constants: dict[str, Any], tuples: dict[str, Any], **_: Any) -> None:
        self.kernel, self.constants, self.tuples = kernel, constants, tuples

    def __getitem__(self, grid: Any) -> Any:
        def launch(*given: Any, **named: Any) -> None:
            left, arguments = list(given), self.constants | named
            for name in self.kernel.arg_names:
                if name in self.tuples:
                    arguments[name] = tuple(left.pop(0) for _ in self.tuples[name])
                elif name not in arguments and left:
                    arguments[name] = left.pop(0)
            self.kernel[grid](**arguments)

        return launch


def install(kernels: str) -> None:
    """Have Triton interpret kernels as if for a GPU of compute capability 9.0, and vLLM take them for fit to run here.

    `kernels` is a folder with `triton_kernels`, which vLLM's CPU build lacks.
    """
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.runtime import interpreter

    warnings.filterwarnings("ignore", category=RuntimeWarning)  # of rows that a kernel computes and does not store
    triton.runtime.driver.set_active(SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32)))
    hopper: Any = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=227 << 10)
    torch.cuda.get_device_properties = lambda *_: hopper
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    tl.extra.cuda.num_warps = lambda: tl.constexpr(WARPS)
    tl.constexpr.__rmod__ = lambda self, other: other % self.value

    builder, handle = type(interpreter.interpreter_builder), interpreter.TensorHandle
    convert, call = interpreter._convert_float, interpreter.GridExecutor.__call__
    multiply, dot, masked_load = builder.create_fmul, builder.create_dot, builder.create_masked_load

    def is_bfloat16(data: Any) -> bool:
        return bool(data.dtype.scalar == tl.bfloat16)

    def converted(data: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
        if (source, target) == (tl.bfloat16, tl.float32):
            return values(data)
        if (source, target) == (tl.float32, tl.bfloat16):
            return rounded(data)
        return convert(data, source, target, rounding)

    def multiplied(self: Any, a: Any, b: Any) -> Any:
        return handle(rounded(values(a.data) * values(b.data)), tl.bfloat16) if is_bfloat16(a) else multiply(self, a, b)

    def dotted(self: Any, a: Any, b: Any, total: Any, *rest: Any) -> Any:
        a, b = (handle(values(each.data), tl.float32) if is_bfloat16(each) else each for each in (a, b))
        return dot(self, a, b, total, *rest)

    def load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        return masked_load(self, pointers, handle(mask.data.astype(bool), mask.dtype), *rest)

    def assembled(self: Any, text: str, constraints: str, inputs: list[Any], *_: Any) -> Any:
        data = np.ascontiguousarray(inputs[0].data)
        if "prmt.b32" in text:  # a scale's exponent
            outputs: tuple[np.ndarray, ...] = (data.astype(np.uint16) << 7,)
        elif "mul.bf16x2" in text:
            outputs = unpacked(data)
        else:
            raise NotImplementedError(f"this PTX is unknown here: {text}")
        return SimpleNamespace(get_result=lambda i: handle(outputs[i], tl.bfloat16))

    def data(argument: Any) -> Any:
        """The torch tensor in a tensor of triton_kernels."""
        storage = getattr(argument, "storage", None)
        return storage.data if hasattr(storage, "layout") else argument

    interpreter._convert_float = converted
    builder.create_fmul, builder.create_dot, builder.create_masked_load = multiplied, dotted, load
    builder.create_inline_asm = assembled
    interpreter.GridExecutor.__call__ = lambda self, *args, **named: call(
        self, *map(data, args), **{name: data(each) for name, each in named.items()}
    )

    import vllm.third_party
    from vllm.utils.import_utils import import_triton_kernels

    vllm.third_party.__path__.append(kernels)
    import_triton_kernels()
    import triton_kernels.matmul_ogs as products
    from triton_kernels import routing
    from triton_kernels.matmul_ogs_details.opt_flags import update_opt_flags_constraints

    sort_tokens = routing.sort_tokens
    from vllm.model_executor.layers.fused_moe.experts import gpt_oss_triton_kernels_moe as experts

    # vLLM puts a function of its own here, for numbers of experts that are no power of two; the interpreter cannot read it
    routing.sort_tokens = sort_tokens
    products.specialize = Specialized
    update_opt_flags_constraints({"split_k": 1})  # as vLLM does on Hopper
    experts.OAITritonMxfp4ExpertsMonolithic._supports_current_device = staticmethod(lambda: True)
