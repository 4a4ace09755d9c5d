"""Arithmetic with published figures, each of which stands for every number that rounds to it.

A published 73.9 is the span [73.85, 73.95]; a sum of ten such figures is known to half a unit. A percentage of
n problems is one of n + 1 fractions, which is often enough to know it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

SLACK = 1e-6  # the part of half a unit in the last place that is allowed for float noise, far below anything printed


@dataclass(frozen=True, slots=True)
class Span:
    """A number known to lie in [low, high]; `value` is what the figures as printed give."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Span:
        return cls(value, value, value)

    def __add__(self, other: Span | float) -> Span:
        o = _span(other)
        return Span(self.value + o.value, self.low + o.low, self.high + o.high)

    def __sub__(self, other: Span | float) -> Span:
        o = _span(other)
        return Span(self.value - o.value, self.low - o.high, self.high - o.low)

    def __rsub__(self, other: float) -> Span:
        return _span(other) - self

    def __mul__(self, other: Span | float) -> Span:
        o = _span(other)
        ends = [a * b for a in (self.low, self.high) for b in (o.low, o.high)]
        return Span(self.value * o.value, min(ends), max(ends))

    def __truediv__(self, other: Span | float) -> Span:
        o = _span(other)
        if o.low <= 0 <= o.high:
            raise ZeroDivisionError(f"the divisor {o} may be zero")
        return self * Span(1 / o.value, 1 / o.high, 1 / o.low)

    def __abs__(self) -> Span:
        ends = sorted((abs(self.low), abs(self.high)))
        return Span(abs(self.value), 0.0 if self.low <= 0 <= self.high else ends[0], ends[1])

    def through(self, f: Callable[[float], float]) -> Span:
        """The span of f(x) for a monotone function f."""
        ends = sorted((f(self.low), f(self.high)))
        return Span(f(self.value), *ends)


def total(spans: Iterable[Span]) -> Span:
    return sum(spans, Span.exact(0.0))


def plus(spans: Iterable[Span], style: str = ".6g") -> str:
    """The sum written out."""
    return " + ".join(f"{s.value:{style}}" for s in spans)


def weighted(spans: Sequence[Span], weights: Sequence[int]) -> Span:
    """The mean of the spans, weighted by exactly known weights."""
    return total(s * w for s, w in zip(spans, weights, strict=True)) / sum(weights)


def read(text: str) -> Span:
    """A figure as printed: "73.9", "+0.8", "42", "1.3e-27", or a range "14..17"."""
    first, _, last = text.partition("..")
    ends = [Decimal(first), Decimal(last or first)]
    half = unit(text) / 2
    return Span(float(sum(ends)) / 2, float(ends[0]) - half, float(ends[1]) + half)


def again(text: str, other: str) -> Span:
    """The span of a figure that is printed as `text` here and as `other` elsewhere.

    If `other` has no more places than `text`, the two must be the same.
    """
    return read(other) if unit(other) < unit(text) else Span.exact(float(other))


def unit(text: str) -> float:
    """One unit in the last printed place."""
    return float(Decimal(1).scaleb(int(Decimal(text.partition("..")[0]).as_tuple().exponent)))


def counts(text: str, n: int) -> range:
    """Every count of n problems whose percentage prints as `text`. There may be none."""
    span, slack = read(text), SLACK * unit(text) / 2
    return range(math.ceil((span.low - slack) * n / 100), math.floor((span.high + slack) * n / 100) + 1)


def count(text: str, n: int) -> Span:
    """How many of n problems a percentage stands for: exactly, where only one count fits, else what rounding allows."""
    fits = counts(text, n)
    if not fits:  # `granularity` reports this figure; here it is taken as printed
        return read(text) * (n / 100)
    value = float(fits[0]) if len(fits) == 1 else read(text).value * n / 100
    return Span(value, float(fits[0]), float(fits[-1]))


def _span(x: Span | float) -> Span:
    return x if isinstance(x, Span) else Span.exact(x)
