"""The exponential of many float32, as a polynomial that the compiler turns into vectors; relative error 2e-7."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from radmoe.selection.kernels.jit import jit


@jit
def exponentials(x: NDArray[np.float32], bits: NDArray[np.int32]) -> None:
    """Replace each x by exp(x), x being cut to [-87, 87]; `bits` is room for as many integers."""
    power = bits.view(np.float32)
    for i in range(len(x)):
        y = min(max(x[i], np.float32(-87.0)), np.float32(87.0))
        n = y * np.float32(1.4426950408889634) + np.float32(12582912.0)  # adding 1.5 * 2^23 rounds to an integer
        n = n - np.float32(12582912.0)
        bits[i] = (np.int32(n) + np.int32(127)) << np.int32(23)  # 2^n
        x[i] = y - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    for i in range(len(x)):
        r = x[i]
        p = np.float32(1.9875691500e-4)
        p = p * r + np.float32(1.3981999507e-3)
        p = p * r + np.float32(8.3334519073e-3)
        p = p * r + np.float32(4.1665795894e-2)
        p = p * r + np.float32(1.6666665459e-1)
        p = p * r + np.float32(5.0000001201e-1)
        x[i] = (p * r * r + r + np.float32(1.0)) * power[i]
