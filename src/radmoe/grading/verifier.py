"""Inside the algebra process: whether two LaTeX expressions are equal, by math-verify.

Run by path (`python -P verifier.py SECONDS BYTES`), killed from outside whenever it takes too long. A request is one
line of JSON: `[a]` asks whether `a` can be read at all, `[a, b]` whether the two are equal. An answer is one byte.

math-verify alone is too generous: it takes 10^{-20} for 2*10^{-20}, E for e, and is not symmetric. So it must agree in
both directions, and first both expressions must have the same value to 30 digits where letters stand for numbers.
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
    """An expression, and its values (of a matrix, of every cell) with fixed numbers for letters; None without any."""
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from sympy import I, MatrixBase

    config = ConversionConfig(lowercase_symbols=False)
    made = latex2sympy(latex, is_real=True, convert_degrees=True, normalization_config=None, conversion_config=config)
    made = made.subs({symbol: I for symbol in made.free_symbols if symbol.name == "i"})
    cells = list(made.flat()) if isinstance(made, MatrixBase) else [made]
    values = [_value(cell) for cell in cells]
    return made, None if None in values else values


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
    except Exception:  # a parser of anything: what it cannot read equals nothing
        return NO


def serve(seconds: float, memory: int) -> None:
    """Answer until the grader closes its end. An alarm ends the process should the grader be gone."""
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print is no answer
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
