"""Inside the algebra process: whether two LaTeX expressions are equal, by math-verify.

It is run by path (`python -P verifier.py SECONDS BYTES`), and killed from outside whenever it takes too long. A request
is one line of JSON: `[a]` asks whether `a` can be read at all, `[a, b]` whether the two are equal. An answer is one byte.

math-verify alone is too generous: it takes 10^{-20} for 2*10^{-20} and E for e, and it is not symmetric. So it must agree
in both directions, and before that both expressions must have the same value to 30 digits when letters stand for
fixed numbers.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import zlib
from functools import lru_cache
from typing import Any

READY, MISSING, YES, NO = b"r", b"m", b"1", b"0"
_DIGITS = 30


@lru_cache(maxsize=4096)
def read(latex: str) -> tuple[Any, list[Any] | None]:
    """An expression, and its values with fixed numbers for letters: one, or one per cell of a matrix. None without any."""
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from sympy import I, MatrixBase

    config = ConversionConfig(lowercase_symbols=False)
    expression = latex2sympy(
        latex, is_real=True, convert_degrees=True, normalization_config=None, conversion_config=config
    )
    expression = expression.subs({symbol: I for symbol in expression.free_symbols if symbol.name == "i"})
    cells = list(expression.flat()) if isinstance(expression, MatrixBase) else [expression]
    values = [_value(cell) for cell in cells]
    return expression, None if None in values else values


def _value(cell: Any) -> Any:
    from sympy import Rational

    stand_in = {s: Rational(1 + zlib.crc32(s.name.encode()) % 1009, 97) for s in cell.free_symbols}
    value = cell.subs(stand_in).doit().evalf(_DIGITS + 20)
    return value if value.is_number and value.is_finite else None


def same(a: str, b: str) -> bool:
    """Whether math-verify holds two expressions equal in both directions, and their values do not deny it."""
    from math_verify import verify

    (x, left), (y, right) = read(a), read(b)
    if left is not None and right is not None:
        if len(left) != len(right):
            return False
        if any(abs(p - q) > max(abs(p), abs(q)) * 10**-_DIGITS for p, q in zip(left, right, strict=True)):
            return False
    return all(verify(one, other, timeout_seconds=None) for one, other in ((x, y), (y, x)))


def _answer(request: list[str]) -> bytes:
    try:
        return YES if (same(*request) if len(request) == 2 else read(*request)) else NO
    except Exception:  # the parser may raise anything; what it cannot read equals nothing
        return NO


def serve(seconds: float, memory: int) -> None:
    """Answer requests until the grader closes its end. An alarm ends the process if the grader is gone."""
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print must not be taken for an answer
    try:
        import math_verify  # noqa: F401
    except ImportError:
        os.write(out, MISSING)
        return
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    os.write(out, READY)
    for line in sys.stdin:
        if hasattr(signal, "alarm"):
            signal.alarm(math.ceil(seconds) + 1)
        answer = _answer(json.loads(line))
        if hasattr(signal, "alarm"):
            signal.alarm(0)
        os.write(out, answer)


if __name__ == "__main__":
    serve(float(sys.argv[1]), int(sys.argv[2]))
