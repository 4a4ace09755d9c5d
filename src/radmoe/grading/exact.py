"""The rational number that a tree is, where plain arithmetic tells; everything else is left to the algebra process."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from radmoe.grading.syntax import Tree

_BITS = 12_000  # of the largest number that is worked out here
_TERMS = 10_000


class _NotHereError(Exception):
    """The value is no rational number, or is left to the algebra process."""


def exact(tree: Tree) -> Fraction | None:
    """The tree's value, if it is rational and plain arithmetic finds it; None otherwise."""
    try:
        return _value(tree, {})
    except (_NotHereError, ZeroDivisionError, RecursionError):
        return None


def written(value: Fraction) -> str:
    """A rational number as it is always written: an integer, or a fraction in lowest terms."""
    if value.denominator == 1:
        return str(value.numerator)
    return ("-" if value < 0 else "") + f"\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _value(tree: Tree, counters: dict[str, Fraction]) -> Fraction:
    name, *parts = tree
    if name == "n":
        return Fraction(parts[0])
    if name == "v" and parts[0] in counters:
        return counters[parts[0]]
    if name in ("sum", "prod"):
        return _counted(tree, counters)
    if name not in _OPERATIONS:
        raise _NotHereError
    value = _OPERATIONS[name](*(_value(part, counters) for part in parts))
    if value.numerator.bit_length() + value.denominator.bit_length() > _BITS:
        raise _NotHereError
    return value


def _counted(tree: Tree, counters: dict[str, Fraction]) -> Fraction:
    name, counter, *parts = tree
    low, high = (_whole(_value(part, counters)) for part in parts[:2])
    if high - low > _TERMS:
        raise _NotHereError
    terms = (_value(parts[2], counters | {counter: Fraction(k)}) for k in range(low, high + 1))
    return (_sum if name == "sum" else _product)(*terms)


def _sum(*terms: Fraction) -> Fraction:
    return sum(terms, Fraction(0))


def _product(*factors: Fraction) -> Fraction:
    value = Fraction(1)
    for factor in factors:
        value *= factor
        if value.numerator.bit_length() > _BITS:
            raise _NotHereError
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        if base < 0:  # a fractional power of a negative number is complex
            raise _NotHereError
        return _power(_root(base, Fraction(exponent.denominator)), Fraction(exponent.numerator))
    if base == 0 and exponent <= 0:
        raise _NotHereError
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) * size > _BITS and abs(base) != 1:
        raise _NotHereError
    return base ** (exponent.numerator if abs(base) != 1 else exponent.numerator % 2)


def _root(value: Fraction, index: Fraction) -> Fraction:
    degree = _whole(index)
    if degree < 1 or degree > 64 or (value < 0 and degree % 2 == 0):
        raise _NotHereError
    top, bottom = _whole_root(abs(value.numerator), degree), _whole_root(value.denominator, degree)
    return Fraction(-top if value < 0 else top, bottom)


def _whole_root(value: int, degree: int) -> int:
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    if low**degree != value:
        raise _NotHereError
    return low


def _whole(value: Fraction) -> int:
    if value.denominator != 1:
        raise _NotHereError
    return value.numerator


def _factorial(value: Fraction, step: int = 1) -> Fraction:
    n = _whole(value)
    if not 0 <= n <= 1000:
        raise _NotHereError
    return Fraction(math.prod(range(n, 0, -step)))


def _binomial(n: Fraction, k: Fraction) -> Fraction:
    top, bottom = _whole(n), _whole(k)
    if top < 0 or not bottom >= 0 or top > 2000:
        raise _NotHereError
    return Fraction(math.comb(top, bottom))


_OPERATIONS: dict[str, Callable[..., Fraction]] = {
    "+": _sum,
    "*": _product,
    "-": lambda a: -a,
    "/": lambda a, b: a / b,
    "^": _power,
    "root": _root,
    "abs": abs,
    "floor": lambda a: Fraction(math.floor(a)),
    "ceil": lambda a: Fraction(math.ceil(a)),
    "factorial": _factorial,
    "factorial2": lambda a: _factorial(a, 2),
    "binom": _binomial,
    "gcd": lambda *values: Fraction(math.gcd(*map(_whole, values))),
    "lcm": lambda *values: Fraction(math.lcm(*map(_whole, values))),
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
}
