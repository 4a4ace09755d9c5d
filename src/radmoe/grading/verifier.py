r"""The algebra process: decides whether two formulas are equal by computing their values.

It is run by path (`python -P verifier.py SECONDS BYTES`), and killed from outside whenever it takes too long. A request is
one line of JSON: ["value", a] asks whether the tree `a` (see `syntax.py`) has a value anywhere, ["same", a, b] whether two
trees are equal, and ["ratio", a, b] whether one is a constant times the other. An answer is one byte.

Formulas without letters are equal if their values agree to at least eighty digits. With letters, they must agree wherever
both are real, at points of either sign, whole and broken. A sum that cancels in all but its last twenty digits is
zero, and precision grows with the size of the numbers in between, so neither 10^{60} and 10^{60}+1 nor 10^{-60} and
0 are confused.
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

READY, MISSING, YES, NO, CONSTANT, NEGATIVE = b"r", b"m", b"1", b"0", b"+", b"-"
_DIGITS, _GUARD, _MOST_DIGITS = 100, 20, 4000
_MOST_SPREAD = 300  # in digits, at a point that counts
_POINTS = 32  # at which formulas with letters are compared

Number = Any  # mpf or mpc


class _UndefinedError(Exception):
    """A formula has no value at this point."""


class _Arithmetic:
    """Values of trees for one choice of the variables. It remembers the largest and smallest size that came up."""

    def __init__(self, point: int, digits: int) -> None:
        import mpmath

        self.mp, self.point, self.digits = mpmath.mp, point, digits
        self.mp.dps = digits
        self.most, self.least = 0, 0

    def value_or_none(self, tree: list[Any]) -> Number | None:
        try:
            return self.value(tree, {})
        except _UndefinedError:
            return None

    def value(self, tree: list[Any], counters: dict[str, Number]) -> Number:
        name, *parts = tree
        if name == "n":
            top, _, bottom = parts[0].partition("/")
            return self.sized(self.mp.mpf(top) / self.mp.mpf(bottom or 1))
        if name == "v":
            return counters[parts[0]] if parts[0] in counters else self.variable(parts[0])
        if name in ("pi", "e", "i"):
            return {"pi": +self.mp.pi, "e": +self.mp.e, "i": self.mp.mpc(0, 1)}[name]
        if name in ("sum", "prod"):
            return self.counted(tree, counters)
        if name == "det":
            return self.determinant([[self.value(cell, counters) for cell in row[1:]] for row in parts])
        arguments = [self.value(part, counters) for part in parts]
        try:
            result = self.add(arguments) if name == "+" else _OPERATIONS[name](self, *arguments)
        except (ZeroDivisionError, ValueError, OverflowError):
            raise _UndefinedError from None
        return self.sized(result)

    def sized(self, value: Number) -> Number:
        """The value, taken as real if its imaginary part is rounding error; its size is remembered."""
        mp = self.mp
        if isinstance(value, mp.mpc):
            limit = abs(value) * mp.mpf(10) ** (_GUARD - self.digits)
            real, imaginary = (mp.mpf(0) if abs(part) <= limit else part for part in (value.real, value.imag))
            value = mp.mpc(real, imaginary) if imaginary else real
        if not mp.isfinite(value):
            raise _UndefinedError
        if value:
            size = int(mp.mag(value) * 0.30103) + 1
            if abs(size) > _MOST_DIGITS:
                raise _UndefinedError
            self.most, self.least = max(self.most, size), min(self.least, size)
        return value

    def variable(self, name: str) -> Number:
        """A number that stands for a letter: the same everywhere in a point, and another one in every point."""
        drawn = zlib.crc32(f"{name} {self.point}".encode())
        size = 1 + drawn % 1009
        broken, whole = self.mp.mpf(size) / 97, self.mp.mpf(2 + size % 12)
        negative = self.point in (3, 4) or (self.point > 7 and (drawn >> 16) % 2)
        value = (broken, whole, broken / 11, whole, broken)[self.point % 5]
        return -value if negative else value

    def add(self, terms: list[Number]) -> Number:
        total = self.mp.mpf(0)
        for term in terms:
            total += term
        largest = max(abs(term) for term in terms)
        return total if abs(total) > largest * self.mp.mpf(10) ** (_GUARD - self.digits) else self.mp.mpf(0)

    def counted(self, tree: list[Any], counters: dict[str, Number]) -> Number:
        name, counter, low, high, body = tree
        first, last = self.value(low, counters), self.value(high, counters)
        if not (self.mp.isint(first) and self.mp.isint(last) and last >= first - 1):
            raise _UndefinedError
        total = self.mp.mpf(name == "prod")
        for k in range(int(first), int(last) + 1):
            term = self.value(body, counters | {counter: self.mp.mpf(k)})
            total = self.sized(total * term if name == "prod" else self.add([total, term]))
        return total

    def determinant(self, rows: list[list[Number]]) -> Number:
        if len(rows) == 1:
            return rows[0][0]
        minors = ([row[:k] + row[k + 1 :] for row in rows[1:]] for k in range(len(rows)))
        terms = [(-1) ** k * rows[0][k] * self.determinant(minor) for k, minor in enumerate(minors)]
        return self.add(terms)

    def power(self, base: Number, exponent: Number) -> Number:
        if base == 0 and (not isinstance(exponent, self.mp.mpf) or exponent <= 0):
            raise _UndefinedError
        if base and abs(exponent) * abs(self.mp.mag(base)) > 4 * _MOST_DIGITS and abs(base) != 1:
            raise _UndefinedError
        return base**exponent

    def root(self, radicand: Number, index: Number) -> Number:
        """The real root of odd degree of a negative number; the principal one otherwise."""
        if self.mp.isint(index) and int(index) % 2 and isinstance(radicand, self.mp.mpf) and radicand < 0:
            return -self.power(-radicand, 1 / index)
        return radicand if radicand == 0 else self.power(radicand, 1 / index)

    def logarithm(self, value: Number, base: Number | None = None) -> Number:
        if value == 0 or base in (0, 1):
            raise _UndefinedError
        return self.mp.log(value) if base is None else self.mp.log(value) / self.mp.log(base)

    def quotient(self, top: str, bottom: str, value: Number) -> Number:
        """A tangent or a similar function as the quotient of two others. It has no value at a pole."""
        function = self.mp.mpf(1) if top == "1" else getattr(self.mp, top)(value)
        divisor = getattr(self.mp, bottom)(value)
        if abs(divisor) < self.mp.mpf(10) ** (_GUARD - self.digits):
            raise _UndefinedError
        return function / divisor

    def factorial(self, value: Number, step: int = 1) -> Number:
        if abs(value) > 5000:
            raise _UndefinedError
        return self.mp.gamma(value + 1) if step == 1 else self.mp.fac2(value)

    def binomial(self, n: Number, k: Number) -> Number:
        if max(abs(n), abs(k)) > 5000:
            raise _UndefinedError
        return self.mp.binomial(n, k)

    def near(self, value: Number, function: str) -> Number:
        """The floor or ceiling of a real value. A value within rounding error of a whole number is that number."""
        if isinstance(value, self.mp.mpc):
            raise _UndefinedError
        nearest = self.mp.nint(value)
        return nearest if self.add([value, -nearest]) == 0 else getattr(self.mp, function)(value)

    def wave(self, function: str, value: Number) -> Number:
        result = getattr(self.mp, function)(value)
        return self.mp.mpf(0) if abs(result) < self.mp.mpf(10) ** (_GUARD - self.digits) else result

    def whole(self, values: tuple[Number, ...], function: str) -> Number:
        if not all(self.mp.isint(value) for value in values):
            raise _UndefinedError
        return self.mp.mpf(getattr(math, function)(*map(int, values)))


_OPERATIONS: dict[str, Any] = {
    "*": lambda a, x, y: x * y,
    "-": lambda a, x: -x,
    "/": lambda a, x, y: x / y,
    "^": _Arithmetic.power,
    "root": _Arithmetic.root,
    "abs": lambda a, x: abs(x),
    "floor": lambda a, x: a.near(x, "floor"),
    "ceil": lambda a, x: a.near(x, "ceil"),
    "factorial": _Arithmetic.factorial,
    "factorial2": lambda a, x: a.factorial(x, 2),
    "binom": _Arithmetic.binomial,
    "ln": _Arithmetic.logarithm,
    "log": _Arithmetic.logarithm,
    "sin": lambda a, x: a.wave("sin", x),
    "cos": lambda a, x: a.wave("cos", x),
    "tan": lambda a, x: a.quotient("sin", "cos", x),
    "cot": lambda a, x: a.quotient("cos", "sin", x),
    "sec": lambda a, x: a.quotient("1", "cos", x),
    "csc": lambda a, x: a.quotient("1", "sin", x),
    "arcsin": lambda a, x: a.mp.asin(x),
    "arccos": lambda a, x: a.mp.acos(x),
    "arctan": lambda a, x: a.mp.atan(x),
    "arccot": lambda a, x: a.mp.acot(x),
    "sinh": lambda a, x: a.mp.sinh(x),
    "cosh": lambda a, x: a.mp.cosh(x),
    "tanh": lambda a, x: a.mp.tanh(x),
    "coth": lambda a, x: a.mp.coth(x),
    "gcd": lambda a, *x: a.whole(x, "gcd"),
    "lcm": lambda a, *x: a.whole(x, "lcm"),
    "max": lambda a, *x: max(x),
    "min": lambda a, *x: min(x),
}


def _names(tree: list[Any], name: str) -> bool:
    """Whether a node of this name occurs in a tree."""
    return tree[0] == name or any(_names(part, name) for part in tree[1:] if isinstance(part, list))


@lru_cache(maxsize=4096)
def values(spelled: str) -> tuple[tuple[Number, int] | None, ...]:
    """A tree's value at every point, with the number of digits it was worked out to; None where it has none.

    A tree without letters has one point. A value that is not real, of a tree with letters and without `i`, does not count.
    """
    tree = json.loads(spelled)
    letters, complex_ones = _names(tree, "v"), _names(tree, "i")
    out: list[tuple[Number, int] | None] = []
    for point in range(_POINTS if letters else 1):
        arithmetic = _Arithmetic(point, _DIGITS)
        value = arithmetic.value_or_none(tree)
        spread = arithmetic.most - arithmetic.least
        if letters and spread > _MOST_SPREAD:  # there are other points
            value = None
        elif spread > _GUARD:  # numbers of such different sizes that digits may be lost: once more, with more of them
            arithmetic = _Arithmetic(point, _DIGITS + spread)
            value = arithmetic.value_or_none(tree)
        counts = value is not None and (complex_ones or not letters or not isinstance(value, arithmetic.mp.mpc))
        out.append((value, arithmetic.digits) if counts else None)
    return tuple(out)


def _pairs(a: str, b: str) -> list[tuple[Number, Number, int]]:
    """The values of two trees where both have one, with the digits to which both are known."""
    left, right = values(a), values(b)
    if len(left) != len(right):  # one has letters and the other none
        left, right = (side * _POINTS if len(side) == 1 else side for side in (left, right))
    return [(p[0], q[0], min(p[1], q[1])) for p, q in zip(left, right, strict=True) if p and q]


def _equal(p: Number, q: Number, digits: int) -> bool:
    arithmetic = _Arithmetic(0, digits)
    return bool(arithmetic.add([p, -q]) == 0)


def same(a: str, b: str) -> bool:
    """Whether two trees agree wherever both have values, which must be at three points at least if there are letters."""
    pairs = _pairs(a, b)
    needed = 1 if len(values(a)) == len(values(b)) == 1 else 3
    return len(pairs) >= needed and all(_equal(*pair) for pair in pairs)


def ratio(a: str, b: str) -> bytes:
    """CONSTANT or NEGATIVE if one tree is a positive or negative constant times the other; NO otherwise."""
    pairs = _pairs(a, b)
    if any((p == 0) != (q == 0) for p, q, _ in pairs):
        return NO
    quotients = [(p / q, digits) for p, q, digits in pairs if q != 0]
    if len(quotients) < 3 or not all(_equal(quotients[0][0], r, digits) for r, digits in quotients):
        return NO
    first = quotients[0][0]
    return NO if hasattr(first, "imag") and first.imag else NEGATIVE if first.real < 0 else CONSTANT


def _answer(request: list[Any]) -> bytes:
    question, *trees = request
    spelled = [json.dumps(tree) for tree in trees]
    try:
        if question == "value":
            return YES if any(values(spelled[0])) else NO
        return ratio(*spelled) if question == "ratio" else YES if same(*spelled) else NO
    except Exception:  # whatever goes wrong with a formula, it equals nothing
        return NO


def serve(seconds: float, memory: int) -> None:
    """Answer requests until the grader closes its end. An alarm ends the process if the grader is gone."""
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print must not be taken for an answer
    try:
        import mpmath  # noqa: F401
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
    sys.setrecursionlimit(10_000)
    serve(float(sys.argv[1]), int(sys.argv[2]))
